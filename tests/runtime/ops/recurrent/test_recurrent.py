# SPDX-License-Identifier: Apache-2.0
"""Recurrent operators against a loop over sequences and steps, written from the formulas."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(3)
_D = 3


def _draw(*shape: int) -> Any:
    return _RNG.standard_normal(shape)


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _batch(width: int) -> LoDArray:
    return LoDArray(_draw(7, width), offsets_of([[2, 0, 4, 1]]))


def _along(x: LoDArray, is_reverse: bool) -> list[list[int]]:
    """Row numbers of each sequence, in the order a recurrent layer visits them."""
    rows = [list(range(a, b)) for a, b in pairwise(x.lod[-1].tolist())]
    return [each[::-1] for each in rows] if is_reverse else rows


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("peepholes", [False, True])
@pytest.mark.parametrize(("projected", "clips"), [(0, (0, 0)), (2, (0, 0)), (2, (0.4, 0)), (2, (0.3, 0.2))])
def test_an_lstm_follows_its_formulas(
    is_reverse: bool, peepholes: bool, projected: int, clips: tuple[float, float]
) -> None:
    seen = projected or _D
    x, weight, bias = _batch(4 * _D), _draw(seen, 4 * _D), _draw(1, 7 * _D if peepholes else 4 * _D)
    h0, c0, projection = _draw(4, seen), _draw(4, _D), _draw(_D, seen)
    inputs = {"Input": x, "H0": h0, "C0": c0, "Weight": weight, "Bias": bias}
    if projected:
        inputs["ProjWeight"] = projection
    attrs: dict[str, Any] = {"use_peepholes": peepholes, "is_reverse": is_reverse}
    if any(clips):
        attrs["cell_clip"], attrs["proj_clip"] = clips
    most_cell, most_out = (bound or np.inf for bound in clips)
    hidden, cell, *_ = run_op("lstmp" if projected else "lstm", inputs, attrs)
    looks = bias[0, 4 * _D :].reshape(3, _D) if peepholes else np.zeros((3, _D))
    expected, cells = np.zeros((7, seen)), np.zeros((7, _D))
    for number, rows in enumerate(_along(x, is_reverse)):
        h, c = h0[number], c0[number]
        for row in rows:
            candidate, i, f, o = np.split(x.data[row] + bias[0, : 4 * _D] + h @ weight, 4)
            i, f = _sigmoid(i + c * looks[0]), _sigmoid(f + c * looks[1])
            c = np.clip(f * c + i * np.tanh(candidate), -most_cell, most_cell)
            h = _sigmoid(o + c * looks[2]) * np.tanh(c)
            if projected:
                h = np.clip(np.tanh(h @ projection), -most_out, most_out)
            expected[row], cells[row] = h, c
    np.testing.assert_allclose(hidden.data, expected)
    np.testing.assert_allclose(cell.data, cells)
    assert hidden.lengths() == cell.lengths() == [[2, 0, 4, 1]]


@pytest.mark.parametrize("is_reverse", [False, True])
@pytest.mark.parametrize("origin_mode", [False, True])
def test_a_gru_follows_its_formulas(is_reverse: bool, origin_mode: bool) -> None:
    x, weight, bias, h0 = _batch(3 * _D), _draw(_D, 3 * _D), _draw(1, 3 * _D), _draw(4, _D)
    attrs = {"is_reverse": is_reverse, "origin_mode": origin_mode}
    *_, hidden = run_op("gru", {"Input": x, "H0": h0, "Weight": weight, "Bias": bias}, attrs)
    expected = np.zeros((7, _D))
    for number, rows in enumerate(_along(x, is_reverse)):
        h = h0[number]
        for row in rows:
            h = expected[row] = _gru_step(x.data[row] + bias[0], h, weight, origin_mode)
    np.testing.assert_allclose(hidden.data, expected)


@pytest.mark.parametrize("origin_mode", [False, True])
def test_one_step_of_a_gru_follows_its_formulas(origin_mode: bool) -> None:
    x, weight, bias, before = _draw(2, 3 * _D), _draw(_D, 3 * _D), _draw(1, 3 * _D), _draw(2, _D)
    inputs = {"Input": x, "HiddenPrev": before, "Weight": weight, "Bias": bias}
    *_, hidden = run_op("gru_unit", inputs, {"origin_mode": origin_mode})
    expected = [_gru_step(x[row] + bias[0], before[row], weight, origin_mode) for row in range(2)]
    np.testing.assert_allclose(hidden, expected)


def test_one_step_of_an_lstm_follows_its_formulas() -> None:
    x, before = _draw(2, 4 * _D), _draw(2, _D)
    cell, hidden = run_op("lstm_unit", {"X": x, "C_prev": before}, {"forget_bias": 1.0})
    i, f, o, candidate = np.split(x, 4, axis=1)
    expected = _sigmoid(f + 1) * before + _sigmoid(i) * np.tanh(candidate)
    np.testing.assert_allclose(cell, expected)
    np.testing.assert_allclose(hidden, _sigmoid(o) * np.tanh(expected))


def test_the_states_of_equal_sequences_are_equal_wherever_they_stand() -> None:
    rows = _draw(3, 4 * _D)
    x = LoDArray(np.concatenate([rows, _draw(5, 4 * _D), rows]), offsets_of([[3, 5, 3]]))
    hidden, *_ = run_op("lstm", {"Input": x, "Weight": _draw(_D, 4 * _D), "Bias": _draw(1, 7 * _D)})
    np.testing.assert_allclose(hidden.data[:3], hidden.data[8:])


def test_a_bias_without_peepholes_is_refused_where_they_are_asked_for() -> None:
    inputs = {"Input": _batch(4 * _D), "Weight": _draw(_D, 4 * _D), "Bias": _draw(1, 4 * _D)}
    with pytest.raises(ShapeError, match=r"expected Bias \(1, 21\) with use_peepholes=True"):
        run_op("lstm", inputs)


def test_an_unknown_activation_is_refused() -> None:
    inputs = {"Input": _batch(3 * _D), "Weight": _draw(_D, 3 * _D)}
    with pytest.raises(ExecutionError, match="'softsign': expected one of identity, sigmoid"):
        run_op("gru", inputs, {"activation": "softsign"})


def _gru_step(x: Any, before: Any, weight: Any, origin_mode: bool) -> Any:
    for_gates = weight.reshape(-1)[: 2 * _D * _D].reshape(_D, 2 * _D)
    for_candidate = weight.reshape(-1)[2 * _D * _D :].reshape(_D, _D)
    update, reset = np.split(_sigmoid(x[: 2 * _D] + before @ for_gates), 2)
    candidate = np.tanh(x[2 * _D :] + (reset * before) @ for_candidate)
    if origin_mode:
        return update * before + (1 - update) * candidate
    return (1 - update) * before + update * candidate
