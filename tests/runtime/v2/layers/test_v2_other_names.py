# SPDX-License-Identifier: Apache-2.0
"""Attention with heads, and what scripts use of parameters, feeders, generated inputs and poolings."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2 import config_base, data_feeder
from paddle.v2.errors import UsageError
from paddle.v2.topology import Topology
from paddle.v2.training.gradient_machine import GradientMachine
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import ROWS, act, data_type, dense, layer, values

rng = np.random.default_rng(5)
SEQUENCES = [rng.normal(size=(length, 5)).astype(np.float32) for length in (3, 1, 2)]


@pytest.mark.parametrize("kind", ["dot-product attention", "additive attention"])
def test_heads_weigh_the_rows_of_a_sequence(kind: str) -> None:
    query, key = dense("query", 4), layer.data("key", data_type.dense_vector_sequence(5))
    out = paddle.networks.multi_head_attention(query, key, key, 3, 2, 2, kind, name="m")
    shapes = {"query": (4, 6), "key": (5, 6), "value": (5, 4)}
    given = {
        f"_m_{what}_proj.w0": rng.normal(size=shape).astype(np.float32) for what, shape in shapes.items()
    }
    width = 1 if kind.startswith("dot") else 3
    given |= {f"_m_softmax_{head}.w0": rng.normal(size=(width, 1)).astype(np.float32) for head in (0, 1)}
    expected = []
    for row, sequence in zip(ROWS, SEQUENCES, strict=True):
        heads = []
        for head in (0, 1):
            q, k = row @ given["_m_query_proj.w0"], sequence @ given["_m_key_proj.w0"]
            q, k = q[3 * head : 3 * head + 3], k[:, 3 * head : 3 * head + 3]
            fit = (k @ q / np.sqrt(3))[:, None] if width == 1 else np.tanh(q + k)
            weights = np.exp(fit @ given[f"_m_softmax_{head}.w0"])
            value = (sequence @ given["_m_value_proj.w0"])[:, 2 * head : 2 * head + 2]
            heads.append((weights / weights.sum() * value).sum(axis=0))
        expected.append(np.concatenate(heads))
    columns = [
        [sequence.tolist() for sequence in SEQUENCES] if name == "key" else ROWS for name in ("query", "key")
    ]
    np.testing.assert_allclose(values(out, *columns, parameters=given), expected, rtol=1e-4, atol=1e-5)
    samples = [*zip(ROWS / 3, (sequence / 3 for sequence in SEQUENCES), strict=True)]
    check_closely(layer.sum_cost(layer.fc(out, 1, act.Tanh(), bias_attr=False)), samples, rel=2e-3)


def test_an_unknown_kind_of_attention_is_refused() -> None:
    x = dense("x", 4)
    with pytest.raises(UsageError, match="'dot-product attention' or 'additive attention', got 'dot'"):
        paddle.networks.multi_head_attention(x, x, x, 2, 2, 1, "dot")


def test_inputs_and_outputs_take_layers() -> None:
    x = dense("x", 4)
    paddle.networks.inputs(x)
    paddle.networks.outputs([layer.fc(x, 2)], x)
    with pytest.raises(UsageError, match="inputs: expected data layers"):
        paddle.networks.inputs(layer.fc(x, 2))
    assert isinstance(x, config_base.Layer)


def test_a_feeder_converts_batches() -> None:
    types = [("x", data_type.dense_vector(2)), ("y", data_type.integer_value(3))]
    feeder = data_feeder.DataFeeder(types, feeding={"y": 0, "x": 1})
    fed = feeder.convert([(1, [0.5, 2.0]), (2, [0.0, 1.0])])
    np.testing.assert_array_equal(fed["x"], [[0.5, 2.0], [0.0, 1.0]])
    np.testing.assert_array_equal(fed["y"], [[1], [2]])
    before = {"z": 1}
    assert feeder.convert([(0, [0.0, 0.0])], before) is before
    assert sorted(before) == ["x", "y"]


def test_parameters_read_and_write_through_a_machine() -> None:
    out = layer.fc(dense("x", 4), 2, name="f", bias_attr=False)
    parameters = paddle.parameters.create(out)
    machine = GradientMachine(Topology(out).network, paddle.parameters.create(out), [])
    machine.build()
    parameters["_f.w0"] = np.ones((4, 2), np.float32)
    parameters.append_gradient_machine(machine)
    np.testing.assert_array_equal(machine.newest("_f.w0"), np.ones(8))
    parameters["_f.w0"] = np.full((4, 2), 3, np.float32)
    np.testing.assert_array_equal(machine.newest("_f.w0"), np.full(8, 3))


def test_parameters_take_over_the_configurations_of_a_network() -> None:
    x = dense("x", 4)
    parameters = paddle.parameters.create(layer.fc(x, 2, name="f", bias_attr=False))
    other = layer.fc(x, 3, name="g")
    parameters.update_param_conf(Topology(other).proto())
    assert parameters.names() == ["_f.w0", "_g.w0", "_g.wbias"]
    assert parameters.get_shape("_g.w0") == (4, 3)


def test_a_generated_input_declares_the_last_word_and_checks_the_step() -> None:
    word = layer.GeneratedInput(9, "table", 4)
    seen = word.before_real_step()
    assert (seen.size, Topology(seen).network.parameters["table"].shape) == (4, (9, 4))
    out = layer.fc(seen, 9, act.Softmax())
    both = layer.interpolation([out, out], layer.fc(seen, 1, act.Sigmoid()))
    assert [word.after_real_step(each) for each in (out, both)] == [out, both]
    with pytest.raises(UsageError, match="the step must return a layer with Softmax"):
        word.after_real_step(layer.fc(seen, 9))
    with pytest.raises(UsageError, match="size 9"):
        word.after_real_step(seen)
    with pytest.raises(NotImplementedError):
        layer.BaseGeneratedInput().before_real_step()


def test_poolings_have_a_common_type() -> None:
    assert isinstance(paddle.pooling.Max(), paddle.pooling.BasePoolingType)
    assert paddle.pooling.CudnnAvg().name == "cudnn-avg-pool"
    assert paddle.pooling.BasePoolingType("mine").name == "mine"
