# SPDX-License-Identifier: Apache-2.0
"""cos_sim: the cosine of the angle between rows of X and Y; Y may be one row for all."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree


def _infer(x: Spec, y: Spec) -> tuple[Spec, Spec, Spec]:
    fits = len(x.shape) == len(y.shape) == 2 and agree(x.shape[1], y.shape[1])
    if not fits or not (y.shape[0] == 1 or agree(x.shape[0], y.shape[0])):
        raise ShapeError(f"expected X (rows, width) and Y (rows or 1, width), got {x.shape} and {y.shape}")
    column = x._replace(shape=(x.shape[0], 1))
    return column, column, y._replace(shape=(y.shape[0], 1))


@operator("cos_sim", "X Y -> Out XNorm~ YNorm~", infer=_infer)
def cos_sim(x: Array, y: Array) -> tuple[Array, Array, Array]:
    """Out = X·Y / (|X| |Y|); rows of length zero give no number (nan)."""
    xp = array_module(x)
    xnorm = xp.sqrt((x * x).sum(axis=1, keepdims=True))
    ynorm = xp.sqrt((y * y).sum(axis=1, keepdims=True))
    return (x * y).sum(axis=1, keepdims=True) / (xnorm * ynorm), xnorm, ynorm


@gradient("cos_sim", "X Y Out XNorm YNorm Out@GRAD -> X@GRAD Y@GRAD")
def cos_sim_grad(
    x: Array, y: Array, out: Array, xnorm: Array, ynorm: Array, dout: Array
) -> tuple[Array, Array]:
    """dX = dOut (Y / (|X| |Y|) - Out X / |X|²), and dY likewise."""
    both = xnorm * ynorm
    dx = dout * (y / both - out * x / (xnorm * xnorm))
    dy = dout * (x / both - out * y / (ynorm * ynorm))
    return dx, dy if len(y) == len(x) else dy.sum(axis=0, keepdims=True)
