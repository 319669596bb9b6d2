# SPDX-License-Identifier: Apache-2.0
"""kldiv_loss: how far a distribution given by logarithms is from a target: Target (ln Target - X)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import same

_REDUCTIONS = ("mean", "sum", "batchmean", "none")


def _infer(x: Spec, target: Spec, *, reduction: str) -> Spec:
    if reduction not in _REDUCTIONS:
        raise AttrError(f"reduction: expected one of {', '.join(_REDUCTIONS)}, got {reduction!r}")
    shape = same(x.shape, target.shape, "X and Target")
    return x._replace(shape=shape) if reduction == "none" else Spec((1,), x.dtype)


@operator("kldiv_loss", "X Target -> Loss", attrs={"reduction": "mean"}, infer=_infer)
def kldiv_loss(x: Array, target: Array, *, reduction: str) -> Array:
    """Return the loss of each element, the mean, the sum, or the sum over the rows' number; 0 where Target is 0."""
    xp = array_module(x)
    inside = target > 0
    loss = xp.where(inside, target * (xp.log(xp.where(inside, target, 1)) - x), 0).astype(x.dtype)
    if reduction == "none":
        return loss
    return loss.sum().reshape(1) / x.dtype.type(_count(x, reduction))


@gradient("kldiv_loss", "X Target Loss@GRAD -> X@GRAD")
def kldiv_loss_grad(x: Array, target: Array, dloss: Array, *, reduction: str) -> Array:
    """dX = -Target dLoss, over what the loss was divided by."""
    return -target * (target > 0) * (dloss / x.dtype.type(_count(x, reduction)))


def _count(x: Array, reduction: str) -> int:
    return {"mean": x.size, "batchmean": len(x)}.get(reduction, 1) or 1
