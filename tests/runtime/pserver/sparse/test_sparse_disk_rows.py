# SPDX-License-Identifier: Apache-2.0
"""Rows on disk: they move together where slots are empty, and what the disk lost or damaged is named."""

from __future__ import annotations

import os
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import DiskError
from paddle.pserver.sparse.disk_rows import DiskRows

WIDTH = 3

pytestmark = pytest.mark.usefixtures("form")


def test_rows_on_disk_move_together_when_too_many_slots_are_empty(tmp_path: Path) -> None:
    part, rng = 256, np.random.default_rng(3)  # 254 rows an extent
    disk = DiskRows(str(tmp_path), "emb", 2, part)
    held: dict[int, np.ndarray] = {}
    moves = 0
    for batch in range(12):
        ids = np.arange(600) + 600 * batch
        rows = rng.standard_normal((2, 600, part)).astype(np.float32)
        disk.reserve(600)
        disk.put(ids, rows, np.full(600, batch, np.uint32))
        held |= dict(zip(ids.tolist(), rows.swapaxes(0, 1), strict=True))
        gone = rng.choice([*held], 550, replace=False) if batch > 2 else np.zeros(0, np.int64)
        disk.forget(gone)
        for each in gone.tolist():
            del held[each]
        slots = disk.scattered(1200)
        if len(slots):
            disk.reserve(len(slots))
            slots, found, parts = disk.read_undamaged(slots)
            disk.move(found, slots, parts, disk.ticks[slots])
            moves += 1
    assert len(disk) == len(held)
    assert moves > 2
    assert disk.num_slots < 5400 < 12 * 600
    ids = np.array([*held])
    np.testing.assert_array_equal(
        disk.read(ids, disk.index.find(ids)), np.stack([*held.values()]).swapaxes(0, 1)
    )


@pytest.mark.parametrize("fault", ["damaged", "unreadable"])
def test_extents_that_cannot_be_read_do_not_keep_others_from_being_moved(fault: str, tmp_path: Path) -> None:
    part, size, extents = 256, 254, 20
    disk = DiskRows(str(tmp_path), "emb", 2, part)
    ids = np.arange(extents * size)
    disk.reserve(len(ids))
    slots = disk.put(ids, np.ones((2, len(ids), part), np.float32), np.zeros(len(ids), np.uint32))
    extent, place = slots // size, slots % size
    sparse = extent >= extents - 8
    disk.forget(ids[(place >= 5) & sparse | (place >= 90)])
    slot_bytes = disk.file.slot_bytes
    with open(f"/proc/self/fd/{disk.file._fd}", "r+b", buffering=0) as file:
        if fault == "unreadable":
            os.truncate(file.fileno(), (extents - 1) * size * slot_bytes)
        else:
            for slot in slots[(place < 5) & sparse].tolist():
                os.pwrite(file.fileno(), bytes(slot_bytes), slot * slot_bytes)
    moved = 0
    for _ in range(100):
        chosen = disk.scattered(300)
        if not len(chosen):
            break
        try:
            whole, found, parts = disk.read_undamaged(chosen)
        except DiskError:
            continue
        if len(whole):
            disk.reserve(len(whole))
            disk.move(found, whole, parts, disk.ticks[whole])
            moved += len(whole)
    assert moved > 500
    assert len(disk) == 8 * 5 + 12 * 90


def test_what_the_disk_lost_or_damaged_is_named(tmp_path: Path) -> None:
    disk = DiskRows(str(tmp_path), "emb", 2, WIDTH)
    rows = np.arange(2 * 9 * WIDTH, dtype=np.float32).reshape(2, 9, WIDTH)
    ids, ticks, size = np.arange(9) * 7, np.arange(9, dtype=np.uint32), disk.file.slot_bytes
    disk.reserve(9)
    slots = disk.put(ids, rows, ticks)
    path = f"/proc/self/fd/{disk.file._fd}"
    with open(path, "r+b", buffering=0) as file:
        before = file.read(9 * size)
        for at, content in (
            (3 * size + 9, bytes([before[3 * size + 9] ^ 4])),  # one bit
            (5 * size, before[4 * size : 5 * size]),  # the row of another slot
            (7 * size, bytes(size)),
        ):
            os.pwrite(file.fileno(), content, at)
            slot = at // size
            with pytest.raises(DiskError, match=f"table emb: .*read slot {slot} .*: wrong checksum; check"):
                disk.read(ids, slots)
            undamaged, found, parts = disk.read_undamaged(slots)  # which can be moved together
            np.testing.assert_array_equal(undamaged, np.delete(slots, slot))
            np.testing.assert_array_equal(found, np.delete(ids, slot))
            np.testing.assert_array_equal(parts, np.delete(rows, slot, axis=1))
            os.pwrite(file.fileno(), before[slot * size : (slot + 1) * size], slot * size)
        np.testing.assert_array_equal(disk.read(ids[::-1], slots[::-1]), rows[:, ::-1])
        disk.rewrite(ids[:1], slots[:1], rows[:, :1] + 1, ticks[:1] + 1)
        os.pwrite(file.fileno(), before[:size], 0)  # a write that was lost
        with pytest.raises(DiskError, match=r"slot 0 .*wrong checksum"):
            disk.read(ids, slots)
        os.truncate(path, 8 * size)
        with pytest.raises(DiskError, match=r"slot 8 .*the file is too short; check the disk, and restart"):
            disk.read(ids[1:], slots[1:])
    np.testing.assert_array_equal(disk.read(ids[1:8], slots[1:8]), rows[:, 1:8])
    disk.file.close()
    with pytest.raises(DiskError, match="Bad file descriptor"):
        disk.read(ids, slots)


def test_servers_that_start_together_create_one_directory(tmp_path: Path) -> None:
    def create(number: int) -> None:
        start.wait(10)
        DiskRows(str(tmp_path / f"disk{number // 8}"), "emb", 1, WIDTH).file.close()

    start = threading.Barrier(8)
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(create, range(8 * 50)))
    assert len(list(tmp_path.iterdir())) == 50


def test_a_row_of_which_the_disk_takes_only_a_part_is_not_written(tmp_path: Path) -> None:
    disk = DiskRows(str(tmp_path), "emb", 2, WIDTH)
    disk.reserve(9)
    ids, rows = np.arange(9), np.ones((2, 9, WIDTH), np.float32)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8 * disk.file.slot_bytes + 5, before[1]))
    try:
        with pytest.raises(DiskError, match=r"cannot write slot .*: File too large"):
            disk.put(ids, rows, np.zeros(9, np.uint32))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert len(disk) == 0
    np.testing.assert_array_equal(disk.read(ids, disk.put(ids, rows, np.zeros(9, np.uint32))), rows)
