# SPDX-License-Identifier: Apache-2.0
"""Averages of a model's values against sums over all that was ever added."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.model_average import ModelAverage
from paddle.optim.moving_average import MovingAverage


def walk(length: int, seed: int = 0) -> np.ndarray:
    """Values (length, 3) of a parameter that drifts."""
    return np.random.default_rng(seed).standard_normal((length, 3)).cumsum(axis=0).astype(np.float32)


def windowed(values: np.ndarray, rate: float, smallest: int, largest: float) -> tuple[np.ndarray, int]:
    """The rule of the window, over a list of all values since the last cut but one."""
    before: list[np.ndarray] = []
    since: list[np.ndarray] = []
    for updates, value in enumerate(values.astype(np.float64), 1):
        since.append(value)
        if len(since) >= min(smallest, largest) and len(since) >= min(largest, updates * rate):
            before, since = since, []
    kept = before + since
    return np.mean(kept, axis=0), len(kept)


def mean_of(average: ModelAverage | MovingAverage) -> np.ndarray:
    out = np.empty(3, np.float32)
    average.mean("w", out)
    return out


@pytest.mark.parametrize("length", [1, 7, 8, 9, 40, 333])
@pytest.mark.parametrize(
    ("rate", "smallest", "largest"), [(0.5, 4, 50), (0.15, 2, 20), (1.0, 10, 10), (0.5, 30, 8)]
)
def test_a_mean_covers_the_window_and_the_one_before(
    length: int, rate: float, smallest: int, largest: int
) -> None:
    average = ModelAverage(rate, largest, smallest)
    values = walk(length)
    for value in values:
        average.add({"w": value})
    expected, count = windowed(values, rate, smallest, largest)
    assert average.count == count
    np.testing.assert_allclose(mean_of(average), expected, rtol=1e-5, atol=1e-5)


def test_without_a_largest_window_it_is_as_long_as_the_last_pass() -> None:
    average = ModelAverage(0.5, None, 5)
    values = walk(36)
    for value in values[:12]:
        average.add({"w": value})
    average.finish_pass()
    for value in values[12:]:
        average.add({"w": value})
    # Cut at update 10 and, by half of all updates, at 20; then at 32, since no window is longer than the pass of 12.
    np.testing.assert_allclose(mean_of(average), values[20:].mean(axis=0), rtol=1e-5)
    assert average.count == 16


def test_sums_over_many_updates_keep_their_digits() -> None:
    average = ModelAverage(1.0, 10**9)
    value = np.array([0.1, 1.1, -7.3], np.float32)
    for _ in range(40_000):
        average.add({"w": value})
    np.testing.assert_allclose(mean_of(average), value, rtol=2e-4)


def test_adding_leaves_the_values_alone() -> None:
    value = np.ones(3, np.float32)
    for average in (ModelAverage(0.5, 3), MovingAverage(0.5)):
        for _ in range(9):
            average.add({"w": value})
    assert value.tolist() == [1, 1, 1]


@pytest.mark.parametrize("ramps", [False, True])
def test_a_moving_average_follows_its_formula(ramps: bool) -> None:
    decay, values = 0.97, walk(200)
    average = MovingAverage(decay, ramps=ramps)
    for value in values:
        average.add({"w": value})
    a, start = np.zeros(3), 1.0
    for t, value in enumerate(values.astype(np.float64)):
        d = min(decay, (1 + t) / (10 + t)) if ramps else decay
        a, start = d * a + (1 - d) * value, start * d
    np.testing.assert_allclose(mean_of(average), a / (1 - start), rtol=1e-4)


def test_a_moving_average_of_one_value_is_that_value() -> None:
    average = MovingAverage(0.999)
    average.add({"w": np.array([1.5, -2.0, 0.0], np.float32)})
    np.testing.assert_allclose(mean_of(average), [1.5, -2.0, 0.0], rtol=1e-4)


@pytest.mark.parametrize("decay", [1.0, -0.1, math.nan])
def test_a_decay_out_of_range_is_named(decay: float) -> None:
    with pytest.raises(ConfigError, match="moving average: decay: expected 0 or more"):
        MovingAverage(decay)
