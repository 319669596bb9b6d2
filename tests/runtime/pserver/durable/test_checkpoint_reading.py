# SPDX-License-Identifier: Apache-2.0
"""Files of pieces: every flipped bit is found, and the fast CRC-32 is zlib's."""

from __future__ import annotations

import runpy
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint import crc as crc_module
from paddle.pserver.durable.checkpoint.crc import crc32
from paddle.pserver.durable.checkpoint.manifest import DataFile
from paddle.pserver.durable.checkpoint.part import DATA
from paddle.pserver.durable.checkpoint.piece import IDS, VALUE, Piece, frames
from paddle.pserver.durable.checkpoint.reading import Reading

MB = 1 << 20
BYTES = np.random.default_rng(3).bytes(MB + 200)
PIECES = [
    Piece("w", {"at": 0}, {VALUE: np.arange(900, dtype=np.float32)}),
    Piece("table", {}, {IDS: np.arange(70), VALUE: np.ones((70, 3), np.float32)}),
    Piece("w", {"at": 900}, {VALUE: np.arange(MB, dtype=np.float32)}),
    Piece("none", {}, {IDS: np.zeros(0, np.int64)}),
]
CONTENT = b"".join(bytes(frame) for piece in PIECES for frame in frames(piece))


def written(root: Path, content: bytes) -> DataFile:
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
    slow = runpy.run_path(str(crc_module.__file__))["crc32"]
    assert slow is zlib.crc32
    assert slow(BYTES, 5) == crc32(BYTES, 5)


def test_pieces_come_as_they_were_written(tmp_path: Path) -> None:
    with Reading(tmp_path, [written(tmp_path, CONTENT)] * 2) as reading:
        found = [(r.piece.parameter, {n: a.copy() for n, a in r.piece.arrays.items()}) for r in reading]
    assert [name for name, _ in found] == [piece.parameter for piece in PIECES] * 2
    for (_, arrays), piece in zip(found, PIECES * 2, strict=True):
        assert all(np.array_equal(arrays[name], array) for name, array in piece.arrays.items())


@pytest.mark.parametrize("at", [0, 5, 9, 30, 200, 5000, len(CONTENT) // 2, len(CONTENT) - 1])
def test_a_flipped_bit_is_found_wherever_it_is(tmp_path: Path, at: int) -> None:
    spoilt = bytearray(CONTENT)
    spoilt[at] ^= 1 << at % 8
    with Reading(tmp_path, [written(tmp_path, bytes(spoilt))]) as reading, pytest.raises(CheckpointError):
        list(reading)


@pytest.mark.parametrize("length", [0, 7, 40, len(CONTENT) - 1])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, length: int) -> None:
    with (
        Reading(tmp_path, [written(tmp_path, CONTENT[:length])]) as reading,
        pytest.raises(CheckpointError, match=f"expected {len(CONTENT)} bytes, got {length}"),
    ):
        list(reading)


def test_reading_ends_when_nobody_wants_the_rest(tmp_path: Path) -> None:
    with Reading(tmp_path, [written(tmp_path, CONTENT)] * 5) as reading:
        assert next(iter(reading)).piece.parameter == "w"
