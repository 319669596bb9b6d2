# SPDX-License-Identifier: Apache-2.0
"""Large files of pieces, past the page cache where that works; every flipped bit is found."""

from __future__ import annotations

import os
import runpy
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint import format as format_module
from paddle.pserver.durable.checkpoint.disk import BLOCK, give_way
from paddle.pserver.durable.checkpoint.folder import checking as checked_aside
from paddle.pserver.durable.checkpoint.format import DATA, IDS, VALUE, DataFile, Piece, crc32, frames
from paddle.pserver.durable.checkpoint.reader import Reading
from paddle.pserver.durable.checkpoint.writer import ROOM, DiskOutput

RNG = np.random.default_rng(5)
# Within a block, over the edge of one, larger than one, and small again.
SIZES = [BLOCK // 2, BLOCK // 2, 3 * BLOCK // 2, 7, 0, 4095, BLOCK]
DRAWN = RNG.integers(0, 256, max(SIZES) + len(SIZES), np.uint8)
PIECES = [Piece(f"w{i}", {"at": 0}, {VALUE: DRAWN[i:][:size]}) for i, size in enumerate(SIZES)]
MB = 1 << 20
BYTES = np.random.default_rng(3).bytes(MB + 200)
READ_PIECES = [
    Piece("w", {"at": 0}, {VALUE: np.arange(900, dtype=np.float32)}),
    Piece("table", {}, {IDS: np.arange(70), VALUE: np.ones((70, 3), np.float32)}),
    Piece("w", {"at": 900}, {VALUE: np.arange(MB, dtype=np.float32)}),
    Piece("none", {}, {IDS: np.zeros(0, np.int64)}),
]
CONTENT = b"".join(bytes(frame) for piece in READ_PIECES for frame in frames(piece))


def written(root: Path) -> DataFile:
    where = f"v000000000001/part-0-of-1/{DATA}"
    (root / where).parent.mkdir(parents=True)
    output = DiskOutput(root / where)
    for piece in PIECES:
        output.make_room(min(piece.nbytes, ROOM))
        for frame in frames(piece, output.nbytes):
            output.write(frame)
    output.finish()
    return DataFile(where, output.nbytes, output.crc)


@pytest.mark.parametrize("past_cache", [True, False])
def test_pieces_of_any_size_come_back_from_the_blocks_they_were_written_in(
    tmp_path: Path, past_cache: bool
) -> None:
    file = written(tmp_path)
    content = (tmp_path / file.path).read_bytes()
    assert (file.nbytes, file.crc32) == (len(content), zlib.crc32(content))
    with Reading(tmp_path, [file] * 2, past_cache=past_cache) as reading:
        found = [(read.piece.parameter, zlib.crc32(read.piece.arrays[VALUE].tobytes())) for read in reading]
    assert found == [(piece.parameter, zlib.crc32(piece.arrays[VALUE].tobytes())) for piece in PIECES] * 2


def test_a_flipped_bit_in_a_large_file_is_found_although_its_pieces_came_before(tmp_path: Path) -> None:
    file = written(tmp_path)
    with open(tmp_path / file.path, "r+b") as data:
        data.seek(BLOCK + 77)
        old = data.read(1)
        data.seek(BLOCK + 77)
        data.write(bytes([old[0] ^ 4]))
    with (
        Reading(tmp_path, [file], past_cache=True) as reading,
        pytest.raises(CheckpointError, match="damaged: expected checksum"),
    ):
        for _ in reading:
            pass


def test_reading_a_large_file_ends_when_nobody_wants_the_rest(tmp_path: Path) -> None:
    with Reading(tmp_path, [written(tmp_path)] * 3, past_cache=True) as reading:
        assert next(iter(reading)).piece.parameter == "w0"


@pytest.mark.parametrize("at", [0, 1, 63, 4096 + 40])
def test_arrays_of_a_piece_lie_where_processors_like_them(at: int) -> None:
    head, *_ = frames(PIECES[3], at)
    assert (at + len(head)) % 64 == 0


@pytest.mark.skipif(
    os.uname().sysname != "Linux", reason="threads have priorities of their own on Linux alone"
)
def test_only_the_thread_that_gives_way_does() -> None:
    found = {}

    def work() -> None:
        give_way()
        found["its"] = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    before = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found["its"] == 10
    assert os.getpriority(os.PRIO_PROCESS, threading.get_native_id()) == before


def written_checkpoint_reading(root: Path, content: bytes) -> DataFile:
    folder = root / "v000000000001" / "part-0-of-1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DATA).write_bytes(content)
    return DataFile(f"v000000000001/part-0-of-1/{DATA}", len(CONTENT), zlib.crc32(CONTENT))


@pytest.mark.parametrize("value", [0, 1, 0xFFFFFFFF, 0x1234567])
@pytest.mark.parametrize(
    ("start", "stop"), [(0, 0), (0, 99), (0, MB), (3, MB + 3), (1, MB + 200), (0, MB + 64)]
)
def test_the_fast_crc_is_that_of_zlib_wherever_bytes_begin_and_end(start: int, stop: int, value: int) -> None:
    part = memoryview(BYTES)[start:stop]
    assert crc32(part, value) == zlib.crc32(part, value)


def test_a_node_without_the_library_computes_the_same_crc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zlib_ng.zlib_ng", None)
    slow = runpy.run_path(str(format_module.__file__))["crc32"]
    assert slow is zlib.crc32
    assert slow(BYTES, 5) == crc32(BYTES, 5)


def test_pieces_come_as_they_were_written(tmp_path: Path) -> None:
    with Reading(tmp_path, [written_checkpoint_reading(tmp_path, CONTENT)] * 2) as reading:
        found = [(r.piece.parameter, {n: a.copy() for n, a in r.piece.arrays.items()}) for r in reading]
    assert [name for name, _ in found] == [piece.parameter for piece in READ_PIECES] * 2
    for (_, arrays), piece in zip(found, READ_PIECES * 2, strict=True):
        assert all(np.array_equal(arrays[name], array) for name, array in piece.arrays.items())


@pytest.mark.parametrize("at", [0, 5, 9, 30, 200, 5000, len(CONTENT) // 2, len(CONTENT) - 1])
def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path, at: int) -> None:
    spoilt = bytearray(CONTENT)
    spoilt[at] ^= 1 << at % 8
    with (
        Reading(tmp_path, [written_checkpoint_reading(tmp_path, bytes(spoilt))]) as reading,
        pytest.raises(CheckpointError),
    ):
        list(reading)


@pytest.mark.parametrize("length", [0, 7, 40, len(CONTENT) - 1])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    with (
        Reading(tmp_path, [written_checkpoint_reading(tmp_path, CONTENT[:length])]) as reading,
        pytest.raises(CheckpointError, match=f"expected {len(CONTENT)} bytes, got {length}"),
    ):
        list(reading)


def test_reading_ends_when_nobody_wants_the_rest(tmp_path: Path) -> None:
    with Reading(tmp_path, [written_checkpoint_reading(tmp_path, CONTENT)] * 5) as reading:
        assert next(iter(reading)).piece.parameter == "w"


def test_whatever_keeps_a_file_from_being_looked_at_is_told_to_who_asks_for_the_outcome(
    tmp_path: Path,
) -> None:
    checking = checked_aside(tmp_path, [DataFile("no\0name", 3, 0)])
    with pytest.raises(ValueError, match="null byte"):
        checking.finish()
