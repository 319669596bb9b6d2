# SPDX-License-Identifier: Apache-2.0
"""Values of cost layers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from paddle.v2.training.gradient_machine import GradientMachine
from tests.runtime.v2.layer_cases import (
    ACTIVATIONS,
    OTHER,
    ROWS,
    WEIGHT,
    act,
    data_type,
    dense,
    layer,
    sigmoid,
    values,
)


def softmax_cost(p: np.ndarray, ids: list[int]) -> np.ndarray:
    return np.asarray(-np.log(p[np.arange(len(ids)), ids])[:, None])


IDS = [2, 0, 3]
P = ACTIVATIONS["Softmax"](ROWS)
RAW = np.abs(ROWS) + 0.1
BITS = (OTHER > 0).astype(np.float32)
R = np.abs(ROWS - OTHER)
A = WEIGHT * np.array([[1], [-1], [1]])


COSTS: dict[str, tuple[Callable[..., LayerOutput], np.ndarray, list[object]]] = {
    "classification": (
        lambda: layer.classification_cost(layer.addto(dense("x", 4), act.Softmax()), ids4()),
        softmax_cost(P, IDS),
        [ROWS, IDS],
    ),
    "classification, weighted": (
        lambda: layer.classification_cost(layer.addto(dense("x", 4), act.Softmax()), ids4(), dense("w", 1)),
        softmax_cost(P, IDS) * WEIGHT,
        [ROWS, IDS, WEIGHT],
    ),
    "cross_entropy of numbers": (
        lambda: layer.cross_entropy_cost(dense("x", 4), ids4()),
        softmax_cost(RAW, IDS),
        [RAW, IDS],
    ),
    "selfnorm": (
        lambda: layer.cross_entropy_with_selfnorm_cost(dense("x", 4), ids4(), softmax_selfnorm_alpha=0.3),
        softmax_cost(RAW / RAW.sum(1, keepdims=True), IDS) + 0.3 * np.log(RAW.sum(1, keepdims=True)) ** 2,
        [RAW, IDS],
    ),
    "multi binary behind a sigmoid": (
        lambda: layer.multi_binary_label_cross_entropy_cost(
            layer.addto(dense("x", 4), act.Sigmoid()), dense("y", 4)
        ),
        -(BITS * np.log(sigmoid(ROWS)) + (1 - BITS) * np.log(1 - sigmoid(ROWS))).sum(1, keepdims=True),
        [ROWS, BITS],
    ),
    "multi binary": (
        lambda: layer.multi_binary_label_cross_entropy_cost(dense("x", 4), dense("y", 4)),
        -(BITS * np.log(P) + (1 - BITS) * np.log(1 - P)).sum(1, keepdims=True),
        [P, BITS],
    ),
    "square_error": (
        lambda: layer.square_error_cost(dense("x", 4), dense("y", 4)),
        ((ROWS - OTHER) ** 2).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "sum": (lambda: layer.sum_cost(dense("x", 4)), ROWS.sum(1, keepdims=True), [ROWS]),
    "rank": (
        lambda: layer.rank_cost(dense("l", 1), dense("r", 1), dense("y", 1)),
        np.log1p(np.exp(ROWS[:, :1] - OTHER[:, :1])) - BITS[:, :1] * (ROWS[:, :1] - OTHER[:, :1]),
        [ROWS[:, :1], OTHER[:, :1], BITS[:, :1]],
    ),
    "huber_regression": (
        lambda: layer.huber_regression_cost(dense("x", 4), dense("y", 4), delta=0.7),
        np.where(R <= 0.7, R**2 / 2, 0.7 * (R - 0.35)).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "smooth_l1": (
        lambda: layer.smooth_l1_cost(dense("x", 4), dense("y", 4)),
        np.where(R < 1, R**2 / 2, R - 0.5).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "huber_classification": (
        lambda: layer.huber_classification_cost(dense("x", 1), layer.data("l", data_type.integer_value(2))),
        np.where(A < -1, -4 * A, np.where(A < 1, (1 - A) ** 2, 0)),
        [WEIGHT, [1, 0, 1]],
    ),
}


def ids4() -> LayerOutput:
    return layer.data("ids", data_type.integer_value(4))


@pytest.mark.parametrize("name", COSTS)
def test_costs_have_one_value_per_row(name: str) -> None:
    declare, want, columns = COSTS[name]
    np.testing.assert_allclose(values(declare(), *columns), want, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]


def test_probabilities_next_to_their_cost_are_the_softmax() -> None:
    probabilities = layer.addto(dense("x", 4), act.Softmax(), name="p")
    cost = layer.classification_cost(probabilities, ids4())
    machine = GradientMachine(Topology(cost).network, paddle.parameters.create(cost), [cost.name])
    step = machine.test({"x": ROWS, "ids": np.array([IDS]).T}, ["p"])
    np.testing.assert_allclose(step.values["p"], P, rtol=1e-5)
    assert step.cost == pytest.approx(softmax_cost(P, IDS).sum(), rel=1e-5)
