# SPDX-License-Identifier: Apache-2.0
"""Losses, one per row unless noted otherwise; also label smoothing and mean intersection over union."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.elements import (
    elementwise_add,
    elementwise_div,
    elementwise_mul,
    matmul,
    mean,
    reduce_mean,
    reduce_sum,
    scale,
)
from paddle.fluid.layers.nn.shaping import expand, reshape, shape, slice, transpose
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.layers.tensor import cast
from paddle.fluid.program.variable import Variable

__all__ = [
    "bpr_loss", "cross_entropy", "dice_loss", "hinge_loss", "huber_loss", "kldiv_loss", "label_smooth", "log_loss",
    "margin_rank_loss", "mean_iou", "npair_loss", "rank_loss", "sigmoid_cross_entropy_with_logits", "smooth_l1",
    "softmax_with_cross_entropy", "square_error_cost", "teacher_student_sigmoid_loss",
]  # fmt: skip

cross_entropy = layer(
    "cross_entropy(input, label, soft_label=False, ignore_index=-100)",
    """the cost (..., 1) of each row: −ln p of its class.

    input holds probabilities (..., classes), label int64 classes (..., 1); the cost of class ignore_index is 0. With
    soft_label, label holds probabilities (..., classes), and the cost is −Σ label ln p""",
)


softmax_with_cross_entropy = layer(
    "softmax_with_cross_entropy(logits, label, soft_label=False, ignore_index=-100, numeric_stable_mode=True, "
    "return_softmax=False, axis=-1)",
    """the cross entropy of softmax(logits) along an axis and, if return_softmax, also the softmax.

    Hard labels (integers) and costs have the logits' shape with size 1 along the axis. Soft labels have the logits'
    shape""",
    to="return_softmax=",
    returns=lambda given: "Loss Softmax" if given["return_softmax"] else "Loss",
)


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Return the squared error (input − label)² of each element, in the input's shape."""
    helper = LayerHelper("square_error_cost")
    difference = helper.apply("elementwise_sub", {"X": input, "Y": label})
    return helper.apply("square", {"X": difference})


sigmoid_cross_entropy_with_logits = layer(
    "sigmoid_cross_entropy_with_logits(x, label, ignore_index=-100, name=None, normalize=False)",
    "the cross entropy of sigmoid(x) and the label for each element, 0 where the label "
    "is ignore_index; with normalize, divided by the number of all other elements",
)
smooth_l1 = layer(
    "smooth_l1(x, y, inside_weight=None, outside_weight=None, sigma=None)",
    "Σ of d²σ²/2 where |d| < 1/σ², else |d| − 1/(2σ²), (rows, 1); d = x − y times inside_weight, each summand times "
    "outside_weight",
    "smooth_l1_loss",
)
log_loss = layer(
    "log_loss(input, label, epsilon=1e-4, name=None)", "−y ln(p + ε) − (1 − y) ln(1 − p + ε) of each element"
)
huber_loss = layer(
    "huber_loss(input, label, delta)", "d²/2 where |d| <= δ, else δ(|d| − δ/2), of each element"
)
hinge_loss = layer("hinge_loss(input, label)", "max(0, 1 − (2y − 1)x) of each element")
rank_loss = layer(
    "rank_loss(label, left, right, name=None)", "the cross entropy of sigmoid(left − right) and the label"
)
margin_rank_loss = layer(
    "margin_rank_loss(label, left, right, margin=0.1, name=None)", "max(0, -label (left - right) + margin)"
)
bpr_loss = layer(
    "bpr_loss(input, label, name=None)",
    "the mean of -ln sigmoid(x[label] - x[j]) over all other classes j, (rows, 1)",
)
label_smooth = layer(
    "label_smooth(label, prior_dist=None, epsilon=0.1, dtype='float32', name=None)",
    "(1 - epsilon) label + epsilon prior_dist; without prior_dist, epsilon / classes",
    to="dtype=",
)
kldiv_loss = layer(
    "kldiv_loss(x, target, reduction='mean', name=None)",
    'target (ln target - x) of each element ("none"), or their mean, sum or batchmean',
)


mean_iou = several(
    "mean_iou(input, label, num_classes)",
    "the mean over classes of intersection over union (1,), and counts of wrong and correct pixels per class, int32",
    fixed="OutMeanIou OutWrong OutCorrect",
)
teacher_student_sigmoid_loss = layer(
    "teacher_student_sigmoid_loss(input, label, soft_max_up_bound=15.0, soft_max_lower_bound=-15.0)",
    """the cross entropy (rows, 1) of sigmoid(input) with a click and, if the label has one, with a teacher's score.

    Labels without a score: -2 means no click, -1 a click. With a score q in [0, 1]: q means no click, 1 + q a click""",
)


def npair_loss(anchor: Variable, positive: Variable, labels: Variable, l2_reg: float = 0.002) -> Variable:
    """Return the N-pair loss (1,) of a batch (Sohn, 2016): cross entropy of anchor · positiveᵀ against equal labels.

    Args:
        anchor: (N, D).
        positive: (N, D).
        labels: (N,), the labels of both anchors and positives.
        l2_reg: factor of the added L2 term, which is a quarter of the mean squared norms.
    """
    column = reshape(labels, [-1, 1])
    count = labels.shape[0]
    times = count if count >= 0 else slice(shape(labels), axes=[0], starts=[0], ends=[1])
    rows = expand(column, [1, times])
    helper = LayerHelper("npair_loss")
    equal = helper.apply("equal", {"X": rows, "Y": transpose(rows, [1, 0])}, stop_gradient=True)
    alike = cast(equal, anchor.dtype)
    targets = elementwise_div(alike, reduce_sum(alike, dim=1, keep_dim=True), axis=0)
    targets.stop_gradient = True
    norms = [reduce_mean(reduce_sum(elementwise_mul(each, each), dim=1)) for each in (anchor, positive)]
    similarity = matmul(anchor, positive, transpose_y=True)
    entropy = softmax_with_cross_entropy(similarity, targets, soft_label=True)
    cost = reduce_mean(reduce_sum(elementwise_mul(targets, entropy, axis=0), dim=0))
    return elementwise_add(scale(elementwise_add(*norms), 0.25 * l2_reg), cost)


def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-5) -> Variable:
    """Return the Dice loss, the mean over the batch of 1 - 2 |input · label| / (|input| + |label| + epsilon).

    Args:
        input: (N, ..., classes) probabilities.
        label: (N, ..., 1) class indexes.
        epsilon: avoids division by zero for empty images.
    """
    helper = LayerHelper("dice_loss")
    flat = helper.apply("one_hot", {"X": label}, {"depth": input.shape[-1]}, stop_gradient=True)
    dims = [at for at, _ in enumerate(input.shape) if at]
    shared = reduce_sum(elementwise_mul(input, flat), dim=dims)
    total = elementwise_add(reduce_sum(input, dim=dims), reduce_sum(flat, dim=dims))
    return mean(scale(elementwise_div(scale(shared, 2.0), scale(total, bias=epsilon)), scale=-1.0, bias=1.0))
