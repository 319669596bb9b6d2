# SPDX-License-Identifier: Apache-2.0
"""The compiled LSTM agrees with the plain one, which double precision takes, and hides no NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.ops.base.time_steps import TimeSteps
from paddle.ops.recurrent import lstm_steps
from paddle.ops.recurrent.lstm import activations
from paddle.ops.recurrent.lstm_steps import Weights

_RNG = np.random.default_rng(5)
_LENGTHS, _WIDTH = (31, 4, 57, 1, 40, 22, 9, 18, 60, 33, 12), 72  # neither fills its tiles
_STEPS = TimeSteps.of(np.cumsum([0, *_LENGTHS]))
_ACTIVATIONS = activations("sigmoid", "tanh", "tanh")


def _drawn(*shape: int) -> Any:
    return _RNG.standard_normal(shape) / 4


def _learned(peepholes: bool) -> tuple[Any, Any]:
    return _drawn(_WIDTH, 4 * _WIDTH), _drawn(1, (7 if peepholes else 4) * _WIDTH)


@pytest.mark.parametrize("peepholes", [True, False])
def test_both_forms_agree(peepholes: bool) -> None:
    rows, count = sum(_LENGTHS), len(_LENGTHS)
    gates, dout, dcell = 12 * _drawn(rows, 4 * _WIDTH), _drawn(rows, _WIDTH), _drawn(rows, _WIDTH)
    gates[5] *= 20  # gates that are shut or open all the way
    first = _drawn(count, _WIDTH), _drawn(count, _WIDTH)
    learned = _learned(peepholes)

    def run(dtype: str) -> list[Any]:
        weights = Weights(*(each.astype(dtype) for each in learned))
        out, cell = (each.astype(dtype) for each in first)
        trace = lstm_steps.forward(gates.astype(dtype), out, cell, weights, _ACTIVATIONS, _STEPS)
        arriving = dout.astype(dtype), dcell.astype(dtype)
        back = lstm_steps.backward(trace, *arriving, out, cell, weights, _ACTIVATIONS, _STEPS)
        return [*trace, *(each for each in back if each is not None)]

    for one, right in zip(run("float32"), run("float64"), strict=True):
        assert one.dtype == np.float32
        np.testing.assert_allclose(one, right, rtol=0, atol=4e-6 * max(1, np.abs(right).max()))


def test_nan_is_handed_on() -> None:
    gates = _drawn(sum(_LENGTHS), 4 * _WIDTH).astype("float32")
    gates[0, 10] = np.nan  # the longest sequence at its first step
    weights = Weights(*(each.astype("float32") for each in _learned(peepholes=False)))
    zeros = np.zeros((len(_LENGTHS), _WIDTH), "float32")
    out = lstm_steps.forward(gates, zeros, zeros, weights, _ACTIVATIONS, _STEPS).out
    assert np.isnan(out[0]).sum() == 1
    assert np.isnan(out[_STEPS.bounds[1:-1]]).all()
    assert np.isnan(out).all(axis=1).sum() == max(_LENGTHS) - 1
