# SPDX-License-Identifier: Apache-2.0
"""Large files of pieces, written and read in blocks past the page cache where the file system can, else through it."""

from __future__ import annotations

import os
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.direct import BLOCK
from paddle.pserver.durable.checkpoint.manifest import DataFile
from paddle.pserver.durable.checkpoint.output import ROOM, DiskOutput
from paddle.pserver.durable.checkpoint.part import DATA
from paddle.pserver.durable.checkpoint.piece import VALUE, Piece, frames
from paddle.pserver.durable.checkpoint.reading import Reading
from paddle.pserver.durable.checkpoint.yielding import give_way

RNG = np.random.default_rng(5)
# Within a block, over the edge of one, larger than one, and small again.
SIZES = [BLOCK // 2, BLOCK // 2, 3 * BLOCK // 2, 7, 0, 4095, BLOCK]
PIECES = [
    Piece(f"w{i}", {"at": 0}, {VALUE: RNG.integers(0, 256, size, np.uint8)}) for i, size in enumerate(SIZES)
]


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
