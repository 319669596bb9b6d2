# SPDX-License-Identifier: Apache-2.0
"""fsp: correlations between the channels of two layers, for distillation (Yim and others, 2017)."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import known, same


def _infer(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != 4 or len(y.shape) != 4:
        raise ShapeError(f"expected X (N, C1, H, W) and Y (N, C2, H, W), got {x.shape} and {y.shape}")
    same(x.shape[2:], y.shape[2:], "images of X and Y")
    return Spec((known(x.shape[0], y.shape[0]), x.shape[1], y.shape[1]), x.dtype)


@operator("fsp", "X Y -> Out", infer=_infer)
def fsp(x: Array, y: Array) -> Array:
    """Return Out (N, C1, C2) = X Yᵀ/(H W), with each channel of an image as a row."""
    out: Array = _rows(x) @ _rows(y).swapaxes(1, 2) / _area(x)
    return out


@gradient("fsp", "X Y Out@GRAD -> X@GRAD Y@GRAD")
def fsp_grad(x: Array, y: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX = dOut Y/(H W), dY = dOutᵀ X/(H W)."""
    share = dout / _area(x)
    return (share @ _rows(y)).reshape(x.shape), (share.swapaxes(1, 2) @ _rows(x)).reshape(y.shape)


def _rows(x: Array) -> Array:
    return x.reshape(*x.shape[:2], x.shape[2] * x.shape[3])


def _area(x: Array) -> Array:
    return x.dtype.type(max(x.shape[2] * x.shape[3], 1))
