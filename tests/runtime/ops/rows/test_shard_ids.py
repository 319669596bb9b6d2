# SPDX-License-Identifier: Apache-2.0
"""Ids and rows go to their shards and come back, and each server is asked once; ids are hashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from paddle import graph
from paddle.graph import Executor, Program, SelectedRows
from paddle.graph.errors import ExecutionError
from tests.runtime.ops.run_op import run_op

ROWS, WIDTH = 10, 2


def _run(op_type: str, inputs: dict[str, list[Any]], outputs: list[str]) -> list[Any]:
    program = Program()
    block, feed = program.global_block(), {}
    for slot, values in inputs.items():
        for at, value in enumerate(values):
            feed[f"{slot}{at}"] = value
            block.create_var(f"{slot}{at}", value.shape, value.dtype)
    for name in outputs if op_type == "split_ids" else ():
        block.create_var(name, (-1, 1), "int64")
    names = {slot: [f"{slot}{at}" for at in range(len(values))] for slot, values in inputs.items()}
    block.append_op(op_type, names, {"Out": outputs})
    return Executor().run(program, feed, outputs)


def test_ids_go_to_shards_once_and_in_order_as_unsigned_numbers() -> None:
    even, odd = _run("split_ids", {"Ids": [np.array([[7], [2]]), np.array([[7], [-1]])]}, ["a", "b"])
    assert (even.tolist(), odd.tolist()) == ([[2]], [[-1], [7]])
    parts = _run("split_ids", {"Ids": [np.array([[-1]])]}, ["a", "b", "c"])
    assert [len(each) for each in parts] == [1, 0, 0]


def test_selected_rows_keep_their_numbers_order_and_height() -> None:
    rows = SelectedRows(np.array([5, 2, 5, 4]), np.arange(8.0).reshape(4, 2), 9)
    even, odd = _run("split_ids", {"Ids": [rows]}, ["a", "b"])
    assert (even.rows.tolist(), odd.rows.tolist(), odd.height) == ([2, 4], [5, 5], 9)
    assert odd.values.tolist() == [[0, 1], [4, 5]]


def test_rows_come_back_for_the_ids_that_were_asked() -> None:
    inputs = {
        "Ids": [np.array([[3], [0]]), np.array([[1], [3]])],
        "Rows": [np.array([[0]]), np.array([[1], [3]])],
        "X": [np.array([[0.0, 0]]), np.array([[1.0, 1], [3, 3]])],
    }
    first, second = _run("merge_ids", inputs, ["a", "b"])
    assert (first[:, 0].tolist(), second[:, 0].tolist()) == ([3, 0], [1, 3])


def test_an_id_that_two_shards_have_is_refused() -> None:
    inputs = {
        "Ids": [np.array([[1]])],
        "Rows": [np.array([[1]]), np.array([[1]])],
        "X": [np.ones((1, 1))] * 2,
    }
    with pytest.raises(ExecutionError, match="must be distinct"):
        _run("merge_ids", inputs, ["a"])


def test_equal_rows_are_added_up_and_values_taken_out() -> None:
    program = Program()
    block = program.global_block()
    block.create_var("x", (9, 1), "float64")
    block.append_op("merge_selected_rows", {"X": "x"}, {"Out": "merged"})
    block.append_op("get_tensor_from_selected_rows", {"X": "merged"}, {"Out": "values"})
    rows = SelectedRows(np.array([5, 2, 5]), np.array([[1.0], [2], [3]]), 9)
    merged, values = Executor().run(program, {"x": rows}, ["merged", "values"])
    assert (merged.rows.tolist(), values[:, 0].tolist()) == ([2, 5], [2, 4])


def test_hashes_depend_on_all_ids_of_a_row_and_stay_below_the_size() -> None:
    ids = np.array([[1, 2], [2, 1], [1, 2]])
    (out,) = run_op("hash", {"X": ids}, {"num_hash": 4, "mod_by": 1000})
    assert out.shape == (3, 4, 1)
    assert (out[0] == out[2]).all()
    assert (out[0] != out[1]).all()
    (many,) = run_op("hash", {"X": np.arange(20_000)[:, None]}, {"mod_by": 10})
    assert np.bincount(many.reshape(-1), minlength=10).min() > 1700


class Servers:
    """Slices of a table: rows 0 to 5 are "t.block0" at "a", 6 to 9 "t.block1" at "b"."""

    def __init__(self) -> None:
        self.table = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) + 100
        self.asked: list[tuple[str, str, list[int]]] = []

    def lookup(self, names: Sequence[str], ids: Sequence[Any], endpoints: Sequence[str]) -> list[Any]:
        found = []
        for name, each, endpoint in zip(names, ids, endpoints, strict=True):
            self.asked.append((endpoint, name, each.tolist()))
            found.append(self.table[each + (6 if name == "t.block1" else 0)])
        return found

    peers = None

    def send(self, names: Sequence[str], values: Sequence[Any], endpoints: Sequence[str]) -> None: ...

    def finish_sending(self, endpoints: Sequence[str]) -> None: ...

    def receive(self, names: Sequence[str], endpoints: Sequence[str]) -> list[Any]:
        return []

    def finish_receiving(self, endpoints: Sequence[str]) -> None: ...

    def save(self, name: str, paths: Mapping[str, str]) -> None: ...


def run(servers: Servers, *ids: list[int], padding_idx: int = -1) -> tuple[list[Any], Any]:
    """Look ids up; return the rows of each and the trainer's own copy of the table after it."""
    program = graph.Program()
    block = program.global_block()
    block.create_var("t", (ROWS, WIDTH), persistable=True)
    names = [f"ids{at}" for at in range(len(ids))]
    for name in names:
        block.create_var(name, (-1, 1), "int64")
    outputs = [f"out{at}" for at in range(len(ids))]
    block.append_op(
        "distributed_lookup_table",
        {"Ids": names, "W": ["t"]},
        {"Outputs": outputs, "WOut": ["t"]},
        {
            "table_names": ("t.block0", "t.block1"),
            "height_sections": (6, 4),
            "endpoints": ("a", "b"),
            "padding_idx": padding_idx,
        },
    )
    scope = graph.Scope()
    scope.set("t", np.zeros((ROWS, WIDTH), np.float32))
    feed = {name: np.array(each, np.int64)[:, None] for name, each in zip(names, ids, strict=True)}
    found = graph.Executor(remote=servers).run(program, feed, outputs, scope)
    return found, scope.get("t")


def test_each_row_is_asked_for_once_and_given_to_all_who_want_it() -> None:
    servers = Servers()
    (first, second), own = run(servers, [7, 1, 7], [1, 9])
    assert servers.asked == [("a", "t.block0", [1]), ("b", "t.block1", [1, 3])]
    np.testing.assert_array_equal(first, servers.table[[7, 1, 7]])
    np.testing.assert_array_equal(second, servers.table[[1, 9]])
    np.testing.assert_array_equal(own[[1, 7, 9]], servers.table[[1, 7, 9]])
    assert not own[[0, 2, 3, 4, 5, 6, 8]].any()


def test_a_server_that_has_no_wanted_row_is_not_asked() -> None:
    servers = Servers()
    run(servers, [6, 6])
    assert servers.asked == [("b", "t.block1", [0])]


def test_padding_is_zero_and_fetched_from_nowhere() -> None:
    servers = Servers()
    (rows,), _ = run(servers, [2, 3], padding_idx=3)
    assert servers.asked == [("a", "t.block0", [2])]
    np.testing.assert_array_equal(rows, [servers.table[2], [0, 0]])


@pytest.mark.parametrize("wrong", [-1, ROWS])
def test_an_id_beyond_the_table_is_refused(wrong: int) -> None:
    with pytest.raises(ExecutionError, match=rf"id {wrong} is not in \[0, {ROWS}\)"):
        run(Servers(), [1, wrong], padding_idx=5)
