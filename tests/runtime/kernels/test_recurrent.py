# SPDX-License-Identifier: Apache-2.0
"""Compiled steps of LSTM and GRU agree with their plain forms in double precision, at every speed level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from paddle.kernels import library
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.segments import TimeSteps
from paddle.ops.recurrent import compiled, lstm_steps
from paddle.ops.recurrent.gate_activation import activation
from paddle.ops.recurrent.gru import gru, gru_grad

LENGTHS = ((0,), (1,), (0, 3, 0, 1), (31, 4, 57, 1, 0, 22, 9, 18, 60, 33, 12))
WIDTHS = (1, 3, 8, 17, 72)
USUAL = {"activation": "tanh", "gate_activation": "sigmoid", "is_reverse": False}
pytestmark = pytest.mark.skipif(not library.level(), reason="no compiled kernels")


@pytest.fixture(params=library.levels(), autouse=True)
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(compiled.KERNELS, "loaded", compiled.KERNELS.at_level(request.param))
    compiled._tile.cache_clear()
    yield
    compiled._tile.cache_clear()


def drawn(*shape: int) -> Any:
    return np.random.default_rng(shape).standard_normal(shape) / 4


def run_lstm(dtype: str, width: int, peepholes: bool, steps: TimeSteps, gates: Any) -> list[Any]:
    rows, count = len(gates), len(steps.order)
    acts = lstm_steps.Activations(*map(activation, ("sigmoid", "tanh", "tanh", "identity")))
    learned = drawn(width, 4 * width), drawn(1, (7 if peepholes else 4) * width)
    weights = lstm_steps.Weights(*(each.astype(dtype) for each in learned))
    out, cell = drawn(count, width).astype(dtype), drawn(count, width).astype(dtype)
    trace = lstm_steps.forward(gates.astype(dtype), out, cell, weights, acts, steps)
    arriving = drawn(rows, width).astype(dtype), 2 * drawn(rows, width).astype(dtype)
    back = lstm_steps.backward(trace, *arriving, out, cell, weights, acts, steps)
    return [*trace, *(each for each in back if each is not None)]


def run_gru(dtype: str, width: int, origin: bool, x: LoDArray) -> list[Any]:
    h0, weight, bias, dout = (
        each.astype(dtype)
        for each in (
            drawn(len(x.lod[0]) - 1, width),
            drawn(width, 3 * width),
            drawn(1, 3 * width),
            drawn(len(x.data), width),
        )
    )
    x = LoDArray(x.data.astype(dtype), x.lod)
    attrs = {**USUAL, "origin_mode": origin}
    *kept, hidden = gru(x, h0, weight, bias, attrs=attrs)
    back = gru_grad(x, h0, weight, bias, *kept, LoDArray(dout, x.lod).data, attrs=attrs)
    return [*kept, hidden.data, *back]


def agree(found: list[Any], right: list[Any]) -> None:
    for one, other in zip(found, right, strict=True):
        assert one.dtype == np.float32
        most = np.nanmax(np.abs(other[np.isfinite(other)]), initial=1)
        np.testing.assert_allclose(one, other, rtol=0, atol=4e-6 * most)


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_lstm(lengths: tuple[int, ...], width: int, peepholes: bool) -> None:
    gates, steps = 12 * drawn(sum(lengths), 4 * width), TimeSteps.of(np.cumsum([0, *lengths]))
    gates[:1] *= 20  # gates that are shut or open all the way
    agree(*(run_lstm(dtype, width, peepholes, steps, gates) for dtype in ("float32", "float64")))


@pytest.mark.parametrize("origin", [True, False])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_gru(lengths: tuple[int, ...], width: int, origin: bool) -> None:
    x = LoDArray(12 * drawn(sum(lengths), 3 * width), (np.cumsum([0, *lengths]),))
    x.data[:1] *= 20
    agree(*(run_gru(dtype, width, origin, x) for dtype in ("float32", "float64")))


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_strange_numbers_reach_what_the_plain_form_lets_them_reach(strange: float) -> None:
    lengths, width = LENGTHS[-1], 17
    offsets = np.cumsum([0, *lengths])
    gates = drawn(sum(lengths), 4 * width)
    gates[5, 10], gates[40, 60] = strange, strange
    for name, (found, right) in {
        "lstm": [
            run_lstm(each, width, False, TimeSteps.of(offsets), gates) for each in ("float32", "float64")
        ],
        "gru": [
            run_gru(each, width, False, LoDArray(gates[:, : 3 * width].copy(), (offsets,)))
            for each in ("float32", "float64")
        ],
    }.items():
        for one, other in zip(found, right, strict=True):
            np.testing.assert_array_equal(np.isnan(one), np.isnan(other), err_msg=name)


def test_steps_that_do_not_fit_are_refused() -> None:
    width = 3
    first, matrix = np.zeros((2, width), "float32"), np.zeros((width, 4 * width), "float32")
    for bounds in ([0, 3, 4], [0, 1, 3], [0, 2, 5], [1, 2, 4]):
        steps = TimeSteps(np.arange(2), np.arange(4), np.array(bounds))
        with pytest.raises(ValueError, match="do not fit 4 rows of 2 sequences"):
            compiled.lstm_forward(np.zeros((4, 4 * width), "float32"), first, first, matrix, None, steps)
