# SPDX-License-Identifier: Apache-2.0
"""Costs, one number a row unless said otherwise."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.variable import Variable

__all__ = [
    "cross_entropy",
    "hinge_loss",
    "huber_loss",
    "log_loss",
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
    """Return the cross entropy of softmax(logits), and that softmax with return_softmax."""
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
