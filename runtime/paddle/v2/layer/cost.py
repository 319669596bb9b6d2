# SPDX-License-Identifier: Apache-2.0
"""Cost layers, which compute one cost per row; gradients are summed over the batch.

``coeff`` scales only the gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from paddle.graph import Variable
from paddle.v2 import evaluator as evaluators
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.lengths import require_sizes
from paddle.v2.layer.output import (
    LayerAttr,
    LayerOutput,
    as_list,
    is_index,
    require_no_extras,
    require_same_size,
    require_size,
)
from paddle.v2.model import LayerConfig

__all__ = [
    "classification_cost", "cross_entropy_cost", "cross_entropy_with_selfnorm_cost", "huber_classification_cost",
    "huber_regression_cost", "lambda_cost", "multi_binary_label_cross_entropy_cost", "rank_cost", "regression_cost",
    "smooth_l1_cost", "square_error_cost", "sum_cost",
]  # fmt: skip


def _as_cost(name: str, given: dict[str, Any], made: Made) -> Made:
    """Give a cost layer its weight and coefficient, and check its `layer_attr`."""
    inputs, weight = as_list(made.inputs, name), given.pop("weight", None)
    if weight is not None:
        require_size(weight, 1, f"weight of {name}")
        inputs = [*inputs, weight]
    require_no_extras(given.pop("layer_attr"), name)
    attrs = {**made.attrs, "coeff": float(given.pop("coeff", 1.0)), "weighted": weight is not None}
    return made._replace(inputs=inputs, attrs=attrs)


_cost = partial(declares, finish=_as_cost)


def _of_one_size(inputs: Sequence[LayerOutput], who: str) -> Made:
    require_same_size(inputs, who)
    return Made(inputs, 1)


def _emits_cost(
    kind: str, *, together: int | None = None, sequences: tuple[int, ...] = ()
) -> Callable[[Callable[[Emitter, LayerConfig], Variable]], None]:
    """Register a type of cost, (N, 1), which is weighted if the layer has a weight."""

    def register(cost_of: Callable[[Emitter, LayerConfig], Variable]) -> None:
        @emits(kind, together=together, sequences=sequences)
        def emit(emitter: Emitter, config: LayerConfig) -> Variable:
            cost = cost_of(emitter, config)
            if not config.attrs["weighted"]:
                return cost
            return emitter.binary("elementwise_mul", cost, emitter.rows(config.inputs[-1].layer))

    return register


def classification_cost(
    input: LayerOutput,
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    evaluator: object = evaluators.classification_error,
    layer_attr: LayerAttr = None,
    coeff: float = 1.0,
) -> LayerOutput:
    """Declare the cross-entropy cost -ln p[label] of a softmax layer, and by default the metric classification_error.

    Args:
        input: a layer with softmax activation.
        label: an integer data layer.
        weight: a layer of size 1 with the weight of each row.
        evaluator: a function of ``paddle.evaluator``, a list of them, or None.
        layer_attr: may not contain dropout or error clipping.
        coeff: a factor on the gradient.
    """
    if input.activation != "softmax":
        hint = (
            ": input is the prediction, and label the data layer"
            if input.layer_type == "data"
            else ": give it act=Softmax()"
        )
        raise UsageError(f"classification_cost: input {input.name!r} must have activation Softmax{hint}")
    _require_ids(label, "classification_cost")
    cost = _of_classes(input, label, weight, name, coeff, layer_attr)
    for function in evaluator if isinstance(evaluator, (list, tuple)) else [evaluator]:
        if function is not None:
            if not callable(function):
                raise UsageError(
                    f"classification_cost: evaluator must be a function of paddle.evaluator, got {function!r}"
                )
            function(input=input, label=label, weight=weight, name=f"{function.__name__}_evaluator")
    return cost


@_cost("input, label, weight, name, coeff, layer_attr", "cross_entropy", prefix="cost")
def _of_classes(input: LayerOutput, label: LayerOutput) -> Made:
    return Made([input, label], 1)


@_cost("input, label, name=None, coeff=1.0, weight=None, layer_attr=None", "cross_entropy")
def cross_entropy_cost(input: LayerOutput, label: LayerOutput) -> Made:
    """Declare the cross entropy -ln p[label] of rows of probabilities."""
    _require_ids(label, "cross_entropy_cost")
    return Made([input, label], 1)


@_emits_cost("cross_entropy")
def _cross_entropy(emitter: Emitter, config: LayerConfig) -> Variable:
    name, label = config.inputs[0].layer, emitter.label(config.inputs[1].layer)
    logits = emitter.logits(name)
    if logits is None:
        return _entropy(emitter, emitter.rows(name), label)
    inputs, outs = {"Logits": logits, "Label": label}, ["Softmax", "Loss"]
    probabilities, cost = emitter.ops("softmax_with_cross_entropy", inputs, {"soft_label": False}, outs)
    emitter.set_probabilities(name, probabilities)
    return cost


def _entropy(emitter: Emitter, value: Variable, label: Variable) -> Variable:
    return emitter.op("cross_entropy", {"X": value, "Label": label}, {"soft_label": False}, "Y")


@_cost(
    "input, label, name=None, coeff=1.0, softmax_selfnorm_alpha=0.1, layer_attr=None",
    "cross_entropy_with_selfnorm",
)
def cross_entropy_with_selfnorm_cost(
    input: LayerOutput, label: LayerOutput, softmax_selfnorm_alpha: float
) -> Made:
    """Declare the self-normalized cross entropy -ln(p[label] / Z) + alpha * ln(Z)^2, with Z the sum of the row p."""
    _require_ids(label, "cross_entropy_with_selfnorm_cost")
    return Made([input, label], 1, {"alpha": float(softmax_selfnorm_alpha)})


@_emits_cost("cross_entropy_with_selfnorm")
def _cross_entropy_with_selfnorm(emitter: Emitter, config: LayerConfig) -> Variable:
    value, label = emitter.first(config), emitter.label(config.inputs[1].layer)
    log_z = emitter.unary("log", emitter.row_sum(value))
    penalty = emitter.unary("scale", emitter.unary("square", log_z), scale=config.attrs["alpha"])
    return emitter.add_all([_entropy(emitter, value, label), log_z, penalty])


@_cost("input, label, name=None, coeff=1.0, layer_attr=None", "multi_binary_label_cross_entropy")
def multi_binary_label_cross_entropy_cost(input: LayerOutput, label: LayerOutput) -> Made:
    """Declare the binary cross entropy -(t ln p + (1 - t) ln(1 - p)), summed over columns; labels are 0/1 vectors."""
    return _of_one_size([input, label], "multi_binary_label_cross_entropy_cost")


@_emits_cost("multi_binary_label_cross_entropy")
def _multi_binary(emitter: Emitter, config: LayerConfig) -> Variable:
    name, label = config.inputs[0].layer, emitter.dense(config.inputs[1].layer)
    before = emitter.before_sigmoid(name)
    if before is not None:
        return emitter.row_sum(_logistic(emitter, before, label))
    value = emitter.rows(name)
    sides = (value, label), (_one_minus(emitter, value), _one_minus(emitter, label))
    terms = [emitter.binary("elementwise_mul", emitter.unary("log", p), t) for p, t in sides]
    return emitter.row_sum(emitter.unary("scale", emitter.add_all(terms), scale=-1.0))


def _logistic(emitter: Emitter, value: Variable, label: Variable) -> Variable:
    return emitter.op("sigmoid_cross_entropy_with_logits", {"X": value, "Label": label})


def _one_minus(emitter: Emitter, value: Variable) -> Variable:
    return emitter.unary("scale", value, scale=-1.0, bias=1.0)


@_cost(
    "input, label, weight=None, name=None, coeff=1.0, layer_attr=None",
    "square_error",
    prefix="square_error_cost",
)
def square_error_cost(input: LayerOutput, label: LayerOutput) -> Made:
    """Declare the squared error (output - label)^2, summed over columns, without a factor of 1/2."""
    return _of_one_size([input, label], "square_error_cost")


regression_cost = square_error_cost


@_emits_cost("square_error")
def _square_error(emitter: Emitter, config: LayerConfig) -> Variable:
    squares = emitter.unary("square", _difference(emitter, config))
    return squares if squares.shape[-1] == 1 else emitter.row_sum(squares)


def _difference(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.binary("elementwise_sub", *(emitter.rows(link.layer) for link in config.inputs[:2]))


@_cost("input, name=None, layer_attr=None")
def sum_cost(input: LayerOutput) -> Made:
    """Declare a cost that is the sum of each input row."""
    return Made([input], 1)


@_emits_cost("sum_cost", together=0)
def _sum_cost(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.row_sum(emitter.first(config))


@_cost("left, right, label, weight=None, name=None, coeff=1.0, layer_attr=None")
def rank_cost(left: LayerOutput, right: LayerOutput, label: LayerOutput) -> Made:
    """Declare the RankNet cost ln(1 + e^o) - label * o with o = left - right (Burges et al., 2005).

    The label is the probability, in [0, 1], that left is better.
    """
    for side in (left, right) if is_index(label) else (left, right, label):
        require_size(side, 1, "rank_cost")
    return Made([left, right, label], 1)


@_emits_cost("rank_cost")
def _rank_cost(emitter: Emitter, config: LayerConfig) -> Variable:
    label = emitter.numbers(config.inputs[2].layer)
    return _logistic(emitter, _difference(emitter, config), label)


@_cost("input, score, name=None, NDCG_num=5, max_sort_size=-1, layer_attr=None")
def lambda_cost(input: LayerOutput, score: LayerOutput, NDCG_num: int, max_sort_size: int) -> Made:
    """Declare a LambdaRank cost: the value is the NDCG of each list of documents, the gradient is LambdaRank's.

    Args:
        input: the score of each document of a list, size 1.
        score: the relevance of each document, size 1.
        NDCG_num: the number of top documents that count.
        max_sort_size: the number of most relevant documents that are compared with all others; -1 means all.
        layer_attr: may not contain dropout or error clipping.
    """
    if NDCG_num < 1 or (max_sort_size != -1 and max_sort_size < NDCG_num):
        raise UsageError(
            f"lambda_cost: NDCG_num must be at least 1 and at most max_sort_size, got {NDCG_num} and {max_sort_size}"
        )
    return Made([input, score], 1, {"top": NDCG_num, "compared": max_sort_size})


@_emits_cost("lambda_cost", sequences=(0, 1))
def _lambda_cost(emitter: Emitter, config: LayerConfig) -> Variable:
    require_sizes(emitter.layers, config, 1, 1)
    score, relevance = emitter.inputs(config)
    attrs = {key: config.attrs[key] for key in ("top", "compared")}
    return emitter.op("lambda_rank", {"X": score, "Label": relevance}, attrs)


@_cost(
    "input, label, name=None, delta=1.0, coeff=1.0, layer_attr=None",
    "huber_regression",
    prefix="huber_regression_cost",
)
def huber_regression_cost(input: LayerOutput, label: LayerOutput, delta: float) -> Made:
    """Declare the Huber cost, summed over columns: r^2 / 2 where |r| <= delta, otherwise delta * (|r| - delta / 2)."""
    if delta <= 0:
        raise UsageError(f"huber_regression_cost: delta must be positive, got {delta}")
    return Made([input, label], 1, {"delta": float(delta)})


@_cost("input, label, name=None, coeff=1.0, layer_attr=None", "huber_regression", prefix="smooth_l1_cost")
def smooth_l1_cost(input: LayerOutput, label: LayerOutput) -> Made:
    """Declare the smooth L1 cost of r = output - label, summed over columns: r^2 / 2 if |r| < 1, else |r| - 1/2."""
    return Made([input, label], 1, {"delta": 1.0})


@_emits_cost("huber_regression")
def _huber_regression(emitter: Emitter, config: LayerConfig) -> Variable:
    size = emitter.layers[config.inputs[0].layer].size
    require_sizes(emitter.layers, config, size, size)
    value, label = emitter.inputs(config)
    sides = {"X": emitter.reshape(value, [-1, 1]), "Y": emitter.reshape(label, [-1, 1])}
    cost = emitter.ops("huber_loss", sides, {"delta": config.attrs["delta"]}, ["Out", "Residual"])[0]
    return emitter.row_sum(emitter.reshape(cost, [-1, value.shape[1]]))


@_cost(
    "input, label, name=None, coeff=1.0, layer_attr=None",
    "huber_classification",
    prefix="huber_classification_cost",
)
def huber_classification_cost(input: LayerOutput, label: LayerOutput) -> Made:
    """Declare the modified Huber cost of a = output * (2 label - 1): -4a if a < -1, (1 - a)^2 if a <= 1, else 0."""
    require_size(input, 1, "huber_classification_cost")
    _require_ids(label, "huber_classification_cost")
    return Made([input, label], 1)


@_emits_cost("huber_classification")
def _huber_classification(emitter: Emitter, config: LayerConfig) -> Variable:
    label = emitter.unary("one_hot", emitter.label(config.inputs[1].layer), depth=2)
    sign = emitter.unary("scale", emitter.columns(label, 1, 2), scale=2.0, bias=-1.0)
    a = emitter.binary("elementwise_mul", emitter.first(config), sign)
    margin = emitter.unary("clip", _one_minus(emitter, a), min=0.0, max=2.0)
    beyond = emitter.unary("relu", emitter.unary("scale", a, scale=-1.0, bias=-1.0))
    return emitter.add_all([emitter.unary("square", margin), emitter.unary("scale", beyond, scale=4.0)])


def _require_ids(label: LayerOutput, who: str) -> None:
    if not is_index(label):
        raise UsageError(
            f"{who}: label {label.name!r} must be a data layer of type integer_value, got {label.data_type}"
        )
