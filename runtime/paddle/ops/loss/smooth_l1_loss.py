# SPDX-License-Identifier: Apache-2.0
"""smooth_l1_loss: squared below 1 / sigma², straight beyond it, added up to one cost a row."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same


def _infer(x: Spec, y: Spec, inside: Spec | None, outside: Spec | None) -> tuple[Spec, Spec]:
    shape = same(x.shape, y.shape, "X and Y")
    for weight in (inside, outside):
        if weight is not None:
            same(shape, weight.shape, "X and its weights")
    return x._replace(shape=shape), x._replace(shape=(shape[0], 1))


@operator(
    "smooth_l1_loss",
    "X Y InsideWeight? OutsideWeight? -> Diff~ Out",
    attrs={"sigma": 1.0},
    infer=_infer,
)
def smooth_l1_loss(
    x: Array, y: Array, inside: Array | None, outside: Array | None, *, sigma: float
) -> tuple[Array, Array]:
    """Diff = InsideWeight (X - Y); Out (N, 1) = row sums of OutsideWeight f(Diff)."""
    xp = array_module(x)
    difference = x - y if inside is None else (x - y) * inside
    size = xp.abs(difference)
    curve = sigma * sigma
    cost = xp.where(size < 1 / curve, difference * difference * (curve / 2), size - 0.5 / curve)
    if outside is not None:
        cost *= outside
    return difference, cost.reshape(len(cost), -1).sum(axis=1, keepdims=True)


@gradient("smooth_l1_loss", "InsideWeight? OutsideWeight? Diff Out@GRAD -> X@GRAD Y@GRAD")
def smooth_l1_loss_grad(
    inside: Array | None, outside: Array | None, difference: Array, dout: Array, *, sigma: float
) -> tuple[Array, Array]:
    """dX = OutsideWeight InsideWeight (sigma² Diff kept within ±1) dOut, dY = -dX."""
    dx = (difference * difference.dtype.type(sigma * sigma)).clip(-1, 1)
    dx *= dout.reshape(-1, *(1,) * (dx.ndim - 1))
    for weight in (inside, outside):
        if weight is not None:
            dx *= weight
    return dx, -dx
