# SPDX-License-Identifier: Apache-2.0
"""recordio files: in both layouts of the original, with every compressor, damaged ones, and the samples in them."""

from __future__ import annotations

import contextlib
import io
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle.dataset.common import convert
from paddle.reader import creator, pickled, pickling, snappy
from paddle.reader.recordio import (
    Compressor,
    Layout,
    RecordFileError,
    Writer,
    chunk_places,
    read_chunk,
    read_records,
)

RECORDS = [b"", b"a", b"abc" * 5000, bytes(range(256)) * 700]


def chunk(layout: Layout, compressor: int, payload: bytes, count: int) -> bytes:
    """A chunk as the original's tools write it, made here by hand."""
    checksum = zlib.crc32(payload)
    if layout is Layout.V2:
        return struct.pack("<5I", 0x01020304, checksum, compressor, len(payload), count) + payload
    return struct.pack("<5I", 0x01020304, count, checksum, compressor, len(payload)) + payload


@pytest.mark.parametrize("layout", Layout)
@pytest.mark.parametrize("compressor", Compressor)
def test_records_come_back_from_every_layout_and_compressor(
    tmp_path: Path, layout: Layout, compressor: Compressor
) -> None:
    with Writer(tmp_path / "x", compressor, max_num_records=3, layout=layout) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(read_records(tmp_path / "x")) == RECORDS
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.parametrize("layout", Layout)
def test_what_the_writer_puts_into_a_file_is_what_the_format_says(tmp_path: Path, layout: Layout) -> None:
    with Writer(tmp_path / "x", Compressor.NoCompress, 2, layout) as writer:
        for record in (b"ab", b"", b"c"):
            writer.write(record)
    first, second = b"\x02\0\0\0ab\0\0\0\0", b"\x01\0\0\0c"
    assert (tmp_path / "x").read_bytes() == chunk(layout, 0, first, 2) + chunk(layout, 0, second, 1)


def test_a_file_of_snappy_frames_made_by_hand_is_read(tmp_path: Path) -> None:
    # records "aaaaaaaaaa" and "b": a literal "\x0a\0\0\0a", a copy of 9 from 1 before, a literal "\x01\0\0\0b"
    block = b"\x13" + b"\x10\x0a\0\0\0a" + bytes(((9 - 4) << 2 | 1, 1)) + b"\x10\x01\0\0\0b"
    frame = b"\0" + (4 + len(block)).to_bytes(3, "little") + b"\0\0\0\0" + block
    skipped = b"\xfe\x02\0\0ab"
    payload = b"\xff\x06\0\0sNaPpY" + skipped + frame
    (tmp_path / "x").write_bytes(chunk(Layout.FLUID, 1, payload, 2))
    assert list(read_records(tmp_path / "x")) == [b"a" * 10, b"b"]


def test_a_cut_file_is_never_taken_for_a_shorter_one(tmp_path: Path) -> None:
    with Writer(tmp_path / "x", max_num_records=2) as writer:
        for record in RECORDS[:3]:
            writer.write(record)
    whole = (tmp_path / "x").read_bytes()
    ends = {0, 20 + struct.unpack_from("<I", whole, 12)[0], len(whole)}
    for size in range(len(whole)):
        (tmp_path / "cut").write_bytes(whole[:size])
        if size in ends:
            assert len(list(read_records(tmp_path / "cut"))) < 3
            continue
        with pytest.raises(RecordFileError, match="cut"):
            list(read_records(tmp_path / "cut"))


@given(at=st.integers(0, 10_000), bits=st.integers(1, 255))
def test_a_changed_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, at: int, bits: int) -> None:
    path = tmp_path_factory.mktemp("damaged") / "x"
    with Writer(path) as writer:
        writer.write(b"some words, some words" * 3)
    raw = bytearray(path.read_bytes())
    raw[at % len(raw)] ^= bits
    path.write_bytes(bytes(raw))
    with pytest.raises(RecordFileError, match=str(path)):
        list(read_records(path))


@given(st.binary(max_size=300))
def test_any_block_is_decompressed_or_refused(data: bytes) -> None:
    with contextlib.suppress(snappy.SnappyError):
        assert len(snappy.decompress_block(data, 1 << 16)) <= 1 << 16
    with contextlib.suppress(snappy.SnappyError):
        assert snappy.decompress(b"\xff\x06\0\0sNaPpY" + data, 1 << 16) == b""


@given(st.lists(st.sampled_from([b"a", b"bc", b"def", b"\0" * 70, b"words "])).map(b"".join) | st.binary())
def test_what_snappy_compresses_it_decompresses(data: bytes) -> None:
    stream = snappy.compress(data * 40)
    assert snappy.decompress(stream, 1 << 30) == data * 40
    assert len(stream) <= len(data * 40) + 10 + 8 * (len(data * 40) // snappy.BLOCK + 1)


def test_a_stream_that_would_fill_the_memory_is_refused() -> None:
    stream = snappy.compress(bytes(10 * snappy.BLOCK))
    with pytest.raises(snappy.SnappyError, match="more than 100000 bytes"):
        snappy.decompress(stream, 100_000)
    with pytest.raises(snappy.SnappyError, match="holds 4294967295 bytes, more than 65536"):
        snappy.decompress_block(b"\xff\xff\xff\xff\x0f\0a", snappy.BLOCK)


def test_checksums_of_frames_are_those_of_castagnoli() -> None:
    assert snappy.crc32c(b"123456789") == 0xE3069283
    assert snappy.crc32c(bytes(32)) == 0x8A9136AA  # RFC 3720
    long = bytes(range(256)) * 5 + b"rest"
    slow = 0xFFFFFFFF
    for byte in long:
        slow ^= byte
        for _ in range(8):
            slow = slow >> 1 ^ (0x82F63B78 if slow & 1 else 0)
    assert snappy.crc32c(long) == slow ^ 0xFFFFFFFF


SAMPLE = (np.array([[0.5, -2]], "float32"), 3, "é", [1, 2.5, None], b"\x00\xff", {"a": True})


def test_converted_samples_are_read_by_creator_recordio_and_by_unpickling(tmp_path: Path) -> None:
    samples = [(number, np.full(2, number, "float32")) for number in range(10)]
    paths = convert(str(tmp_path / "out"), lambda: iter(samples), 4, "mine")
    assert [Path(path).name for path in paths] == ["mine-00000", "mine-00001", "mine-00002"]
    read = creator.recordio(str(tmp_path / "out/mine-*"), buf_size=3)
    assert [[number, array.tolist()] for number, array in read()] == [[n, [n, n]] for n in range(10)]
    assert [number for number, _ in read()] == list(range(10))
    first = [pickle.Unpickler(io.BytesIO(record)).load()[0] for record in read_records(paths[0])]
    assert first == [0, 1, 2, 3]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_samples_of_every_protocol_are_read(tmp_path: Path, protocol: int) -> None:
    with Writer(tmp_path / "x", Compressor.Gzip) as writer:
        writer.write(pickle.dumps(SAMPLE, protocol))
    (back,) = creator.recordio([str(tmp_path / "x")])()
    assert back[0].dtype == np.float32
    assert back[0].tolist() == [[0.5, -2]]
    assert back[1:] == SAMPLE[1:]


def test_a_sample_of_python_2_is_read() -> None:
    raw = (
        b"(cnumpy.core.multiarray\n_reconstruct\np1\n(cnumpy\nndarray\np2\n(I0\ntp3\nS'b'\np4\ntp5\nRp6\n(I1\n(I2\n"
        b"tp7\ncnumpy\ndtype\np8\n(S'f4'\np9\nI0\nI1\ntp10\nRp11\n(I3\nS'<'\np12\nNNNI-1\nI-1\nI0\ntp13\nbI00\n"
        b"S'\\x00\\x00\\x80?\\x00\\x00\\x00\\xc0'\np14\ntp15\nbL5L\nI01\nF2.5\nS'word'\np15\nS'\\xff'\np16\n"
        b"(lp17\ng15\nag6\natp18\n."
    )
    array, *rest = pickled.loads(raw)
    assert array.tolist() == [1, -2]
    assert rest == [5, True, 2.5, "word", b"\xff", ["word", array]]


class Runs:
    def __reduce__(self) -> Any:
        return (Path.mkdir, (Path("made-by-a-pickle"),))


@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (pickle.dumps([1, Runs()], 2), "getattr"),
        (b"cos\nsystem\n(S'true'\ntR.", r"'os\.system'"),
        (b"\x80\x02cnumpy\ndtype\nX\x03\0\0\0O,V\x85R.", "dtype"),
        (b"\x80\x02]", "at byte 3"),
        (b"\x80\x02}" + b"(" + b")" + b"\x85" * 50 + b"Nu.", "keys"),
        (b"", "at byte 0"),
    ],
)
def test_a_pickle_that_is_no_sample_is_refused_and_not_run(
    tmp_path: Path, raw: bytes, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Writer("bad") as writer:
        writer.write(pickling.dumps(1))
        writer.write(raw)
    samples = iter(creator.recordio("bad")())
    assert next(samples) == 1
    with pytest.raises(RecordFileError, match=f"bad: record 1 is not a pickled sample: .*({told})"):
        next(samples)
    assert [path.name for path in tmp_path.iterdir()] == ["bad"]


def test_a_file_that_was_cut_to_nothing_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "cut"
    path.touch()
    assert not list(read_records(path))
    assert not chunk_places(path)
    assert caplog.messages == [f"{path} is empty: it has no records"] * 2


def test_a_pattern_without_files_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no file matches .*none-\*"):
        list(creator.recordio(f"{tmp_path}/none-*")())


def test_a_file_that_is_no_recordio_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"1 2 3 and some more of this text")
    with pytest.raises(RecordFileError, match="x: no recordio chunk begins at byte 0: expected 0x01020304"):
        list(creator.recordio(str(tmp_path / "x"))())


def test_chunks_are_found_by_headers_and_read_one_by_one(tmp_path: Path) -> None:
    for layout in Layout:
        path = tmp_path / layout.name
        with Writer(path, max_num_records=2, layout=layout) as writer:
            for number in range(5):
                writer.write(b"%d" % number * number)
        places = chunk_places(path)
        assert [read_chunk(path, at) for at in places] == [[b"", b"1"], [b"22", b"333"], [b"4444"]]
        damaged = path.read_bytes()
        path.write_bytes(damaged[:-1])
        with pytest.raises(RecordFileError, match=r"chunk at byte .* is incomplete"):
            chunk_places(path)
    (tmp_path / "empty").touch()
    assert chunk_places(tmp_path / "empty") == []
