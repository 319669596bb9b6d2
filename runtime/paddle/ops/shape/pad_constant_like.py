# SPDX-License-Identifier: Apache-2.0
"""pad_constant_like: Y padded at the end of each dimension to the shape of X. A table entry."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.shape.pad import pad


def _infer(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != len(y.shape) or any(0 <= x < y for x, y in zip(x.shape, y.shape, strict=True)):
        raise ShapeError(
            f"Y {y.shape} must have the same rank as X {x.shape} and must not exceed it in any dimension"
        )
    return y._replace(shape=x.shape)


@operator("pad_constant_like", "X Y -> Out", attrs={"pad_value": 0.0}, infer=_infer, shares_lod=False)
def pad_constant_like(x: Array, y: Array, *, pad_value: float) -> Array:
    """Return Y in the shape of X; the padding is pad_value."""
    behind = [grown - size for grown, size in zip(x.shape, y.shape, strict=True)]
    return pad(y, paddings=tuple(size for each in behind for size in (0, each)), pad_value=pad_value)


@gradient("pad_constant_like", "Y Out@GRAD -> Y@GRAD")
def pad_constant_like_grad(y: Array, dout: Array) -> Array:
    """Return the part of dOut at Y's positions."""
    return dout[tuple(slice(size) for size in y.shape)]
