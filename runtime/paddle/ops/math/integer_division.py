# SPDX-License-Identifier: Apache-2.0
"""elementwise_mod and elementwise_floordiv, for whole numbers and others."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.math.broadcast import aligned, check


def _infer(x: Spec, y: Spec, *, axis: int) -> Spec:
    check(x.shape, y.shape, axis)
    if x.dtype != y.dtype:
        raise ShapeError(f"X is {x.dtype}, Y is {y.dtype}: cast one of them")
    return x


@operator("elementwise_mod", "X Y -> Out", attrs={"axis": -1}, infer=_infer)
def elementwise_mod(x: Array, y: Array, *, axis: int) -> Array:
    """Out = what is left of X over Y, with the sign of Y."""
    return x % aligned(x, y, axis)


@operator("elementwise_floordiv", "X Y -> Out", attrs={"axis": -1}, infer=_infer)
def elementwise_floordiv(x: Array, y: Array, *, axis: int) -> Array:
    """Out = X over Y, rounded down."""
    return x // aligned(x, y, axis)
