# SPDX-License-Identifier: Apache-2.0
"""softmax_with_cross_entropy: the pair as one operator, with the gradient Softmax - Label."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.activation.softmax import softmax_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import NO_SLOTS, Spec, gradient, operator
from paddle.ops.base.shapes import axis_of
from paddle.ops.loss import labels
from paddle.ops.loss.cross_entropy import cross_entropy


def _infer(logits: Spec, label: Spec, *, soft_label: bool, axis: int) -> tuple[Spec, Spec]:
    at = axis_of(axis, len(logits.shape))
    if at != len(logits.shape) - 1:
        raise ShapeError(
            f"expected the last axis of {logits.shape}, got axis {axis}: transpose the logits first"
        )
    labels.check(logits, label, soft_label)
    return logits, logits._replace(shape=(*logits.shape[:-1], 1))


@operator(
    "softmax_with_cross_entropy",
    "Logits Label -> Softmax~ Loss",
    attrs={"soft_label": False, "numeric_stable_mode": True, "ignore_index": -100, "axis": -1},
    infer=_infer,
    fresh=True,
)
def softmax_with_cross_entropy(
    logits: Array, label: Array, *, soft_label: bool, ignore_index: int, spent: frozenset[str] = NO_SLOTS
) -> tuple[Array, Array]:
    """Return the probabilities and one cost a row, (..., 1)."""
    probabilities = softmax_of(logits, -1, logits if "Logits" in spent else None)
    return probabilities, cross_entropy(
        probabilities, label, soft_label=soft_label, ignore_index=ignore_index
    )


@gradient("softmax_with_cross_entropy", "Label Softmax Loss@GRAD -> Logits@GRAD", fresh=True)
def softmax_with_cross_entropy_grad(
    label: Array,
    probabilities: Array,
    dloss: Array,
    *,
    soft_label: bool,
    ignore_index: int,
    spent: frozenset[str] = NO_SLOTS,
) -> Array:
    """dLogits = (Softmax - Label) dLoss, with Label as a row of zeros and one 1 if it is a class."""
    if soft_label:
        return (probabilities * label.sum(axis=-1, keepdims=True) - label) * dloss
    xp = array_module(probabilities)
    rows, classes, ignored = labels.picked(label, probabilities.shape[-1], ignore_index)
    weight = dloss.reshape(-1, 1)
    if ignored is not None:
        weight = xp.where(ignored[:, None], weight.dtype.type(0), weight)
    flat = probabilities.reshape(-1, probabilities.shape[-1])
    dlogits = xp.multiply(flat, weight, out=flat if "Softmax" in spent else None)
    dlogits[rows, classes] -= weight[:, 0]
    return dlogits.reshape(probabilities.shape)
