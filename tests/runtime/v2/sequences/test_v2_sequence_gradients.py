# SPDX-License-Identifier: Apache-2.0
"""Gradients of layers over sequences whose rows are trained themselves, beside differences of the cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import networks
from paddle.v2.layer.output import LayerOutput
from paddle.v2.network import Network
from paddle.v2.topology import Topology
from paddle.v2.training.gradient_machine import GradientMachine
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import act, attr, data_type, layer

WORDS, SIZE = 9, 4
SAMPLES: list[tuple[list[int], list[int]]] = [([1, 2, 3, 1], [0, 1]), ([4], [2]), ([5, 6], [1, 0])]


def fc_step(row: LayerOutput) -> LayerOutput:
    before = layer.memory(name="state", size=SIZE)
    return layer.fc([row, before], SIZE, act.Tanh(), name="state")


def gru_step(row: LayerOutput) -> LayerOutput:
    before = layer.memory(name="state", size=SIZE)
    return layer.gru_step(layer.fc(row, 3 * SIZE, act.Linear()), before, name="state")


def attending(sequence: LayerOutput) -> Any:
    first = layer.first_seq(sequence)

    def step(all_rows: LayerOutput, row: LayerOutput) -> LayerOutput:
        before = layer.memory(name="state", size=SIZE, boot_layer=first)
        seen = networks.simple_attention(all_rows, layer.fc(all_rows, SIZE), before)
        return layer.fc([row, seen, before], SIZE, act.Tanh(), name="state")

    return layer.recurrent_group(step, [layer.StaticInput(sequence, is_seq=True), sequence])


LAYERS: dict[str, Callable[[LayerOutput], Any]] = {
    "group of fc": lambda rows: layer.recurrent_group(fc_step, rows),
    "group of fc, backwards": lambda rows: layer.recurrent_group(fc_step, rows, reverse=True),
    "group of gru": lambda rows: layer.recurrent_group(gru_step, rows),
    "group with attention": attending,
    "recurrent": lambda rows: layer.recurrent(rows),
    "lstmemory": lambda rows: layer.lstmemory(layer.fc(rows, 4 * SIZE)),
    "grumemory": lambda rows: layer.grumemory(layer.fc(rows, 3 * SIZE)),
    "simple_lstm": lambda rows: networks.simple_lstm(rows, SIZE),
    "simple_gru": lambda rows: networks.simple_gru(rows, SIZE),
    "simple_gru2": lambda rows: networks.simple_gru2(rows, SIZE),
    "bidirectional_lstm": lambda rows: networks.bidirectional_lstm(rows, SIZE, return_seq=True),
    "bidirectional_gru": lambda rows: networks.bidirectional_gru(rows, SIZE, return_seq=True),
    "pooling": lambda rows: layer.expand(layer.pooling(rows, paddle.pooling.Avg()), rows),
    "expand": lambda rows: layer.expand(layer.last_seq(rows), rows),
    "seq_concat": lambda rows: layer.seq_concat(rows, rows),
    "seq_reshape": lambda rows: layer.seq_reshape(rows, SIZE // 2),
    "context": lambda rows: layer.mixed(3 * SIZE, [layer.context_projection(rows, 3)]),
    "context with learned rows": lambda rows: layer.mixed(
        3 * SIZE, [layer.context_projection(rows, 3, padding_attr=True)]
    ),
    "error clipping that clips nothing": lambda rows: layer.fc(
        rows, SIZE, layer_attr=attr.Extra(error_clipping_threshold=1e6)
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_over_trained_rows_agree_with_differences_of_the_cost(name: str) -> None:
    rows = layer.embedding(layer.data("words", data_type.integer_value_sequence(WORDS)), SIZE)
    end = layer.fc(layer.pooling(LAYERS[name](rows), paddle.pooling.Sum()), 1, act.Tanh(), name="end")
    check_closely(layer.sum_cost(end), [(words,) for words, _ in SAMPLES])


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_over_rows_of_a_data_layer_agree_with_differences_of_the_cost(name: str) -> None:
    rows = layer.data("rows", data_type.dense_vector_sequence(SIZE))
    end = layer.fc(layer.pooling(LAYERS[name](rows), paddle.pooling.Sum()), 1, act.Tanh(), name="end")
    values = np.random.default_rng(3).normal(size=(6, SIZE)).astype(np.float32)
    check_closely(layer.sum_cost(end), [(values[:3],), (values[3:4],), (values[4:],)])


@pytest.mark.parametrize("activation", [act.Softmax(), act.Sigmoid()])
def test_gradients_of_ctc_over_whatever_gives_probabilities(activation: Any) -> None:
    rows = layer.embedding(layer.data("words", data_type.integer_value_sequence(WORDS)), SIZE)
    label = layer.data("label", data_type.integer_value_sequence(SIZE - 1))
    chances = layer.fc(rows, SIZE, activation, name="chances")
    check_closely(layer.ctc(chances, label), [([1, 2, 3, 1], [0, 1]), ([4, 4], [2])])


def test_error_clipping_cuts_what_goes_back_from_the_output_of_a_layer() -> None:
    x = layer.data("x", data_type.dense_vector(2))
    one = attr.Param(initial_mean=1.0, initial_std=0.0)
    extra = attr.Extra(error_clipping_threshold=0.25)
    hidden = layer.fc(x, 1, act.Linear(), "hidden", one, False, extra)
    cost = layer.sum_cost(layer.fc(hidden, 1, act.Linear(), "out", one, False))
    machine = GradientMachine(Topology(cost).network, paddle.parameters.create(cost), [cost.name])
    found = machine.train({"x": np.array([[1.0, 2.0]], np.float32)}, 0).gradients
    gradients = {name: np.asarray(value, np.float32).ravel().tolist() for name, value in found.items()}
    assert gradients == {"_hidden.w0": [0.25, 0.5], "_out.w0": [3.0]}
    again = Network.from_json(Topology(cost).network.to_json())
    assert again.layers["hidden"].extras.error_clipping_threshold == 0.25


def test_labels_of_many_binary_classes_may_be_sparse() -> None:
    x = layer.data("x", data_type.dense_vector(3))
    dense = layer.data("dense", data_type.dense_vector(4))
    sparse = layer.data("sparse", data_type.sparse_binary_vector(4))
    chances = layer.fc(x, 4, act.Sigmoid())
    costs = [layer.multi_binary_label_cross_entropy_cost(chances, label) for label in (dense, sparse)]
    samples = [([1.0, -1.0, 0.5], [1, 0, 0, 1], [0, 3]), ([0.0, 2.0, 1.0], [0, 0, 0, 0], [])]
    of_dense, of_sparse = np.split(np.ravel(paddle.infer(costs, paddle.parameters.create(costs), samples)), 2)
    np.testing.assert_allclose(of_sparse, of_dense, rtol=1e-6)
