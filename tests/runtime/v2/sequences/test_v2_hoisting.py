# SPDX-License-Identifier: Apache-2.0
"""What of a group's step runs once for all steps, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import activation, attr, data_type, layer
from paddle.v2.layer.emitter import Emitter
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from tests.runtime.v2.sequences.nested_cases import check_gradients, found, group, groups

_WORDS, _SIZE = 9, 4
_SAMPLES = [([1, 2, 3],), ([4],), ([5, 6],)]


def _rows() -> LayerOutput:
    return layer.embedding(layer.data("words", data_type.integer_value_sequence(_WORDS)), _SIZE)


def _plain(row: LayerOutput) -> LayerOutput:
    before = layer.memory(name="state", size=_SIZE)
    return layer.fc([row, before], _SIZE, activation.Tanh(), name="state")


def _scoring(row: LayerOutput) -> LayerOutput:
    return layer.fc(_plain(layer.fc(row, _SIZE, activation.Relu())), _WORDS, activation.Softmax())


def _shared(row: LayerOutput) -> LayerOutput:
    """What a state needs stays, although it is put out as well."""
    state = _plain(row)
    seen = layer.fc(state, _SIZE, activation.Sigmoid(), name="seen")
    layer.addto([seen, layer.memory(name="sum", size=_SIZE)], name="sum")
    return layer.fc([seen, row], _SIZE)


def _handed_on(row: LayerOutput) -> LayerOutput:
    """The row before, which no operator computes."""
    layer.slope_intercept(row, slope=2.0, name="row")
    return layer.memory(name="row", size=_SIZE)


def _without_state(row: LayerOutput) -> LayerOutput:
    return layer.fc(layer.fc(row, _SIZE), _SIZE)


_STEPS: dict[str, tuple[Callable[[LayerOutput], LayerOutput], list[str] | None]] = {
    "plain": (_plain, ["mul", "sum", "elementwise_add", "tanh"]),
    "scores": (_scoring, ["mul", "sum", "elementwise_add", "tanh"]),
    "shared": (
        _shared,
        ["mul", "sum", "elementwise_add", "tanh", "mul", "elementwise_add", "sigmoid", "sum"],
    ),
    "handed on": (_handed_on, ["scale", "scale"]),
    "no state": (_without_state, None),
}


@pytest.mark.parametrize("name", _STEPS)
def test_only_what_waits_for_a_state_runs_step_by_step(name: str) -> None:
    step, left = _STEPS[name]
    out = group(step, _rows())
    network = Topology(out).network
    program = Emitter(network.layers, network.parameters, is_test=False).program
    groups = [op for op in program.global_block().ops if op.type == "dynamic_recurrent"]
    if left is None:
        assert groups == []
    else:
        (body,) = [program.blocks[int(str(op.attrs["sub_block"]))] for op in groups]
        assert [op.type for op in body.ops] == left


@pytest.mark.parametrize("name", _STEPS)
@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_go_through_what_moved(name: str, reverse: bool) -> None:
    out = group(_STEPS[name][0], _rows(), reverse)
    end = layer.fc(layer.pooling(out, paddle.pooling.Sum()), 1, activation.Tanh())
    check_gradients(layer.sum_cost(end), _SAMPLES)


def test_a_group_is_what_its_steps_are() -> None:
    rows = layer.data("rows", data_type.dense_vector_sequence(2))
    names = attr.Param(name="x"), attr.Param(name="h")

    def step(row: LayerOutput) -> list[LayerOutput]:
        before = layer.memory(name="state", size=2)
        state = layer.fc([row, before], 2, activation.Tanh(), "state", list(names), attr.Param(name="b"))
        return [layer.slope_intercept(state, slope=2.0), before, layer.slope_intercept(row, slope=3.0)]

    doubled, before, tripled = groups(step, rows)
    parameters = paddle.parameters.create([doubled, before, tripled])
    parameters["b"] = np.array([[0.1, -0.2]], np.float32)
    samples = [[[0.5, -1.0], [1.0, 0.25]], [[2.0, 0.0]], [[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]]
    states, starts = [], []
    for sample in samples:
        state = np.zeros(2)
        for row in sample:
            starts.append(state)
            state = np.tanh(np.array(row) @ parameters["x"] + state @ parameters["h"] + parameters["b"][0])
            states.append(state)
    for out, right in (
        (doubled, 2 * np.array(states)),
        (before, np.array(starts)),
        (tripled, 3 * np.concatenate([np.array(sample) for sample in samples])),
    ):
        np.testing.assert_allclose(found(out, samples, parameters=parameters), right, rtol=1e-5, atol=1e-6)
