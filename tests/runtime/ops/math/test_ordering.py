# SPDX-License-Identifier: Apache-2.0
"""Order along an axis: running sums, sorting, the greatest values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(6).standard_normal((3, 4))


def test_top_k_is_descending_and_takes_the_first_of_equal_values() -> None:
    values, indices = run_op("top_k", {"X": np.array([[1.0, 5.0, 5.0, 3.0]])}, {"k": 3})
    assert values.tolist() == [[5.0, 5.0, 3.0]]
    assert indices.tolist() == [[1, 2, 3]]
    assert run_op("top_k", {"X": np.array([[1.0, 5.0, 5.0]])})[1].tolist() == [[1]]


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_agrees_with_a_stable_sort_where_many_values_are_equal(k: int) -> None:
    x = np.random.default_rng(k).integers(0, 4, (2, 20, 9)).astype("float32")
    values, indices = run_op("top_k", {"X": x}, {"k": k})
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, -1))


def test_top_k_of_an_empty_batch_and_of_rows_with_nan_keeps_its_shape() -> None:
    assert run_op("top_k", {"X": np.zeros((0, 4))}, {"k": 2})[1].shape == (0, 2)
    assert run_op("top_k", {"X": np.full((2, 4), np.nan)}, {"k": 2})[1].shape == (2, 2)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [1, 3, 6]),
        ({"exclusive": True}, [0, 1, 3]),
        ({"reverse": True}, [6, 5, 3]),
        ({"exclusive": True, "reverse": True}, [5, 3, 0]),
    ],
)
def test_running_sums_start_at_either_end(attrs: dict[str, bool], expected: list[float]) -> None:
    assert run_op("cumsum", {"X": np.array([1.0, 2, 3])}, attrs)[0].tolist() == expected


def test_sorting_tells_where_values_were() -> None:
    values, places = run_op("argsort", {"X": _X}, {"axis": 0})
    np.testing.assert_array_equal(values, np.sort(_X, axis=0))
    np.testing.assert_array_equal(places, np.argsort(_X, axis=0))


def test_an_axis_turns_round() -> None:
    np.testing.assert_array_equal(run_op("reverse", {"X": _X}, {"axis": [0]})[0], _X[::-1])
