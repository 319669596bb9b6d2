# SPDX-License-Identifier: Apache-2.0
"""Averages of a model's values against sums over all that was ever added."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.optim.model_average import ModelAverage


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


def mean_of(average: ModelAverage) -> np.ndarray:
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
    average = ModelAverage(0.5, 3)
    for _ in range(9):
        average.add({"w": value})
    assert value.tolist() == [1, 1, 1]
