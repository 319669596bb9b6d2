# SPDX-License-Identifier: Apache-2.0
"""Two spellings of one network: values and gradients are equal bit by bit, except for LSTM and GRU by steps."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.trainer.config_parser import parse_config
from paddle.v2 import model
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from paddle.v2.training.feeder import DataFeeder
from paddle.v2.training.gradient_machine import GradientMachine

layer, act, data_type, networks = paddle.layer, paddle.activation, paddle.data_type, paddle.networks
Make = Callable[[LayerOutput], Any]
rng = np.random.default_rng(3)
ROWS = [(row,) for row in rng.normal(size=(5, 6))]
SEQUENCES = [(rng.normal(size=(length, 6)),) for length in (4, 1, 7, 3)]
BIAS, PEEPHOLES = rng.normal(size=(1, 16)).astype(np.float32), rng.normal(size=(1, 12)).astype(np.float32)


def named(name: str) -> Any:
    return paddle.attr.Param(name=name, initial_std=0.3, initial_mean=0.0)


def fixed(value: Any) -> Any:
    return paddle.attr.Param(initializer=lambda name: value)


def linear(x: LayerOutput, size: int, name: str) -> LayerOutput:
    return layer.fc(x, size, act=act.Linear(), bias_attr=False, param_attr=named(name))


def full(x: LayerOutput, name: str) -> Any:
    return layer.full_matrix_projection(x, param_attr=named(name))


def step(x: LayerOutput) -> LayerOutput:
    terms = [layer.identity_projection(x), full(layer.memory("state", 4), "w")]
    return layer.mixed(4, name="state", input=terms, act=act.Tanh(), bias_attr=named("b"))


def learnt(name: str = "gru") -> dict[str, Any]:
    return {f"{name}_param_attr": named("w"), f"{name}_bias_attr": named("b")}


OF_ROWS: dict[str, tuple[Make, Make]] = {
    "fc and mixed": (
        lambda x: layer.fc(x, 5, param_attr=named("w"), bias_attr=named("b")),
        lambda x: layer.mixed(5, input=full(x, "w"), act=act.Tanh(), bias_attr=named("b")),
    ),
    "fc of two and mixed": (
        lambda x: layer.fc([x, linear(x, 4, "q")], 5, param_attr=[named("w"), named("v")], bias_attr=False),
        lambda x: layer.mixed(5, input=[full(x, "w"), full(linear(x, 4, "q"), "v")], act=act.Tanh()),
    ),
    "addto and mixed": (
        lambda x: layer.addto([linear(x, 5, "w"), linear(x, 5, "v")], bias_attr=named("b")),
        lambda x: layer.mixed(5, input=[full(x, "w"), full(x, "v")], bias_attr=named("b")),
    ),
}
OF_SEQUENCES: dict[str, tuple[Make, Make]] = {
    "recurrent and its group": (
        lambda x: layer.recurrent(linear(x, 4, "in"), param_attr=named("w"), bias_attr=named("b")),
        lambda x: layer.recurrent_group(step, linear(x, 4, "in")),
    ),
    "simple_gru and simple_gru2": (
        lambda x: networks.simple_gru2(x, 4, mixed_param_attr=named("in"), mixed_bias_attr=False, **learnt()),
        lambda x: layer.grumemory(linear(x, 12, "in"), param_attr=named("w"), bias_attr=named("b")),
    ),
    "sequence_conv_pool": (
        lambda x: networks.sequence_conv_pool(x, 3, 5, fc_param_attr=named("w"), fc_bias_attr=named("b")),
        lambda x: layer.pooling(
            layer.fc(
                layer.mixed(input=layer.context_projection(x, 3)),
                5,
                param_attr=named("w"),
                bias_attr=named("b"),
            )
        ),
    ),
}
BY_STEPS: dict[str, tuple[Make, Make]] = {
    "gru": (
        lambda x: layer.grumemory(linear(x, 12, "in"), param_attr=named("w"), bias_attr=named("b")),
        lambda x: networks.gru_group(linear(x, 12, "in"), size=4, **learnt()),
    ),
    "lstm": (
        lambda x: layer.lstmemory(
            linear(x, 16, "in"), param_attr=named("w"), bias_attr=fixed(np.hstack([BIAS, PEEPHOLES]))
        ),
        lambda x: networks.lstmemory_group(
            linear(x, 16, "in"),
            size=4,
            param_attr=named("w"),
            lstm_bias_attr=fixed(PEEPHOLES),
            input_proj_bias_attr=fixed(BIAS),
        ),
    ),
}


def trained(make: Make, samples: list[Any]) -> dict[str, np.ndarray]:
    """Return the values of a network, and the gradients of its parameters by their names."""
    with model.fresh():
        kind = data_type.dense_vector_sequence if samples is SEQUENCES else data_type.dense_vector
        out = make(layer.data("x", kind(6)))
        cost = layer.sum_cost(layer.fc(out, 1, act.Sigmoid(), param_attr=named("last"), bias_attr=False))
        network = Topology(cost).network
        machine = GradientMachine(network, paddle.parameters.create(cost), [cost.name])
        done = machine.train(DataFeeder(network.data_types)(samples), 0, [out.name])
        value = done.values[out.name]
        whole: Any = {"": np.asarray(getattr(value, "data", value)), **done.gradients}
        return {name: np.asarray(each) for name, each in whole.items()}


@pytest.mark.parametrize(
    ("pair", "samples"),
    [
        *((pair, ROWS) for pair in OF_ROWS.values()),
        *((pair, SEQUENCES) for pair in OF_SEQUENCES.values()),
    ],
    ids=[*OF_ROWS, *OF_SEQUENCES],
)
def test_two_spellings_have_the_same_bits(pair: tuple[Make, Make], samples: list[Any]) -> None:
    first, second = (trained(make, samples) for make in pair)
    assert first.keys() == second.keys()
    for name, value in first.items():
        np.testing.assert_array_equal(np.ravel(value), np.ravel(second[name]), name)


@pytest.mark.parametrize("name", BY_STEPS)
def test_steps_in_a_group_differ_from_the_layer_in_their_last_bits_only(name: str) -> None:
    first, second = (trained(make, SEQUENCES) for make in BY_STEPS[name])
    for key in {"", "in", "w", "last"}:
        np.testing.assert_allclose(np.ravel(first[key]), np.ravel(second[key]), rtol=2e-6, atol=5e-7)


def test_a_configuration_file_declares_the_network_of_a_program() -> None:
    def configuration() -> None:
        v1: Any = importlib.import_module("paddle.trainer_config_helpers")
        v1.settings(batch_size=4, learning_rate=0.1)
        words = v1.embedding_layer(input=v1.data_layer(name="words", size=9), size=4)
        read = v1.simple_lstm(input=words, size=4)
        out = v1.fc_layer(input=v1.last_seq(input=read), size=3, act=v1.SoftmaxActivation())
        v1.outputs(v1.cross_entropy(input=out, label=v1.data_layer(name="label", size=3)))

    with model.fresh():
        words = layer.embedding(input=layer.data("words", data_type.integer_value_sequence(9)), size=4)
        read = networks.simple_lstm(input=words, size=4)
        out = layer.fc(input=layer.last_seq(input=read), size=3, act=act.Softmax())
        cost = layer.cross_entropy_cost(input=out, label=layer.data("label", data_type.integer_value(3)))
        program = Topology(cost).network
    read_from_file = parse_config(configuration).network
    assert read_from_file.parameters == program.parameters
    of_file = [(each.name, each.type, each.inputs, each.attrs) for each in read_from_file.layers.values()]
    assert of_file == [(each.name, each.type, each.inputs, each.attrs) for each in program.layers.values()]
