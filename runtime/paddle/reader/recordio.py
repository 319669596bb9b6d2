# SPDX-License-Identifier: Apache-2.0
"""recordio files: sequences of binary records in compressed chunks with checksums.

A chunk is a header of five uint32, little endian, and its records, compressed as one: uint32 length | bytes, each.
The header is magic | checksum | compressor | size | records in files of v2 and its Go tools, and magic | records |
checksum | compressor | size in those of Fluid. The checksum, a CRC-32 of the compressed records, tells them apart.
"""

from __future__ import annotations

import enum
import logging
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

from paddle.errors import PaddleError
from paddle.reader import snappy
from paddle_node.contract.classes import NamedTuple

MAGIC = 0x01020304
MAX_CHUNK = 1 << 30
CHUNK_BYTES = 32 << 20
_FIELDS, _LENGTH = struct.Struct("<5I"), struct.Struct("<I")


class Compressor(enum.IntEnum):
    """The method by which the records of a chunk are compressed."""

    NoCompress = 0
    Snappy = 1
    Gzip = 2


class Layout(enum.Enum):
    """The order of the fields in chunk headers, after the magic number."""

    V2 = ("checksum", "compressor", "size", "records")
    FLUID = ("records", "checksum", "compressor", "size")


_log = logging.getLogger(__name__)
_SIZES_AT = [layout.value.index("size") for layout in Layout]


class RecordFileError(PaddleError, ValueError):
    """Raised when a file is damaged or is not a recordio file.

    Attributes:
        path: the path of the file.
    """

    def __init__(self, path: str | PathLike[str], message: str) -> None:
        super().__init__(f"{path}: {message}")
        self.path = Path(path)


class _Header(NamedTuple):
    records: int
    checksum: int
    compressor: int
    size: int


def read_records(path: str | PathLike[str]) -> Iterator[bytes]:
    """Yield the records (bytes) of a file, one chunk in memory at a time.

    Raises:
        RecordFileError: at the first damaged or truncated chunk, after the records before it.
    """
    with open(path, "rb") as file:
        left, at = _end(file, path), 0
        file.seek(0)
        while at < left:
            header, payload = _chunk(file, path, at, left)
            yield from _split(path, at, header, _unpacked(path, at, header, payload))
            at += _FIELDS.size + header.size


def read_chunk(path: str | PathLike[str], at: int) -> list[bytes]:
    """Return the records of the chunk at a byte offset of a file; see `chunk_places`.

    Raises:
        RecordFileError: the chunk is damaged or truncated.
    """
    with open(path, "rb") as file:
        end = file.seek(0, 2)
        file.seek(at)
        header, payload = _chunk(file, path, at, end)
        return list(_split(path, at, header, _unpacked(path, at, header, payload)))


def chunk_places(path: str | PathLike[str]) -> list[int]:
    """Return the byte offsets of a file's chunks; only the headers of chunks after the first are read.

    Raises:
        RecordFileError: the file is truncated or not a recordio file.
    """
    places: list[int] = []
    with open(path, "rb") as file:
        end, at, size_at = _end(file, path), 0, 0
        while at < end:
            file.seek(at)
            raw = file.read(_FIELDS.size)
            magic, *fields = _FIELDS.unpack(raw.ljust(_FIELDS.size, b"\0"))
            if not places:
                file.seek(at)
                size = _chunk(file, path, at, end)[0].size
                size_at = max(place for place in _SIZES_AT if fields[place] == size)
            places.append(at)
            at += _FIELDS.size + fields[size_at]
            if magic != MAGIC or at > end:
                raise RecordFileError(
                    path, f"the file is truncated or damaged: the chunk at byte {places[-1]} is incomplete"
                )
    return places


def _end(file: BinaryIO, path: str | PathLike[str]) -> int:
    """Return the length of a file; an empty one was written without records, or was truncated."""
    end = file.seek(0, 2)
    if not end:
        _log.warning("%s is empty: it has no records", path)
    return end


class Writer:
    """Writes records to a recordio file, which is renamed into place when it is closed. Not thread-safe.

    As a context manager, the writer closes the file at the end, and discards it after an error.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        compressor: Compressor = Compressor.Snappy,
        max_num_records: int = 0,
        layout: Layout = Layout.V2,
    ) -> None:
        """Create a file.

        Args:
            path: the path of the file.
            compressor: how its chunks are compressed.
            max_num_records: the maximum number of records in a chunk; 0 means as many as fit into 32 MiB.
            layout: the layout of its chunk headers.
        """
        self._path, self._part = Path(path), Path(f"{path}.part")
        self._compressor, self._most, self._layout = Compressor(compressor), max_num_records, layout
        self._records: list[bytes] = []
        self._bytes = 0
        self._file = self._part.open("wb")

    def write(self, record: bytes) -> None:
        """Append a record to the file."""
        if self._records and self._bytes + len(record) > CHUNK_BYTES:
            self._flush()
        self._records.append(record)
        self._bytes += len(record)
        if len(self._records) == self._most:
            self._flush()

    def close(self) -> None:
        """Write the last chunk, and rename the file to its final name; a second call does nothing."""
        if self._file.closed:
            return
        self._flush()
        self._file.close()
        self._part.replace(self._path)

    def discard(self) -> None:
        """Close and delete the incomplete file."""
        self._file.close()
        self._part.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def _flush(self) -> None:
        if not self._records:
            return
        plain = b"".join(part for each in self._records for part in (_LENGTH.pack(len(each)), each))
        payload = _COMPRESS[self._compressor](plain)
        header = _Header(len(self._records), zlib.crc32(payload), self._compressor, len(payload))
        fields = [getattr(header, name) for name in self._layout.value]
        self._file.write(_FIELDS.pack(MAGIC, *fields) + payload)
        self._records, self._bytes = [], 0


def _chunk(file: BinaryIO, path: str | PathLike[str], at: int, end: int) -> tuple[_Header, bytes]:
    raw = file.read(_FIELDS.size)
    if len(raw) < _FIELDS.size:
        raise RecordFileError(path, f"the file is truncated: the chunk at byte {at} ends inside its header")
    magic, *fields = _FIELDS.unpack(raw)
    if magic != MAGIC:
        raise RecordFileError(
            path, f"no recordio chunk begins at byte {at}: expected {MAGIC:#010x}, got {magic:#010x}"
        )
    begin, cut = at + _FIELDS.size, False
    for layout in Layout:
        header = _Header(**dict(zip(layout.value, fields, strict=True)))
        if header.compressor not in Compressor.__members__.values():
            continue
        if header.size > end - begin:
            cut = True
            continue
        file.seek(begin)
        payload = file.read(header.size)
        if zlib.crc32(payload) == header.checksum:
            return header, payload
    if cut:
        raise RecordFileError(path, f"the file is truncated or damaged: the chunk at byte {at} is incomplete")
    raise RecordFileError(path, f"the chunk at byte {at} is damaged: its checksum does not match")


def _unpacked(path: str | PathLike[str], at: int, header: _Header, payload: bytes) -> bytes:
    try:
        return _DECOMPRESS[Compressor(header.compressor)](payload)
    except (snappy.SnappyError, zlib.error, ValueError) as error:
        raise RecordFileError(path, f"the chunk at byte {at} cannot be decompressed: {error}") from error


def _split(path: str | PathLike[str], at: int, header: _Header, plain: bytes) -> Iterator[bytes]:
    begin = 0
    for number in range(header.records):
        end = begin + _LENGTH.size
        size = _LENGTH.unpack_from(plain, begin)[0] if end <= len(plain) else 0
        if end + size > len(plain):
            raise RecordFileError(
                path, f"the chunk at byte {at} is damaged: record {number} of {header.records} ends beyond it"
            )
        yield plain[end : end + size]
        begin = end + size
    if begin != len(plain):
        raise RecordFileError(
            path,
            f"the chunk at byte {at} is damaged: {len(plain) - begin} extra bytes follow its {header.records} records",
        )


def _gunzip(payload: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    plain = reader.decompress(payload, MAX_CHUNK)
    if reader.unconsumed_tail:
        raise ValueError(f"the decompressed chunk has more than {MAX_CHUNK} bytes")
    if not reader.eof:
        raise ValueError("the gzip data is truncated")
    return plain


def _gzip(plain: bytes) -> bytes:
    writer = zlib.compressobj(wbits=31)
    return writer.compress(plain) + writer.flush()


_COMPRESS: Mapping[Compressor, Callable[[bytes], bytes]] = {
    Compressor.NoCompress: lambda plain: plain,
    Compressor.Snappy: snappy.compress,
    Compressor.Gzip: _gzip,
}
_DECOMPRESS: Mapping[Compressor, Callable[[bytes], bytes]] = {
    Compressor.NoCompress: lambda payload: payload,
    Compressor.Snappy: lambda payload: snappy.decompress(payload, MAX_CHUNK),
    Compressor.Gzip: _gunzip,
}
