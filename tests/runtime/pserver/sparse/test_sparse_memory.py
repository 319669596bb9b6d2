# SPDX-License-Identifier: Apache-2.0
"""What growing tables cost: bytes a row, memory touched ahead, an even spread, no compiler before it is needed."""

from __future__ import annotations

import ctypes
import mmap
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.mixing import owners
from paddle.pserver.sparse.slabs import Slabs, Toucher, map_memory
from paddle.pserver.sparse.snapshot import TableSnapshot
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.tiered_table import TieredTable
from tests.runtime.pserver.sparse.table_of_rows import INITIALS, arbitrary_ids, table_of


def test_a_table_takes_at_most_20_bytes_a_row_beside_its_floats() -> None:
    table = table_of(INITIALS["uniform"], 4)
    ids = arbitrary_ids(300_000)
    for start in range(0, len(ids), 30_000):
        part = ids[start : start + 30_000]
        table.update([RowGradient(part, np.zeros((len(part), 4), np.float32))], 0.1)
    assert (len(table), table.shape) == (len(ids), (2, 4))
    assert table.nbytes / len(table) - 2 * 4 * 4 < 20


@pytest.mark.parametrize("has_disk", [False, True])
def test_memory_of_a_batch_beyond_the_budget_is_returned(tmp_path: Path, has_disk: bool) -> None:
    budget = Budget(8 << 20, "lfu", disk=str(tmp_path) if has_disk else "")
    spec = TableSpec(ParameterSpec("emb", (1, 64), sparse=True), INITIALS["uniform"], budget=budget)
    table = (TieredTable if has_disk else HashTable)(spec, OptimizerSpec("adagrad"))
    often = arbitrary_ids(2000, seed=1)
    for batch in range(60):  # the 5th one needs 30 MB
        new = arbitrary_ids(60_000 if batch == 4 else 100, seed=2 + batch)
        ids = np.concatenate([often, new])
        table.update([RowGradient(ids, np.ones((len(ids), 64), np.float32))], 0.1)
        if batch == 4:
            assert table.nbytes > 3 * budget.memory
            expected = {each: row.tobytes() for each, row in zip(*_copied(table.snapshot()), strict=True)}
            snapshot = table.snapshot()
    assert table.nbytes < 1.31 * budget.memory  # an index does not shrink
    assert {each: row.tobytes() for each, row in zip(*_copied(snapshot), strict=True)} == expected
    plain = HashTable(replace(spec, budget=Budget()), OptimizerSpec("adagrad"))
    for _ in range(60):
        plain.update([RowGradient(often, np.ones((2000, 64), np.float32))], 0.1)
    np.testing.assert_array_equal(table.lookup(often), plain.lookup(often))


def _copied(snapshot: TableSnapshot) -> tuple[list[int], np.ndarray]:
    blocks = list(snapshot)
    return np.concatenate([each.ids for each in blocks]).tolist(), np.concatenate(
        [each.parts.transpose(1, 0, 2) for each in blocks]
    )


def resident_pages(memory: np.ndarray) -> int:
    """Pages of some memory that the kernel has found already."""
    pages = np.zeros(-(-memory.nbytes // mmap.PAGESIZE), np.uint8)
    mincore = ctypes.CDLL(None).mincore
    mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
    assert mincore(memory.ctypes.data, memory.nbytes, pages.ctypes.data) == 0
    return int((pages & 1).sum())


def test_memory_is_touched_ahead_and_keeps_its_content() -> None:
    size = 16 << 20
    memory = map_memory(4 * size)
    memory[:8] = range(8)
    toucher = Toucher()
    toucher.touch(memory, 0, size)
    toucher.touch(memory, 3 * size - 5000, 3 * size)  # in whole pages
    expected, deadline = (size + 4096) // mmap.PAGESIZE, time.monotonic() + 20
    while resident_pages(memory) < expected and time.monotonic() < deadline:
        time.sleep(0.005)
    assert expected <= resident_pages(memory) < 3 * size // mmap.PAGESIZE
    assert memory[:9].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 0]


def test_what_is_written_while_memory_is_touched_stays() -> None:
    memory, toucher = map_memory(32 << 20), Toucher()
    expected = np.resize(np.arange(251, dtype=np.uint8), memory.nbytes)
    toucher.touch(memory, 0, memory.nbytes)
    memory[:] = expected
    deadline = time.monotonic() + 20
    while not toucher.is_idle and time.monotonic() < deadline:
        time.sleep(0.005)
    np.testing.assert_array_equal(memory, expected)


def test_memory_made_ready_for_fast_growth_is_given_back_once_it_ends() -> None:
    slabs = []

    def allocate(nbytes: int) -> np.ndarray:
        slabs.append(map_memory(nbytes))
        return slabs[-1]

    def resident() -> int:
        return mmap.PAGESIZE * sum(resident_pages(slab) for slab in slabs)

    spec = TableSpec(ParameterSpec("emb", (1, 64), sparse=True), INITIALS["uniform"])
    table = HashTable(spec, OptimizerSpec("adagrad"), allocate)
    ids = arbitrary_ids(120_000)
    row_bytes, gradient = 516, np.ones((40_000, 64), np.float32)
    for start in (0, 40_000):
        table.update([RowGradient(ids[start : start + 40_000], gradient)], 0.1)
    deadline = time.monotonic() + 20
    while resident() < 120_000 * row_bytes and time.monotonic() < deadline:
        time.sleep(0.005)
    assert resident() >= 120_000 * row_bytes  # the next batch's, too
    before = table.lookup(ids)
    while resident() > 80_000 * row_bytes + (12 << 20) and time.monotonic() < deadline:
        table.update([], 0.1)
    assert resident() <= 80_000 * row_bytes + (12 << 20)
    np.testing.assert_array_equal(table.lookup(ids), before)
    table.update([RowGradient(ids[80_000:], 0 * gradient)], 0.1)
    np.testing.assert_array_equal(table.lookup(ids), before)


@pytest.mark.parametrize("num_servers", [1, 3, 8, 64])
def test_ids_of_any_pattern_spread_evenly_over_servers(num_servers: int) -> None:
    for ids in (arbitrary_ids(64_000), np.arange(64_000) * 64, np.arange(64_000) << 40, -np.arange(64_000)):
        share = np.bincount(owners(ids, num_servers), minlength=num_servers) / len(ids)
        assert len(share) == num_servers
        assert share.max() < 1.25 / num_servers
        assert share.min() > 0.75 / num_servers


def test_where_no_thread_can_be_started_memory_is_not_touched_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    memory, toucher = map_memory(1 << 20), Toucher()
    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", refuse)
        toucher.touch(memory, 0, 4096)
        assert toucher.is_idle
    toucher.touch(memory, 0, 4096)
    deadline = time.monotonic() + 10
    while resident_pages(memory) != 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert resident_pages(memory) == 1


@pytest.mark.parametrize("most_slabs", [1, 16])
def test_a_large_tables_slabs_share_huge_pages_where_so_much_can_be_mapped_at_once(most_slabs: int) -> None:
    width, rows_of_slab = 4096, 1024
    slab, sizes = (4 * width + 4) * rows_of_slab, list[int]()

    def allocate(nbytes: int) -> np.ndarray:
        if nbytes > most_slabs * slab:
            raise MemoryError(nbytes)
        sizes.append(nbytes)
        memory = map_memory(nbytes)
        assert memory.ctypes.data % (2 << 20) == 0
        return memory

    slabs = Slabs(width, 1, INITIALS["constant"], allocate)
    slabs.reserve(7 * rows_of_slab, 0)
    assert sizes == [slab] * 4 + ([slab] * 3 if most_slabs == 1 else [16 * slab])
    numbers = slabs.next_numbers(7 * rows_of_slab)[rows_of_slab - 1 :: rows_of_slab].copy()
    parts, ticks = np.ones((1, 7, width), np.float32), np.arange(7, dtype=np.uint32)
    parts[0] *= ticks[:, None]
    slabs.rows.scatter(numbers, parts, ticks)
    for array, expected in zip(slabs.gathered(numbers), (parts, ticks), strict=True):
        np.testing.assert_array_equal(array, expected)
