# SPDX-License-Identifier: Apache-2.0
"""Gradient clipping against its formulas, dense and by rows."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.clip import clip_by_global_norm, clip_by_norm, clip_by_value
from paddle.optim.spec import RowGradient


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
    with pytest.raises(ConfigError, match="expected a number above 0"):
        clip_by_norm(vector(1), limit)


def test_a_gradient_that_is_no_number_is_named() -> None:
    with pytest.raises(ConfigError, match="gradient of parameter b is NaN"):
        clip_by_global_norm({"a": vector(1), "b": vector(math.nan)}, 1.0)
