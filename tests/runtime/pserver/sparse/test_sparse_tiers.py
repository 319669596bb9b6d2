# SPDX-License-Identifier: Apache-2.0
"""A table with rows on disk holds the bits of one that fits in memory, after any operations and while it is copied."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from paddle.errors import ConfigError, DiskError, PserverError
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver import GrowingTable
from paddle.pserver.sparse.blocks import ROW_DTYPES
from paddle.pserver.sparse.budget import Budget
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.ticks import MAX_AGE
from paddle.pserver.sparse.tiered_table import TieredTable
from paddle.pserver.sparse.walk import Cursor
from tests.runtime.pserver.sparse.table_of_rows import restore
from tests.runtime.pserver.sparse.test_sparse_tables_agree import content, pool_of, waiting

WIDTH = 3
ROW = 4 * 2 * (WIDTH + 1) + 4 + 17  # with one state and a score
ADAGRAD = OptimizerSpec("adagrad")

# A failing case is not made smaller: that takes minutes.
RANDOM = (Phase.explicit, Phase.reuse, Phase.generate)

pytestmark = pytest.mark.usefixtures("form")


def spec_of(
    folder: Path, rows: int, evict: str = "lru", entry: int = 1, max_age: int = 0, dtype: str = "float32"
) -> TableSpec:
    budget = Budget(rows * ROW, evict, 0.9, min_score=0.2 * (evict == "score"), disk=str(folder))
    parameter = ParameterSpec("emb", (1, WIDTH), l2=0.01, sparse=True)
    return TableSpec(parameter, Initial.uniform(-0.5, 0.5, 11), entry, max_age, budget=budget, dtype=dtype)


def in_memory(spec: TableSpec) -> TableSpec:
    """The same table without a bound."""
    return replace(spec, budget=replace(spec.budget, memory=0, disk=""))


def step(rng: np.random.Generator, pool: np.ndarray, count: int) -> list[RowGradient]:
    return [
        RowGradient(rng.choice(pool, count), rng.standard_normal((count, WIDTH)).astype(np.float32))
        for _ in range(2)
    ]


@settings(max_examples=4, suppress_health_check=list(HealthCheck), deadline=None, phases=RANDOM)
@given(
    st.lists(st.tuples(st.sampled_from("uuuuaiscdrx"), st.integers(0, 40)), max_size=10),
    st.sampled_from(["lru", "lfu", "score"]),
    st.sampled_from(["adagrad", "decayed_adagrad"]),
    st.sampled_from(ROW_DTYPES),
    st.integers(0, 2**32),
)
def test_any_operations_leave_what_a_table_in_memory_has(
    tmp_path: Path, operations: list[tuple[str, int]], evict: str, rule: str, dtype: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    pool = pool_of(rng, 80)
    entry, max_age = int(rng.integers(1, 3)), int(rng.choice([0, 30]))
    spec = spec_of(tmp_path, int(rng.integers(1, 40)), evict, entry, max_age, dtype)
    optimizer = OptimizerSpec(rule)
    one: Any = TieredTable(spec, optimizer)
    other = HashTable(in_memory(spec), optimizer)
    copies: list[tuple[Any, Any]] = []
    for what, count in operations:
        if what in "ud":
            steps = step(rng, pool, count)
            before = one.snapshot(copies[-1][0].clock if copies else None) if what == "d" else None
            expected = content(other.snapshot(copies[-1][0].clock if copies else None)) if before else {}
            blocks: Any = [before.next_block()] if before and count % 2 else []
            one.update(steps, 0.1)
            other.update(steps, 0.1)
            if before:
                blocks = [block for block in [*blocks, *before] if block is not None]
                assert content(blocks) == expected
                copies.append((before.header, blocks))
        elif what == "a":
            ids = np.unique(rng.choice(pool, count))
            values = rng.standard_normal((len(ids), WIDTH)).astype(np.float32)
            one.assign(ids, values)
            other.assign(ids, values)
        elif what == "i":
            for _ in range(2 * count):
                one.update([], 0.1)
                other.update([], 0.1)
        elif what == "s" and evict != "lru":
            assert one.shrink(count / 10) == other.shrink(count / 10)
        elif what == "c":
            one.catch_up(0.1)
            other.catch_up(0.1)
        elif what in "rx":
            snapshot = one.snapshot(copies[-1][0].clock if copies else None)
            copies.append((snapshot.header, list(snapshot)))
            one = TieredTable(spec, optimizer) if what == "r" else HashTable(in_memory(spec), optimizer)
            for header, blocks in copies:
                one.forget(header.dropped)
                for block in blocks:
                    one.fill(block)
            one.resume(copies[-1][0])
            if what == "x":  # and back from the one without a disk
                snapshot, one = one.snapshot(), TieredTable(spec, optimizer)
                restore(one, snapshot.header, list(snapshot))
            copies = []
        assert len(one) == len(other)
    np.testing.assert_array_equal(one.lookup(pool), other.lookup(pool))
    np.testing.assert_array_equal(one.lookup(pool, "zero"), other.lookup(pool, "zero"))
    assert content(one.snapshot()) == content(other.snapshot())
    assert waiting(one) == waiting(other)


@pytest.mark.parametrize("rows", [0, 100])
def test_readers_and_checkpoints_do_not_apply_pending_decay(tmp_path: Path, rows: int) -> None:
    spec = spec_of(tmp_path, rows) if rows else in_memory(spec_of(tmp_path, 100))
    make = TieredTable if rows else HashTable
    pool, tables = np.arange(400), [make(spec, ADAGRAD), make(spec, ADAGRAD)]
    for number in range(12):
        for table in tables:
            table.update(step(np.random.default_rng(number), pool, 40), 0.1)
        tables[0].lookup(pool)
        assert content(tables[0].snapshot())
        assert len(tables[0].walk(Cursor(), None, 1000)[0].ids)
    for table in tables:
        table.catch_up(0.1)
    assert content(tables[0].snapshot()) == content(tables[1].snapshot())


def test_rows_beyond_the_memory_are_on_disk_and_come_back(tmp_path: Path) -> None:
    table = TieredTable(spec_of(tmp_path, 500), ADAGRAD)
    rng = np.random.default_rng(1)
    for _ in range(10):
        table.update(step(rng, np.arange(4000), 500), 0.1)
    assert len(table) > 2000 > 700 > len(table) - len(table._disk)
    assert table.disk_bytes >= 4 * 2 * WIDTH * len(table._disk)
    assert list(tmp_path.iterdir()) == []  # the file has no name: nothing stays after a kill
    brought = table.counts.brought
    assert 0 < brought < table.counts.asked - table.counts.made
    assert table.counts.found == table.counts.asked - table.counts.made - brought


def test_a_walk_meets_rows_in_memory_and_on_disk(tmp_path: Path) -> None:
    spec, rng = spec_of(tmp_path, 60), np.random.default_rng(4)
    one, other = TieredTable(spec, ADAGRAD), HashTable(in_memory(spec), ADAGRAD)
    for _ in range(6):
        steps = step(rng, np.arange(600), 100)
        one.update(steps, 0.1)
        other.update(steps, 0.1)
    assert len(one._disk) > 100
    for since in (None, 4):
        walked = []
        for table in (one, other):
            at, found = Cursor(), {}
            while not at.is_over:
                rows, at, _ = table.walk(at, since, 50, with_states=True)
                assert rows.states is not None
                for row_id, *row in zip(rows.ids.tolist(), rows.rows, rows.ages, rows.states, strict=True):
                    assert row_id not in found
                    found[row_id] = [each.tobytes() for each in row]
            walked.append(found)
        assert walked[0] == walked[1]
        assert len(walked[0]) == len(one) if since is None else 0 < len(walked[0]) < len(one)


def test_a_full_disk_refuses_batches_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, rng = spec_of(tmp_path, 50), np.random.default_rng(2)
    one, other = TieredTable(spec, ADAGRAD), HashTable(in_memory(spec), ADAGRAD)
    steps = [step(rng, np.arange(3000), 300) for _ in range(4)]

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        one.update(steps[0], 0.1)  # whose rows stay in memory
        other.update(steps[0], 0.1)
        for _ in range(2):
            with pytest.raises(
                DiskError,
                match=r"cannot grow beyond slot .*: No space left on device; nothing was changed; free",
            ):
                one.update(steps[1], 0.1)
        assert one.clock == 1
        assert content(one.snapshot()) == content(other.snapshot())
    for each in steps[1:]:  # once there is room again
        one.update(each, 0.1)
        other.update(each, 0.1)
    assert len(one._disk) > 100
    assert content(one.snapshot()) == content(other.snapshot())


def test_a_copy_has_the_rows_whose_old_ticks_are_rewritten(tmp_path: Path) -> None:
    table, late = (TieredTable(spec_of(tmp_path, 50), ADAGRAD) for _ in range(2))
    table.update([RowGradient(np.arange(400), np.ones((400, WIDTH), np.float32))], 0.1)
    first = table.snapshot()
    restore(late, first.header._replace(clock=MAX_AGE + 5), list(first))
    late.update([], 0.1)
    copy, rows = late.snapshot(), late.lookup(np.arange(400))
    for _ in range(SEGMENTS):
        late.update([], 0.1)
    os.ftruncate(late._disk.file._fd, 0)  # the copy needs none of them from the disk
    found = {
        int(one): row[:WIDTH] for block in copy for one, row in zip(block.ids, block.parts[0], strict=True)
    }
    np.testing.assert_array_equal([found[one] for one in range(400)], rows)


def test_rows_that_cannot_be_written_stay_in_memory(tmp_path: Path) -> None:
    spec, rng = spec_of(tmp_path, 50), np.random.default_rng(7)
    one, other = TieredTable(spec, ADAGRAD), HashTable(in_memory(spec), ADAGRAD)
    steps = [step(rng, np.arange(900), 200) for _ in range(6)]
    for each in steps[:3]:
        one.update(each, 0.1)
        other.update(each, 0.1)
    good, bad = one._disk.file._fd, os.open("/dev/full", os.O_RDWR)
    new = [RowGradient(np.arange(2000, 2400), np.ones((400, WIDTH), np.float32))]
    one._disk.file._fd = bad
    try:
        one.update(new, 0.1)  # whose rows stay in memory
        other.update(new, 0.1)
        with pytest.raises(DiskError, match=r"cannot write slot .*: No space left on device; nothing was"):
            one.update([], 0.1)
    finally:
        one._disk.file._fd = good
        os.close(bad)
    assert one.clock == other.clock
    for each in steps[3:]:
        one.update(each, 0.1)
        other.update(each, 0.1)
    assert len(one._disk) > 1000
    assert content(one.snapshot()) == content(other.snapshot())


def test_a_lost_row_refuses_its_batch_and_copies_and_nothing_else(tmp_path: Path) -> None:
    spec, rng = spec_of(tmp_path, 50, "lfu"), np.random.default_rng(6)
    one, other = TieredTable(spec, ADAGRAD), HashTable(in_memory(spec), ADAGRAD)
    for _ in range(3):
        steps = step(rng, np.arange(600), 150)
        one.update(steps, 0.1)
        other.update(steps, 0.1)
    file, on_disk = one._disk.file, np.concatenate([ids for ids, _ in one._disk.blocks()])
    early = one.snapshot()
    os.pwrite(file._fd, b"\xff", int(one._disk.index.find(on_disk[:1])[0]) * file.slot_bytes + 9)
    gradient = [RowGradient(on_disk[:2], np.ones((2, WIDTH), np.float32))]
    for refused in (
        lambda: one.lookup(on_disk[:1]),
        lambda: one.update(gradient, 0.1),
        lambda: one.assign(on_disk[:1], np.ones((1, WIDTH), np.float32)),
        lambda: list(one.snapshot()),
        lambda: list(early),
        lambda: one.walk(Cursor(), None, 10**6),
        lambda: one.shrink(2),
    ):
        with pytest.raises(DiskError, match=r"table emb: .*wrong checksum; check the disk"):
            refused()
    assert one.clock == other.clock
    others = np.setdiff1d(np.arange(600), on_disk[:1])
    np.testing.assert_array_equal(one.lookup(others), other.lookup(others))
    for table in (one, other):
        table.update([RowGradient(on_disk[2:5], np.ones((3, WIDTH), np.float32))], 0.1)
    np.testing.assert_array_equal(one.lookup(others), other.lookup(others))
    with pytest.raises(DiskError, match="wrong checksum"):
        one.catch_up(0.1)  # some rows have decayed, and others not
    for refused in (
        lambda: one.lookup(others[:1]),
        lambda: one.update([], 0.1),
        lambda: list(one.snapshot()),
        lambda: one.shrink(0),
    ):
        with pytest.raises(DiskError, match="wrong checksum"):
            refused()


def test_what_a_disk_needs_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match='disk needs memory, such as memory="8GB"'):
        GrowingTable(4, disk="here")
    (tmp_path / "file").write_text("")
    for name, why in (
        ("file", "Not a directory"),
        ("missing/folder", "No such file"),
        ("file/x", "Not a directory"),
    ):
        with pytest.raises(
            DiskError, match=f"table emb: disk .*: cannot create a file there: {why}.*; create"
        ):
            TieredTable(spec_of(tmp_path / name, 5), ADAGRAD)


def test_rows_on_disk_whose_index_exceeds_the_memory_are_refused(tmp_path: Path) -> None:
    table = TieredTable(spec_of(tmp_path, rows=(1 << 20) // ROW), ADAGRAD)

    def learn(*batches: int) -> None:
        for batch in batches:
            ids = 5000 * batch + np.arange(5000)
            table.update([RowGradient(ids, np.ones((5000, WIDTH), np.float32))], 0.1)

    learn(*range(8))
    with pytest.raises(PserverError, match=r"table emb: .* index of \d+ rows on disk .* memory"):
        learn(*range(8, 16))
    rows, clock = len(table), table.clock
    assert rows < 60_000
    learn(0)  # rows that exist
    assert (len(table), table.clock) == (rows, clock + 1)
