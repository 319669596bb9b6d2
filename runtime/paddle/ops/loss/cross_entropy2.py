# SPDX-License-Identifier: Apache-2.0
"""cross_entropy2: cross_entropy of classes that keeps what its gradient needs: the probabilities at the labels."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.loss import labels
from paddle.ops.loss.cross_entropy import cross_entropy, cross_entropy_grad


def _infer(x: Spec, label: Spec) -> tuple[Spec, Spec, Spec]:
    labels.check(x, label, soft_label=False)
    costs = x._replace(shape=(*x.shape[:-1], 1))
    return costs, Spec((0, *x.shape), x.dtype), costs._replace(lod_level=0)


@operator("cross_entropy2", "X Label -> Y XShape~ MatchX~", attrs={"ignore_index": -100}, infer=_infer)
def cross_entropy2(x: Array, label: Array, *, ignore_index: int) -> tuple[Array, Array, Array]:
    """Return one cost a row (..., 1), an empty array that knows X's shape, and the probabilities at the labels."""
    cost = cross_entropy(x, label, soft_label=False, ignore_index=ignore_index)
    rows, classes, _ = labels.picked(label, x.shape[-1], ignore_index)
    matched = x.reshape(-1, x.shape[-1])[rows, classes].reshape(cost.shape)
    return cost, array_module(x).zeros((0, *x.shape), x.dtype), matched


@gradient("cross_entropy2", "Label MatchX XShape Y@GRAD -> X@GRAD")
def cross_entropy2_grad(label: Array, matched: Array, shape: Array, dy: Array, *, ignore_index: int) -> Array:
    """dX = -dY / X at the label, 0 elsewhere."""
    xp = array_module(dy)
    spread = xp.broadcast_to(matched, shape.shape[1:])
    return cross_entropy_grad(spread, label, dy, soft_label=False, ignore_index=ignore_index)
