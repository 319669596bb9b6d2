# SPDX-License-Identifier: Apache-2.0
"""Cost layers: one value per row. Gradients are summed over the batch; ``coeff`` scales the gradient alone."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.v2 import evaluator as evaluators
from paddle.v2 import model
from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import (
    LayerOutput,
    as_list,
    declare,
    extras_of,
    is_index,
    require_same_size,
    require_size,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig


def _cost(
    kind: str,
    prefix: str,
    inputs: Sequence[LayerOutput],
    name: str | None,
    coeff: float,
    layer_attr: ExtraLayerAttribute | None,
    weight: LayerOutput | None = None,
    **attrs: float,
) -> LayerOutput:
    links = as_list(inputs, prefix)
    if weight is not None:
        require_size(weight, 1, f"weight of {prefix}")
        links = [*links, weight]
    if extras_of(layer_attr).drop_rate:
        raise UsageError(f"cost layer {prefix} does not support drop_rate")
    found: Attrs = {**attrs, "coeff": float(coeff), "weighted": weight is not None}
    config = LayerConfig(
        model.current().auto_name(prefix, name),
        kind,
        1,
        tuple(InputConfig(link.name) for link in links),
        attrs=found,
    )
    return declare(config, links)


def classification_cost(
    input: LayerOutput,
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    evaluator: object = evaluators.classification_error,
    layer_attr: ExtraLayerAttribute | None = None,
    coeff: float = 1.0,
) -> LayerOutput:
    """Declare -ln p[label] of a softmax layer, and the metric classification_error_evaluator.

    Args:
        input: a layer with softmax activation.
        label: an integer data layer.
        weight: of each row, a layer of size 1.
        name: given by the user.
        evaluator: one function of ``paddle.evaluator``, a list of them, or None.
        layer_attr: must not ask for dropout.
        coeff: scales the gradient.
    """
    if input.activation != "softmax":
        raise UsageError(f"classification_cost: input {input.name!r} must have activation Softmax")
    _require_ids(label, "classification_cost")
    cost = _cost("cross_entropy", "cost", [input, label], name, coeff, layer_attr, weight)
    chosen = evaluator if isinstance(evaluator, (list, tuple)) else [evaluator]
    for function in chosen:
        if function is not None:
            if not callable(function):
                raise UsageError(
                    f"classification_cost: evaluator must be a function of paddle.evaluator, got {function!r}"
                )
            function(input=input, label=label, weight=weight, name=f"{function.__name__}_evaluator")
    return cost


def cross_entropy_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    weight: LayerOutput | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare -ln p[label]."""
    _require_ids(label, "cross_entropy_cost")
    return _cost("cross_entropy", "cross_entropy", [input, label], name, coeff, layer_attr, weight)


def cross_entropy_with_selfnorm_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    softmax_selfnorm_alpha: float = 0.1,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare -ln(p[label] / Z) + alpha * ln(Z)^2 for p with row sums Z."""
    _require_ids(label, "cross_entropy_with_selfnorm_cost")
    alpha = float(softmax_selfnorm_alpha)
    prefix = "cross_entropy_with_selfnorm"
    return _cost(prefix, prefix, [input, label], name, coeff, layer_attr, alpha=alpha)


def multi_binary_label_cross_entropy_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the sum over columns of -(t ln p + (1 - t) ln(1 - p)); labels are 0/1 vectors, dense or sparse."""
    require_same_size([input, label], "multi_binary_label_cross_entropy_cost")
    prefix = "multi_binary_label_cross_entropy"
    return _cost(prefix, prefix, [input, label], name, coeff, layer_attr)


def square_error_cost(
    input: LayerOutput,
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the sum over columns of (output - label)^2, without a factor 1/2."""
    require_same_size([input, label], "square_error_cost")
    return _cost("square_error", "square_error_cost", [input, label], name, coeff, layer_attr, weight)


regression_cost = square_error_cost


def sum_cost(
    input: LayerOutput, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare the sum of each row as a cost."""
    return _cost("sum_cost", "sum_cost", [input], name, 1.0, layer_attr)


def rank_cost(
    left: LayerOutput,
    right: LayerOutput,
    label: LayerOutput,
    weight: LayerOutput | None = None,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare ln(1 + e^o) - label * o for o = left - right; label in [0, 1] says how sure left beats right."""
    for side in (left, right):
        require_size(side, 1, "rank_cost")
    if not is_index(label):
        require_size(label, 1, "rank_cost")
    return _cost("rank_cost", "rank_cost", [left, right, label], name, coeff, layer_attr, weight)


def lambda_cost(
    input: LayerOutput,
    score: LayerOutput,
    name: str | None = None,
    NDCG_num: int = 5,
    max_sort_size: int = -1,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the NDCG of each list of documents, which grows as its ranking gets better; gradients are LambdaRank's.

    Args:
        input: a score for each document of a list, size 1.
        score: how relevant each is, size 1.
        name: given by the user.
        NDCG_num: documents at the top that count.
        max_sort_size: documents with the highest relevance that are compared with all others; -1: all.
        layer_attr: must not ask for dropout.
    """
    for side in (input, score):
        require_size(side, 1, "lambda_cost")
    if NDCG_num < 1 or (max_sort_size != -1 and max_sort_size < NDCG_num):
        raise UsageError(
            f"lambda_cost: NDCG_num must be at least 1 and at most max_sort_size, got {NDCG_num} and {max_sort_size}"
        )
    return _cost(
        "lambda_cost",
        "lambda_cost",
        [input, score],
        name,
        1.0,
        layer_attr,
        top=NDCG_num,
        compared=max_sort_size,
    )


def huber_regression_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    delta: float = 1.0,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare r^2 / 2 where |r| <= delta, else delta * (|r| - delta / 2), summed over columns."""
    require_same_size([input, label], "huber_regression_cost")
    if delta <= 0:
        raise UsageError(f"huber_regression_cost: delta must be positive, got {delta}")
    return _cost(
        "huber_regression",
        "huber_regression_cost",
        [input, label],
        name,
        coeff,
        layer_attr,
        delta=float(delta),
    )


def huber_classification_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare, for a = output * (2 label - 1): -4a below -1, (1 - a)^2 up to 1, else 0."""
    require_size(input, 1, "huber_classification_cost")
    _require_ids(label, "huber_classification_cost")
    return _cost("huber_classification", "huber_classification_cost", [input, label], name, coeff, layer_attr)


def smooth_l1_cost(
    input: LayerOutput,
    label: LayerOutput,
    name: str | None = None,
    coeff: float = 1.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare r^2 / 2 where |r| < 1, else |r| - 1/2, summed over columns."""
    require_same_size([input, label], "smooth_l1_cost")
    return _cost("huber_regression", "smooth_l1_cost", [input, label], name, coeff, layer_attr, delta=1.0)


def _require_ids(label: LayerOutput, who: str) -> None:
    if not is_index(label):
        raise UsageError(
            f"{who}: label {label.name!r} must be a data layer of integer_value, got {label.data_type}"
        )
