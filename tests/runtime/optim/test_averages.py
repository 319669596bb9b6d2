# SPDX-License-Identifier: Apache-2.0
"""Averages of values against sums over all that was ever added; gradient clipping against its formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.clip import clip_by_global_norm, clip_by_norm, clip_by_value
from paddle.optim.model_average import ModelAverage
from paddle.optim.spec import RowGradient


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


def vector(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32)


def test_by_value_bounds_every_element() -> None:
    assert clip_by_value(vector(-3, -0.5, 0, 2), -1.0, 0.5).tolist() == [-1, -0.5, 0, 0.5]


def test_by_norm_keeps_the_direction() -> None:
    g = np.random.default_rng(1).standard_normal((7, 5)).astype(np.float32)
    clipped = clip_by_norm(g, 2.0)
    np.testing.assert_allclose(clipped, g * 2.0 / np.linalg.norm(g.astype(np.float64)), rtol=1e-6)
    assert clipped.dtype == np.float32


def test_a_gradient_within_bounds_is_returned_itself() -> None:
    g = vector(3, 4)
    assert clip_by_norm(g, 5.0) is g
    assert clip_by_global_norm({"a": g}, 6.0)["a"] is g


def test_by_global_norm_scales_all_alike_rows_too() -> None:
    rows = RowGradient(np.array([2, 9], np.int64), np.array([[0, 2], [4, 0]], np.float32))
    dense = vector(4, 0, 0)
    gradients = {"a": dense, "b": vector(8), "emb": rows}
    norm = math.sqrt(16 + 64 + 4 + 16)
    clipped = clip_by_global_norm(gradients, 5.0)
    np.testing.assert_allclose(clipped["a"], vector(4, 0, 0) * 5 / norm)
    np.testing.assert_allclose(clipped["b"], vector(8) * 5 / norm)
    np.testing.assert_allclose(clipped["emb"].values, rows.values * 5 / norm)
    assert clipped["emb"].rows is rows.rows
    assert dense.tolist() == [4, 0, 0]


def test_gradients_whose_squares_overflow_are_clipped_all_the_same() -> None:
    np.testing.assert_allclose(clip_by_norm(vector(3e30, 4e30), 5.0), [3, 4], rtol=1e-6)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.inf, math.nan])
def test_a_limit_that_is_none_is_refused(limit: float) -> None:
    with pytest.raises(ConfigError, match="above 0, got"):
        clip_by_norm(vector(1), limit)


def test_a_gradient_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="gradient of parameter b contains NaN"):
        clip_by_global_norm({"a": vector(1), "b": vector(math.nan)}, 1.0)
