# SPDX-License-Identifier: Apache-2.0
"""norm: X divided by its Euclidean norm along an axis (l2_normalize in layers)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of


def _infer(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    at = axis_of(axis, len(x.shape))
    return x._replace(shape=(*x.shape[:at], 1, *x.shape[at + 1 :])), x


@operator("norm", "X -> Norm~ Out", attrs={"axis": int, "epsilon": 1e-10}, infer=_infer)
def norm(x: Array, *, axis: int, epsilon: float) -> tuple[Array, Array]:
    """Norm = √(sum of X² + epsilon), Out = X / Norm."""
    length = array_module(x).sqrt((x * x).sum(axis=axis, keepdims=True) + x.dtype.type(epsilon))
    return length, x / length


@gradient("norm", "Norm Out Out@GRAD -> X@GRAD")
def norm_grad(length: Array, out: Array, dout: Array, *, axis: int) -> Array:
    """dX = (dOut - Out sum of dOut Out) / Norm."""
    return (dout - out * (dout * out).sum(axis=axis, keepdims=True)) / length
