# SPDX-License-Identifier: Apache-2.0
"""Sparse rows: merging, summing, gathering; and tables read by id."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope
from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.selected_rows import SelectedRows, concatenated, merge_rows
from tests.runtime.ops.run_op import run_op


def _rows(rows: list[int], values: list[list[float]], height: int = 10) -> SelectedRows:
    return SelectedRows(
        np.array(rows, "int64"), np.array(values).reshape(len(rows), len(values[0]) if values else 1), height
    )


def test_merging_makes_rows_unique_and_ascending_and_adds_their_values() -> None:
    merged = _rows([7, 2, 7], [[1, 2], [3, 4], [10, 20]]).merged()
    assert merged.rows.tolist() == [2, 7]
    assert merged.values.tolist() == [[3, 4], [11, 22]]
    assert merged.shape == (10, 2)


def test_the_sum_of_a_row_does_not_depend_on_the_rows_between() -> None:
    rng = np.random.default_rng(0)
    rows, values = rng.integers(0, 5, 200), rng.standard_normal((200, 3)).astype("float32") * 1e4
    merged = SelectedRows(rows, values, 5).merged()
    for at, row in enumerate(merged.rows):
        alone = SelectedRows(rows[rows == row], values[rows == row], 5).merged()
        np.testing.assert_array_equal(alone.values[0], merged.values[at])


@pytest.mark.parametrize("count", [0, 1])
def test_merging_few_rows_changes_nothing(count: int) -> None:
    merged = _rows([3][:count], [[5.0]][:count]).merged()
    assert merged.rows.tolist() == [3][:count]


def test_dense_form_has_zeros_where_no_row_is() -> None:
    dense = _rows([1, 1], [[2.0], [3.0]], height=3).to_dense()
    assert dense.tolist() == [[0], [5], [0]]


def test_joined_parts_keep_their_order() -> None:
    joined = concatenated([_rows([4, 1], [[1], [2]]), _rows([1], [[3]])])
    assert joined.rows.tolist() == [4, 1, 1]
    assert joined.merged().values.tolist() == [[5], [1]]


def test_gathering_finds_rows_by_id_in_any_order() -> None:
    cache = _rows([2, 5, 9], [[0.2], [0.5], [0.9]])
    assert cache.gather(np.array([9, 2, 9])).tolist() == [[0.9], [0.2], [0.9]]


@pytest.mark.parametrize("ids", [[3], [99], [2, -1, 0]])
def test_a_row_that_is_not_there_is_named(ids: list[int]) -> None:
    missing = next(number for number in ids if number != 2)
    with pytest.raises(InputError, match=rf"row {missing} is not among the 2 rows of this SelectedRows"):
        _rows([2, 5], [[0.2], [0.5]]).gather(np.array(ids))


def test_an_empty_cache_has_no_row() -> None:
    empty = _rows([], [])
    with pytest.raises(InputError, match="row 0 is not among the 0 rows"):
        empty.gather(np.array([0]))


def test_rows_and_values_must_fit() -> None:
    with pytest.raises(ShapeError, match=r"rows \(n,\) int64.*got \(2,\) int32"):
        SelectedRows(np.zeros(2, "int32"), np.zeros((2, 3)), 5)


def test_scaling_keeps_the_rows() -> None:
    program = Program()
    block = program.global_block()
    block.create_var("x", (10, 1), "float64", persistable=True)
    block.append_op("scale", {"X": "x"}, {"Out": "y"}, {"scale": 3.0})
    scope = Scope()
    scope.set("x", _rows([4, 1], [[1.0], [2.0]]))
    (out,) = Executor().run(program, {}, ["y"], scope)
    assert out.rows.tolist() == [4, 1]
    assert out.values.tolist() == [[3.0], [6.0]]


def test_a_table_gives_rows_by_id_and_zeros_for_padding() -> None:
    table = np.arange(6.0).reshape(3, 2) + 1
    ids = np.array([[2], [0], [2]])
    assert run_op("lookup_table", {"W": table, "Ids": ids})[0].tolist() == table[[2, 0, 2]].tolist()
    padded = run_op("lookup_table", {"W": table, "Ids": ids}, {"padding_idx": 2})[0]
    assert padded.tolist() == [[0, 0], [1, 2], [0, 0]]


@pytest.mark.parametrize("bad", [3, -1])
def test_an_id_outside_of_the_table_is_refused(bad: int) -> None:
    with pytest.raises(ExecutionError, match=rf"id {bad} is not in \[0, 3\)"):
        run_op("lookup_table", {"W": np.zeros((3, 2)), "Ids": np.array([[0], [bad]])})


@pytest.mark.parametrize("rows", [[-3, 5, 5, -3, 2], [1 << 61, 4, 1 << 61]])
def test_rows_that_no_key_has_room_for_are_merged_too(rows: list[int]) -> None:
    merged, summed = merge_rows(np.array(rows), np.ones((len(rows), 1), "float32"))
    assert merged.tolist() == sorted(set(rows))
    assert summed[:, 0].tolist() == [rows.count(row) for row in sorted(set(rows))]
