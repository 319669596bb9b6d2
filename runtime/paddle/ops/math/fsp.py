# SPDX-License-Identifier: Apache-2.0
"""fsp: the flow of solution procedure between the channels of two layers, for distillation (Yim et al., 2017)."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.registry import gradient, operator


@operator("fsp", "X Y -> Out", infer="X(N, A, H, W), Y(N, B, H, W) -> X(N, A, B, lod=0)")
def fsp(x: Array, y: Array) -> Array:
    """Return the FSP matrix (N, C1, C2) = X Yᵀ/(H W), with each channel of an image as a row."""
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
