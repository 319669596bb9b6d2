# SPDX-License-Identifier: Apache-2.0
"""distributed_lookup_table asks each server once for the rows that it has, numbered as it numbers them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from paddle import graph
from paddle.graph.errors import ExecutionError

ROWS, WIDTH = 10, 2


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
