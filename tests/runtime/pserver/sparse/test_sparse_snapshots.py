# SPDX-License-Identifier: Apache-2.0
"""A copy of a growing table is that of one batch, however much the table changes while it is taken."""

from __future__ import annotations

import queue
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import Block
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.ticks import MAX_AGE
from tests.runtime.pserver.sparse.table_of_rows import restore

WIDTH = 3
DEADLINE_S = 60.0
OPTIMIZER = OptimizerSpec("adagrad")


def table_of(max_age: int = 0, l2: float = 0.0, entry: int = 1) -> HashTable:
    parameter = ParameterSpec("emb", (1, WIDTH), l2=l2, sparse=True)
    return HashTable(TableSpec(parameter, Initial.uniform(-1, 1, 5), entry, max_age), OPTIMIZER)


def step(rng: np.random.Generator, pool: np.ndarray, count: int) -> list[RowGradient]:
    return [RowGradient(rng.choice(pool, count), rng.standard_normal((count, WIDTH)).astype(np.float32))]


def rows_of(blocks: list[Block]) -> dict[int, tuple[bytes, int]]:
    found: dict[int, tuple[bytes, int]] = {}
    for ids, parts, ticks in blocks:
        for i, row_id in enumerate(ids.tolist()):
            assert row_id not in found, "a row was copied twice"
            found[row_id] = (parts[:, i].tobytes(), int(ticks[i]))
    return found


@pytest.mark.parametrize("max_age", [0, 30])
@pytest.mark.parametrize("seed", range(3))
def test_a_copy_taken_while_rows_change_come_and_go_is_that_of_its_batch(seed: int, max_age: int) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.integers(-(2**63), 2**63 - 1, 60_000)
    table = table_of(max_age)
    for turn in range(60):
        table.update(step(rng, pool[: 1000 * (turn + 1)], 2000), 0.1)
    expected = rows_of(list(table.snapshot()))
    snapshot = table.snapshot()
    blocks = []
    while (block := snapshot.next_block()) is not None:
        blocks.append(block)
        for _ in range(int(rng.integers(0, 3))):
            table.update(step(rng, pool, 2000), 0.1)
        if rng.random() < 0.2:
            ids = rng.choice(pool, 500)
            table.assign(ids, np.ones((500, WIDTH), np.float32))
    assert table.clock > snapshot.header.clock
    assert rows_of(blocks) == expected


@pytest.mark.parametrize("seed", range(2))
def test_another_thread_may_copy_while_rows_change_come_and_go(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool = rng.integers(-(2**63), 2**63 - 1, 60_000)
    table = table_of(max_age=30)
    for turn in range(40):
        table.update(step(rng, pool[: 1500 * (turn + 1)], 4000), 0.1)
    expected = rows_of(list(table.snapshot()))
    snapshot = table.snapshot()
    blocks: list[Block] = []

    listed: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def copy_all() -> None:
        floats = np.empty(snapshot.floats_of_block, np.float32)
        while listed.get():
            while (block := snapshot.take(floats)) is not None:
                blocks.append(Block(block.ids, block.parts.copy(), block.ticks))

    copier = threading.Thread(target=copy_all)
    copier.start()
    deadline = time.monotonic() + DEADLINE_S
    try:
        while not snapshot.is_over:
            assert time.monotonic() < deadline
            table.update(step(rng, pool, 4000), 0.1)
            if snapshot.list_ahead():
                listed.put(True)
    finally:
        listed.put(False)
        copier.join(DEADLINE_S)
    assert table.clock > snapshot.header.clock
    assert rows_of(blocks) == expected


def test_a_row_that_changes_while_it_is_copied_is_as_it_was() -> None:
    table = table_of()
    ids = np.arange(2000)
    table.update([RowGradient(ids, np.ones((2000, WIDTH), np.float32))], 0.1)
    expected = rows_of(list(table.snapshot()))
    snapshot = table.snapshot()
    snapshot.list_ahead()
    changed = threading.Event()

    class Torn(np.ndarray[Any, Any]):  # whoever asks for room for rows is about to copy them
        def __getitem__(self, where: Any) -> Any:
            if not changed.is_set():
                changed.set()
                table.update([RowGradient(ids[::3], np.ones((667, WIDTH), np.float32))], 0.1)
            return np.asarray(super().__getitem__(where))

    first = snapshot.take(np.empty(snapshot.floats_of_block, np.float32).view(Torn))
    assert first is not None
    assert changed.is_set()
    blocks = [Block(first.ids, first.parts.copy(), first.ticks), *snapshot]
    assert rows_of(blocks) == expected


def test_two_copies_may_be_under_way_and_one_given_up_costs_nothing() -> None:
    rng = np.random.default_rng(6)
    table = table_of()
    expected, copies, blocks = [], [], []
    for _ in range(2):
        table.update(step(rng, np.arange(9000), 20_000), 0.1)
        expected.append(rows_of(list(table.snapshot())))
        copies.append(table.snapshot())
        blocks.append([copies[-1].next_block()])
    forgotten = weakref.ref(table.snapshot())
    table.update(step(rng, np.arange(9000), 20_000), 0.1)
    assert forgotten() is None
    for copy, taken, rows in zip(copies, blocks, expected, strict=True):
        assert rows_of([*filter(None, taken), *copy]) == rows


def test_a_copy_is_right_although_all_rows_decay_in_its_midst() -> None:
    rng = np.random.default_rng(1)
    table = table_of(l2=0.1)
    for _ in range(10):
        table.update(step(rng, np.arange(3000), 500), 0.1)
    expected = rows_of(list(table.snapshot()))
    snapshot = table.snapshot()
    blocks = [snapshot.next_block()]
    table.catch_up(0.1)
    table.update(step(rng, np.arange(3000), 500), 0.1)
    blocks += list(snapshot)
    assert rows_of([block for block in blocks if block is not None]) == expected


@pytest.mark.parametrize("max_age", [0, 700])
def test_a_full_copy_and_those_of_later_changes_make_the_table_again(max_age: int) -> None:
    rng = np.random.default_rng(2)
    pool = rng.integers(-(2**63), 2**63 - 1, 3000)
    table = table_of(max_age, entry=2)
    blocks: list[Block] = []
    since = None
    for turn in range(3000):
        count = 40 if turn % 3 == 0 else 0
        table.update(step(rng, pool[turn // 2 : turn // 2 + 300], count), 0.1)
        if turn % 500 == 250:
            snapshot = table.snapshot(since)
            blocks += list(snapshot)
            since = snapshot.header.clock
    snapshot = table.snapshot(since)
    delta = list(snapshot)
    assert 0 < sum(len(block.ids) for block in delta) < len(table)
    again = table_of(max_age, entry=2)
    restore(again, snapshot.header, blocks + delta)
    assert rows_of(list(again.snapshot())) == rows_of(list(table.snapshot()))
    for turn in range(300):
        more = step(rng, pool, 30 if turn % 2 else 0)
        table.update(more, 0.1)
        again.update(more, 0.1)
    assert rows_of(list(again.snapshot())) == rows_of(list(table.snapshot()))


def test_changes_since_a_batch_before_all_rows_decayed_are_all_rows() -> None:
    table = table_of(l2=0.1)
    table.update([RowGradient(np.arange(10), np.ones((10, WIDTH), np.float32))], 0.1)
    since = table.clock
    table.update([RowGradient(np.arange(2), np.ones((2, WIDTH), np.float32))], 0.1)
    assert len(rows_of(list(table.snapshot(since)))) == 2
    table.catch_up(0.1)
    assert len(rows_of(list(table.snapshot(since)))) == 10


def test_ages_stay_right_when_the_clock_passes_its_31_bits() -> None:
    table, young = table_of(max_age=50), table_of(max_age=50)
    rng = np.random.default_rng(4)
    header = table.snapshot().header
    start = 2**31 - 1024  # a multiple of the segments, so that both sweep the same ones
    restore(table, header._replace(clock=start, caught_up=start), [])
    for turn in range(3000):
        more = step(rng, np.arange(turn // 10, turn // 10 + 60), 5)
        table.update(more, 0.1)
        young.update(more, 0.1)
    assert table.clock == start + 3000
    assert len(table) == len(young)
    ids = np.arange(400)
    np.testing.assert_array_equal(table.lookup(ids, "zero"), young.lookup(ids, "zero"))


def test_rows_older_than_a_tick_can_say_are_not_taken_for_young_ones() -> None:
    table = table_of()
    table.update([RowGradient(np.arange(5), np.ones((5, WIDTH), np.float32))], 0.1)
    snapshot = table.snapshot()
    blocks = list(snapshot)
    old = table_of()
    restore(old, snapshot.header._replace(clock=MAX_AGE + 5), blocks)
    for _ in range(1024):
        old.update([], 0.1)
    ticks = [tick for _, tick in rows_of(list(old.snapshot())).values()]
    assert len(ticks) == 5
    assert min(ticks) > 1


def test_rows_of_another_shape_are_not_restored() -> None:
    table = table_of()
    table.update([RowGradient(np.arange(5), np.ones((5, WIDTH), np.float32))], 0.1)
    snapshot = table.snapshot()
    blocks = [block for block in snapshot if len(block.ids)]
    wrong = [block._replace(parts=block.parts[:1]) for block in blocks]
    with pytest.raises(PserverError, match=r"rows to restore: expected \(2, (\d), 3\), got \(1, \1, 3\)"):
        restore(table_of(), snapshot.header, wrong)
