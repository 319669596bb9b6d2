# SPDX-License-Identifier: Apache-2.0
"""cuDNN's LSTM and the LSTM with attention, step by step in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

Array = np.ndarray[Any, Any]


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def layer_by_hand(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array, Array]:
    """One direction: w (4, H, inputs), r (4, H, H), b (2, 4, H); gates are input, forget, candidate, output."""
    seen = []
    for step in x:
        i, f, g, o = (step @ w[k].T + h @ r[k].T + b[0, k] + b[1, k] for k in range(4))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        seen.append(h)
    return np.array(seen), h, c


@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("layers", [1, 3])
def test_layers_run_over_a_batch_as_cudnn_lays_out_their_weights(layers: int, ways: int) -> None:
    rng = np.random.default_rng(1)
    length, rows, inputs, hidden = 4, 3, 5, 2
    sizes = [size for size in [inputs, *[hidden * ways] * (layers - 1)] for _ in range(ways)]
    matrices = [(rng.normal(size=(4, hidden, n)), rng.normal(size=(4, hidden, hidden))) for n in sizes]
    biases = [rng.normal(size=(2, 4, hidden)) for _ in sizes]
    flat = np.concatenate(
        [each.ravel() for pair in matrices for each in pair] + [each.ravel() for each in biases]
    )
    x = rng.normal(size=(length, rows, inputs))
    h, c = (rng.normal(size=(layers * ways, rows, hidden)) for _ in range(2))
    attrs = {"max_len": length, "input_size": inputs, "hidden_size": hidden, "num_layers": layers}
    given = {"Input": x, "InitH": h, "InitC": c, "W": flat}
    out, last_h, last_c, _ = run_op("cudnn_lstm", given, {**attrs, "is_bidirec": ways == 2})
    below = x
    for layer in range(layers):
        parts = []
        for way in range(ways):
            at = layer * ways + way
            turn = slice(None, None, -1 if way else 1)
            seen, end_h, end_c = layer_by_hand(below[turn], h[at], c[at], *matrices[at], biases[at])
            parts.append(seen[turn])
            np.testing.assert_allclose(last_h[at], end_h)
            np.testing.assert_allclose(last_c[at], end_c)
        below = np.concatenate(parts, axis=2)
    np.testing.assert_allclose(out, below)


def test_states_are_dropped_between_layers_while_training_alone() -> None:
    rng = np.random.default_rng(2)
    attrs = {"max_len": 2, "input_size": 2, "hidden_size": 3, "num_layers": 2, "dropout_prob": 0.5}
    states = np.zeros((2, 40, 3))
    given = {"Input": rng.normal(size=(2, 40, 2)), "InitH": states, "InitC": states}
    given["W"] = rng.normal(size=4 * 3 * (2 + 3 + 2) + 4 * 3 * (3 + 3 + 2))
    trained, *_, kept = run_op("cudnn_lstm", given, attrs)
    tested, *_, all_kept = run_op("cudnn_lstm", given, {**attrs, "is_test": True})
    whole, *_ = run_op("cudnn_lstm", given, {**attrs, "dropout_prob": 0.0})
    assert 0.3 < kept.mean() < 0.7
    assert all_kept.all()
    np.testing.assert_array_equal(tested, whole)
    assert (trained != whole).any()
    with pytest.raises(OpError, match=r"expected W \(180,\)"):
        run_op("cudnn_lstm", {**given, "W": given["W"][1:]}, attrs)


@pytest.mark.parametrize("has_scalar", [True, False])
@pytest.mark.parametrize("gate", ["sigmoid", "relu"])
def test_a_step_with_attention_weighs_the_whole_sequence(has_scalar: bool, gate: str) -> None:
    rng = np.random.default_rng(3)
    lengths, width, size = [3, 1, 2], 4, 2
    x, c0 = rng.normal(size=(6, width)), rng.normal(size=(3, size))
    look, look_bias = rng.normal(size=(width + size, 1)), rng.normal(size=(1, 1))
    scalar, scalar_bias = rng.normal(size=(1, 1)), rng.normal(size=(1, 1))
    weight, bias = rng.normal(size=(size + width, 4 * size)), rng.normal(size=(1, 4 * size))
    given = {
        "X": LoDArray(x, offsets_of([lengths])),
        "C0": c0,
        "AttentionWeight": look,
        "AttentionBias": look_bias,
    }
    if has_scalar:
        given.update(AttentionScalar=scalar, AttentionScalarBias=scalar_bias)
    given.update(LSTMWeight=weight, LSTMBias=bias)
    hidden, cell, *_ = run_op("attention_lstm", given, {"gate_activation": gate})
    act = sigmoid if gate == "sigmoid" else lambda v: np.maximum(v, 0)
    rows_h, rows_c, begin = [], [], 0
    for number, length in enumerate(lengths):
        part, c, h = x[begin : begin + length], c0[number], np.zeros(size)
        begin += length
        for _ in range(length):
            score = np.maximum(np.array([[*row, *c] for row in part]) @ look + look_bias, 0)
            if has_scalar:
                score = np.maximum(score * scalar + scalar_bias, 0)
            share = np.exp(score) / np.exp(score).sum()
            f, i, o, g = np.split(np.concatenate([h, (share * part).sum(axis=0)]) @ weight + bias[0], 4)
            c = act(f) * c + act(i) * np.tanh(g)
            h = act(o) * np.tanh(c)
            rows_h.append(h)
            rows_c.append(c)
    assert hidden.lengths() == cell.lengths() == [lengths]
    np.testing.assert_allclose(hidden.data, rows_h)
    np.testing.assert_allclose(cell.data, rows_c)
    given["X"] = LoDArray(x, offsets_of([[3, 0, 3]]))
    with pytest.raises(ExecutionError, match="sequence is empty"):
        run_op("attention_lstm", given)
