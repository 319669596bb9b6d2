# SPDX-License-Identifier: Apache-2.0
"""Gradients of costs, and of layers that need inputs of their own, beside differences of the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import act, data_type, dense, layer

rng = np.random.default_rng(21)
ROWS = rng.normal(size=(4, 3))
LINEAR = act.Linear()


def label(classes: int = 3) -> LayerOutput:
    return layer.data("label", data_type.integer_value(classes))


def target(size: int) -> LayerOutput:
    return dense("target", size)


CLASSES, BITS, NUMBERS = [0, 2, 1, 2], rng.integers(0, 2, (4, 3)).astype(float), rng.normal(size=(4, 3))
Case = tuple[Callable[[LayerOutput], LayerOutput], Any]
COSTS: dict[str, Case] = {
    "classification": (lambda x: layer.classification_cost(layer.fc(x, 3, act.Softmax()), label()), CLASSES),
    "cross entropy": (lambda x: layer.cross_entropy_cost(layer.fc(x, 3, act.Sigmoid()), label()), CLASSES),
    "self-normalised": (
        lambda x: layer.cross_entropy_with_selfnorm_cost(layer.fc(x, 3, act.Exp()), label()),
        CLASSES,
    ),
    "many binary labels": (
        lambda x: layer.multi_binary_label_cross_entropy_cost(layer.fc(x, 3, act.Sigmoid()), target(3)),
        BITS,
    ),
    "square error": (lambda x: layer.square_error_cost(layer.fc(x, 3), target(3)), NUMBERS),
    "smooth L1": (lambda x: layer.smooth_l1_cost(layer.fc(x, 3, LINEAR), target(3)), 0.1 * NUMBERS),
    "huber regression": (
        lambda x: layer.huber_regression_cost(layer.fc(x, 3, LINEAR), target(3), delta=9.0),
        NUMBERS,
    ),
    "huber classification": (
        lambda x: layer.huber_classification_cost(layer.fc(x, 1, act.Tanh()), label(2)),
        [0, 1, 1, 0],
    ),
    "rank": (
        lambda x: layer.rank_cost(layer.fc(x, 1), layer.fc(x, 1), target(1)),
        [[1.0], [0.0], [0.5], [1.0]],
    ),
    "hsigmoid": (lambda x: layer.hsigmoid(layer.fc(x, 5), label(6), num_classes=6), [5, 0, 3, 2]),
    "nce": (lambda x: layer.nce(layer.fc(x, 5), label(6), num_classes=6, num_neg_samples=3), [5, 0, 3, 2]),
}


@pytest.mark.parametrize("name", COSTS)
def test_gradients_of_costs(name: str) -> None:
    declare, labels = COSTS[name]
    cost = declare(layer.fc(dense("source", 3), 4, act.Tanh()))
    check_closely(cost, [*zip(ROWS, labels, strict=True)])


OF_SEQUENCES: dict[str, Callable[[LayerOutput, LayerOutput], LayerOutput]] = {
    "crf": lambda x, tags: layer.crf(layer.fc(x, 4, LINEAR), tags, size=4),
    "warp_ctc": lambda x, tags: layer.warp_ctc(layer.fc(x, 5, LINEAR), tags, size=5, blank=4),
    "ctc": lambda x, tags: layer.ctc(layer.fc(x, 5, act.Softmax()), tags, size=5),
    "recurrent": lambda x, tags: layer.sum_cost(layer.recurrent(layer.fc(x, 4), act=act.Tanh())),
    "row_conv": lambda x, tags: layer.sum_cost(layer.row_conv(layer.fc(x, 4), 2, act.Tanh())),
    "sub_seq": lambda x, tags: layer.sum_cost(layer.fc(layer.sub_seq(layer.fc(x, 4), *part()), 1)),
}


def part() -> list[LayerOutput]:
    return [layer.data(name, data_type.integer_value_sequence(9)) for name in ("offset", "size")]


@pytest.mark.parametrize("name", OF_SEQUENCES)
def test_gradients_of_sequences(name: str) -> None:
    source = layer.data("source", data_type.dense_vector_sequence(3))
    tags = layer.data("tags", data_type.integer_value_sequence(4))
    cost = OF_SEQUENCES[name](layer.fc(source, 5, act.Tanh()), tags)
    rows = rng.normal(size=(7, 3))
    given = {
        "source": [rows[:4], rows[4:]],
        "tags": [[1, 0, 3, 3], [2, 2, 0]] if name == "crf" else [[1, 3], [2]],
        "offset": [[1], [0]],
        "size": [[2], [3]],
    }
    names = [each for each, _ in paddle.topology.Topology(cost).data_type()]
    check_closely(cost, [*zip(*(given[each] for each in names), strict=True)])


OF_ROWS: dict[str, Case] = {
    "multiplex": (lambda x: layer.multiplex([label(2), layer.fc(x, 3), layer.fc(x, 3)]), [0, 1, 1, 0]),
    "power": (lambda x: layer.power(layer.fc(x, 3, act.Exp()), target(1)), [[2.0], [0.5], [1.0], [3.0]]),
    "factorization_machine": (
        lambda x: layer.factorization_machine(layer.concat([x, target(2)]), 3),
        rng.normal(size=(4, 2)),
    ),
    "scale_sub_region": (
        lambda x: layer.scale_sub_region(pixels(x), target(6), 0.3),
        [[1, 1, 1, 2, 2, 3]] * 4,
    ),
    "block_expand": (lambda x: layer.pooling(blocks(x), paddle.pooling.Sum()), None),
}


def pixels(x: LayerOutput) -> LayerOutput:
    return layer.img_conv(layer.fc(x, 9), 1, 2, num_channels=1, act=LINEAR)


def blocks(x: LayerOutput) -> LayerOutput:
    return layer.block_expand(pixels(x), 2, 2, 1, 1, num_channels=2)


@pytest.mark.parametrize("name", OF_ROWS)
def test_gradients_of_layers_with_inputs_of_their_own(name: str) -> None:
    declare, others = OF_ROWS[name]
    source = dense("source", 3)
    out = declare(layer.fc(source, 4, act.Tanh()))
    samples = [(row,) for row in ROWS] if others is None else [*zip(ROWS, others, strict=True)]
    check_closely(layer.sum_cost(layer.fc(out, 1, act.Tanh(), bias_attr=False)), samples)
