# SPDX-License-Identifier: Apache-2.0
"""Costs, one number a row unless said otherwise, and smoothed labels."""

from __future__ import annotations

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.arithmetic import elementwise_add, elementwise_div, elementwise_mul, mean, scale
from paddle.fluid.layers.nn.reductions import reduce_sum
from paddle.fluid.program.variable import Variable

__all__ = [
    "bpr_loss",
    "cross_entropy",
    "dice_loss",
    "hinge_loss",
    "huber_loss",
    "kldiv_loss",
    "label_smooth",
    "log_loss",
    "margin_rank_loss",
    "rank_loss",
    "sigmoid_cross_entropy_with_logits",
    "smooth_l1",
    "softmax_with_cross_entropy",
    "square_error_cost",
]


def cross_entropy(
    input: Variable, label: Variable, soft_label: bool = False, ignore_index: int = -100
) -> Variable:
    """Return −ln p of the label's class, or −Σ label ln p with soft_label; shape (..., 1).

    Args:
        input: probabilities, (..., classes).
        label: int64 classes (..., 1), or probabilities.
        soft_label: which of the two.
        ignore_index: rows with this class cost nothing.
    """
    helper = LayerHelper("cross_entropy")
    attrs = {"soft_label": soft_label, "ignore_index": ignore_index}
    return helper.apply("cross_entropy", {"X": input, "Label": label}, attrs, "Y", input.dtype)


def softmax_with_cross_entropy(
    logits: Variable,
    label: Variable,
    soft_label: bool = False,
    ignore_index: int = -100,
    numeric_stable_mode: bool = True,
    return_softmax: bool = False,
    axis: int = -1,
) -> Variable | tuple[Variable, Variable]:
    """Return the cross entropy of softmax(logits) along an axis, and that softmax with return_softmax.

    Hard labels (whole numbers) and the costs have the shape of the logits with 1 at the axis, soft labels that of the
    logits.
    """
    helper = LayerHelper("softmax_with_cross_entropy")
    softmax, loss = (helper.create_variable_for_type_inference(logits.dtype) for _ in range(2))
    attrs = {
        "soft_label": soft_label,
        "ignore_index": ignore_index,
        "numeric_stable_mode": numeric_stable_mode,
        "axis": axis,
    }
    helper.append_op(
        "softmax_with_cross_entropy",
        {"Logits": logits, "Label": label},
        {"Softmax": softmax, "Loss": loss},
        attrs,
    )
    return (loss, softmax) if return_softmax else loss


def square_error_cost(input: Variable, label: Variable) -> Variable:
    """Return (input − label)²."""
    helper = LayerHelper("square_error_cost")
    difference = helper.apply("elementwise_sub", {"X": input, "Y": label}, dtype=input.dtype)
    return helper.apply("square", {"X": difference}, dtype=input.dtype)


def sigmoid_cross_entropy_with_logits(
    x: Variable,
    label: Variable,
    ignore_index: int = -100,
    name: str | None = None,
    normalize: bool = False,
) -> Variable:
    """Return the cross entropy of sigmoid(x), an element each."""
    helper = LayerHelper("sigmoid_cross_entropy_with_logits", name)
    attrs = {"ignore_index": ignore_index, "normalize": normalize}
    return helper.apply("sigmoid_cross_entropy_with_logits", {"X": x, "Label": label}, attrs, dtype=x.dtype)


def smooth_l1(
    x: Variable,
    y: Variable,
    inside_weight: Variable | None = None,
    outside_weight: Variable | None = None,
    sigma: float | None = None,
) -> Variable:
    """Return Σ of d²σ²/2 where |d| < 1/σ², else |d| − 1/(2σ²), d = x − y."""
    helper = LayerHelper("smooth_l1_loss")
    difference, loss = (helper.create_variable_for_type_inference(x.dtype) for _ in range(2))
    inputs = {"X": x, "Y": y}
    if inside_weight is not None:
        inputs["InsideWeight"] = inside_weight
    if outside_weight is not None:
        inputs["OutsideWeight"] = outside_weight
    attrs = {"sigma": 1.0 if sigma is None else sigma}
    helper.append_op("smooth_l1_loss", inputs, {"Diff": difference, "Out": loss}, attrs)
    return loss


def log_loss(input: Variable, label: Variable, epsilon: float = 1e-4, name: str | None = None) -> Variable:
    """Return −y ln(p + ε) − (1 − y) ln(1 − p + ε)."""
    helper = LayerHelper("log_loss", name)
    return helper.apply("log_loss", {"Predicted": input, "Labels": label}, {"epsilon": epsilon}, "Loss")


def huber_loss(input: Variable, label: Variable, delta: float) -> Variable:
    """Return d²/2 where |d| <= δ, else δ(|d| − δ/2)."""
    helper = LayerHelper("huber_loss")
    residual, out = (helper.create_variable_for_type_inference(input.dtype) for _ in range(2))
    helper.append_op(
        "huber_loss", {"X": input, "Y": label}, {"Out": out, "Residual": residual}, {"delta": delta}
    )
    return out


def hinge_loss(input: Variable, label: Variable) -> Variable:
    """Return max(0, 1 − (2y − 1)x)."""
    return LayerHelper("hinge_loss").apply("hinge_loss", {"Logits": input, "Labels": label}, out="Loss")


def rank_loss(label: Variable, left: Variable, right: Variable, name: str | None = None) -> Variable:
    """Return the cross entropy of sigmoid(left − right) and the label."""
    return LayerHelper("rank_loss", name).apply("rank_loss", {"Label": label, "Left": left, "Right": right})


def margin_rank_loss(
    label: Variable, left: Variable, right: Variable, margin: float = 0.1, name: str | None = None
) -> Variable:
    """Return max(0, -label (left - right) + margin)."""
    helper = LayerHelper("margin_rank_loss", name)
    inputs = {"Label": label, "X1": left, "X2": right}
    return helper.apply("margin_rank_loss", inputs, {"margin": margin}, dtype=left.dtype)


def bpr_loss(input: Variable, label: Variable, name: str | None = None) -> Variable:
    """Return the mean of -ln sigmoid(x[label] - x[j]) over all other classes j, (rows, 1)."""
    inputs = {"X": input, "Label": label}
    return LayerHelper("bpr_loss", name).apply("bpr_loss", inputs, out="Y", dtype=input.dtype)


def label_smooth(
    label: Variable,
    prior_dist: Variable | None = None,
    epsilon: float = 0.1,
    dtype: npt.DTypeLike = "float32",
    name: str | None = None,
) -> Variable:
    """Return (1 - epsilon) label + epsilon prior_dist, or epsilon / classes without one."""
    inputs = {"X": label} if prior_dist is None else {"X": label, "PriorDist": prior_dist}
    return LayerHelper("label_smooth", name).apply("label_smooth", inputs, {"epsilon": epsilon}, dtype=dtype)


def kldiv_loss(x: Variable, target: Variable, reduction: str = "mean", name: str | None = None) -> Variable:
    """Return target (ln target - x) of each element ("none"), or their mean, sum or batchmean."""
    attrs = {"reduction": reduction}
    helper = LayerHelper("kldiv_loss", name)
    return helper.apply("kldiv_loss", {"X": x, "Target": target}, attrs, out="Loss", dtype=x.dtype)


def dice_loss(input: Variable, label: Variable, epsilon: float = 1e-5) -> Variable:
    """Return the mean over the batch of 1 - 2 |input · label| / (|input| + |label| + epsilon).

    Args:
        input: (N, ..., classes) chances.
        label: (N, ..., 1) classes.
        epsilon: keeps empty images from dividing by zero.
    """
    flat = LayerHelper("dice_loss").apply(
        "one_hot", {"X": label}, {"depth": input.shape[-1]}, dtype="float32", stop_gradient=True
    )
    dims = [at for at, _ in enumerate(input.shape) if at]
    shared = reduce_sum(elementwise_mul(input, flat), dim=dims)
    total = elementwise_add(reduce_sum(input, dim=dims), reduce_sum(flat, dim=dims))
    return mean(scale(elementwise_div(scale(shared, 2.0), scale(total, bias=epsilon)), scale=-1.0, bias=1.0))
