# SPDX-License-Identifier: Apache-2.0
"""basic_gru, basic_lstm and their units: values against plain numpy, padding, directions, names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid.contrib import BasicGRUUnit, BasicLSTMUnit, basic_gru, basic_lstm

Array = Any
RNG = np.random.default_rng(5)
BATCH, STEPS, WIDTH, HIDDEN = 3, 4, 2, 5
LENGTHS = np.array([4, 1, 3], "int32")


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def lstm_step(x: Array, states: list[Array], weights: list[Array]) -> list[Array]:
    h, c = states
    i, j, f, o = np.split(np.concatenate([x, h], 1) @ weights[0] + weights[1], 4, axis=1)
    cell = c * sigmoid(f + 1.0) + sigmoid(i) * np.tanh(j)
    return [np.tanh(cell) * sigmoid(o), cell]


def gru_step(x: Array, states: list[Array], weights: list[Array]) -> list[Array]:
    (h,), (gate, candidate, gate_bias, bias) = states, weights
    r, u = np.split(sigmoid(np.concatenate([x, h], 1) @ gate + gate_bias), 2, axis=1)
    return [u * h + (1 - u) * np.tanh(np.concatenate([x, r * h], 1) @ candidate + bias)]


def stack(step: Any, x: Array, first: list[list[Array]], weights: list[list[Array]], lengths: Array) -> Any:
    """Return outputs (batch, steps, hidden) and, for each layer, its last states."""
    states, outs = [list(each) for each in first], []
    for t in range(x.shape[1]):
        value = x[:, t]
        goes_on = (t < lengths)[:, None]
        for at, each in enumerate(weights):
            after = step(value, states[at], each)
            states[at] = [np.where(goes_on, new, old) for new, old in zip(after, states[at], strict=True)]
            value = states[at][0]
        outs.append(value)
    return np.stack(outs, 1), states


def run(fetches: list[Any], **feed: Array) -> list[Array]:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    scope = fluid.global_scope()
    for each in fluid.default_main_program().global_block().all_parameters():
        scope.set(each.name, RNG.normal(0, 0.5, each.shape).astype("float32"))
    found: list[Array] = exe.run(feed=feed, fetch_list=fetches)
    return found


def value(name: str) -> Array:
    return np.array(fluid.global_scope().get(name))


def weights_of(prefix: str, unit: str, layers: int, weights: int) -> list[list[Array]]:
    names = [each.name for each in fluid.default_main_program().global_block().all_parameters()]
    own = [name for name in names if name.startswith(f"{prefix}_")]
    assert len(own) == layers * weights
    return [[value(name) for name in own[at : at + weights]] for at in range(0, len(own), weights)]


@pytest.mark.parametrize("batch_first", [True, False])
def test_two_lstms_with_padding_equal_numpy_and_pass_gradients(batch_first: bool) -> None:
    x = RNG.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
    first = RNG.normal(size=(2, 2, BATCH, HIDDEN)).astype("float32")
    fed = fluid.layers.data("x", [-1, -1, WIDTH], append_batch_size=False)
    hidden, cell = (fluid.layers.data(each, [2, -1, HIDDEN], append_batch_size=False) for each in ("h", "c"))
    lengths = fluid.layers.data("n", [-1], dtype="int32", append_batch_size=False)
    out, last, last_cell = basic_lstm(
        fed, hidden, cell, HIDDEN, 2, sequence_length=lengths, batch_first=batch_first
    )
    loss = fluid.layers.mean(out)
    pairs = fluid.backward.append_backward(loss)
    turned = x if batch_first else x.transpose(1, 0, 2)
    found = run(
        [out, last, last_cell, *(grad for _, grad in pairs)], x=turned, h=first[0], c=first[1], n=LENGTHS
    )
    weights = weights_of("basic_lstm", "BasicLSTMUnit", 2, 2)
    begins = [[first[0, at], first[1, at]] for at in range(2)]
    expected, states = stack(lstm_step, x, begins, weights, LENGTHS)
    np.testing.assert_allclose(found[0] if batch_first else found[0].transpose(1, 0, 2), expected, rtol=1e-4)
    for kind in range(2):
        np.testing.assert_allclose(found[1 + kind], [each[kind] for each in states], rtol=1e-4, atol=1e-6)
    assert len(pairs) == 4
    for each, gradient in zip(pairs, found[3:], strict=True):
        name, at = each[0].name, (0,) * len(each[0].shape)
        flat = next(w for layer in weights for w in layer if np.array_equal(w, value(name)))
        flat[at] += 0.01
        more = stack(lstm_step, x, begins, weights, LENGTHS)[0].mean()
        flat[at] -= 0.02
        less = stack(lstm_step, x, begins, weights, LENGTHS)[0].mean()
        flat[at] += 0.01
        np.testing.assert_allclose(gradient[at], (more - less) / 0.02, rtol=0.02, atol=1e-5)


def test_grus_in_both_directions_equal_numpy_and_give_last_states_layer_by_layer() -> None:
    x = RNG.normal(size=(BATCH, STEPS, WIDTH)).astype("float32")
    fed = fluid.layers.data("x", [-1, STEPS, WIDTH], append_batch_size=False)
    lengths = fluid.layers.data("n", [-1], dtype="int32", append_batch_size=False)
    out, last = basic_gru(fed, None, HIDDEN, 2, lengths, bidirectional=True)
    found = run([out, last], x=x, n=LENGTHS)
    zeros = [[np.zeros((BATCH, HIDDEN), "float32")] for _ in range(2)]
    ahead, states = stack(gru_step, x, zeros, weights_of("basic_gru_layers", "BasicGRUUnit", 2, 4), LENGTHS)
    # The other one reads from the end, so it begins with padding, where its state stays 0.
    padded = np.stack([np.arange(STEPS) >= STEPS - n for n in LENGTHS])
    back, h = [], [[np.zeros((BATCH, HIDDEN), "float32")] for _ in range(2)]
    for t in range(STEPS):
        value_now = x[:, STEPS - 1 - t]
        for at, each in enumerate(weights_of("basic_gru_reverse_layers", "BasicGRUUnit", 2, 4)):
            (after,) = gru_step(value_now, h[at], each)
            h[at] = [np.where(padded[:, t, None], after, h[at][0])]
            value_now = h[at][0]
        back.append(value_now)
    np.testing.assert_allclose(
        found[0], np.concatenate([ahead, np.stack(back[::-1], 1)], 2), rtol=1e-4, atol=1e-6
    )
    np.testing.assert_allclose(found[1], [states[0][0], h[0][0], states[1][0], h[1][0]], rtol=1e-4, atol=1e-6)


def test_units_keep_their_parameters_from_call_to_call() -> None:
    x = fluid.layers.data("x", [WIDTH])
    h, c = fluid.layers.data("h", [HIDDEN]), fluid.layers.data("c", [HIDDEN])
    gru, lstm = BasicGRUUnit("g", HIDDEN), BasicLSTMUnit("l", HIDDEN, forget_bias=0.5)
    once = gru(x, h)
    twice = gru(x, once)
    state, _ = lstm(x, h, c)
    assert [each.name for each in gru.parameters()] == [
        "g/BasicGRUUnit_0.w_0", "g/BasicGRUUnit_0.w_1", "g/BasicGRUUnit_0.b_0", "g/BasicGRUUnit_0.b_1",
    ]  # fmt: skip
    feed = {name: RNG.normal(size=(2, n)).astype("float32") for name, n in (("x", 2), ("h", 5), ("c", 5))}
    found = run([twice, state], **feed)
    weights = [value(each.name) for each in gru.parameters()]
    first = gru_step(feed["x"], [feed["h"]], weights)
    np.testing.assert_allclose(found[0], gru_step(feed["x"], first, weights)[0], rtol=1e-4, atol=1e-6)
    kept = lstm.state_dict()
    lstm.load_dict({name: np.zeros_like(each) for name, each in kept.items()})
    assert not value(lstm.parameters()[0].name).any()
    with pytest.raises(ValueError, match=r"cannot hold a value of shape \(1,\)"):
        lstm.load_dict({name: np.zeros(1) for name in kept})
    with pytest.raises(ValueError, match="no backward method"):
        lstm.backward()


def test_a_named_attribute_names_the_parameters_of_each_layer() -> None:
    x = fluid.layers.data("x", [-1, STEPS, WIDTH], append_batch_size=False)
    basic_gru(x, None, HIDDEN, 1, param_attr=fluid.ParamAttr("w"), bias_attr=fluid.ParamAttr("b"))
    basic_lstm(x, None, None, HIDDEN, 1, bidirectional=True, param_attr=fluid.ParamAttr("v"))
    names = {each.name for each in fluid.default_main_program().global_block().all_parameters()}
    assert {"w_fw_w_0_gate", "w_fw_w_0_candidate", "b_fw_b_0_gate", "v_fw_w_0", "v_bw_w_0"} < names


def test_a_state_without_its_cell_is_refused() -> None:
    x = fluid.layers.data("x", [-1, STEPS, WIDTH], append_batch_size=False)
    with pytest.raises(ValueError, match="both init_hidden and init_cell, or neither"):
        basic_lstm(x, None, fluid.layers.fill_constant([1, 3, HIDDEN], "float32", 0), HIDDEN)
