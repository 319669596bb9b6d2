# SPDX-License-Identifier: Apache-2.0
"""The format of one server's part of a checkpoint: pieces of state, and a JSON manifest with its own checksum.

    <root>/v<version>[.<job>]/part-<server>-of-<count>/state.bin, manifest.json

    state.bin:  pieces, one after the other
    piece:      magic "PIEC" | length of the description I | bytes of all arrays Q     (little-endian)
                description, JSON | the arrays, one after the other

A piece states its position: the blocks of a dense parameter, or the row ids of a sparse one, so that other servers
can load it as well. The manifest is written last: a part whose manifest is missing or does not match its files is
ignored. Readers validate everything.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError
from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple, asdict, dataclass, field, regex
from paddle_node.contract.records import Bytes, Whole, read

try:
    from zlib_ng.zlib_ng import crc32 as crc32  # fast
except ImportError:  # a node without it
    from zlib import crc32 as crc32

FORMAT = 1
DATA = "state.bin"
MANIFEST = "manifest.json"
MAX_MANIFEST_BYTES = 64 << 20
IDS = "ids"
VALUE = "value"
WAITING = "waiting"
DROPPED = "dropped"
HEAD = struct.Struct("<4sIQ")
Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]
_PATH = regex(r"v\d{12,20}(?:\.[\w.-]+)?/part-\d+-of-\d+/[\w-]+\.bin\Z", re.ASCII)
_MAGIC = b"PIEC"
_MAX_DESCRIPTION = 1 << 20
_ALIGNMENT = 64
_DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(name) for name in ("<f4", "<f8", "<i8", "<i4", "<u4", "|b1", "|u1")}
)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file of a checkpoint, which contains pieces of parameters.

    Attributes:
        path: relative to the folder of all checkpoints.
        crc32: CRC-32 of all its bytes; None if only a kill can damage it.
    """

    path: str
    nbytes: Bytes
    crc32: Whole | None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one server's part of a checkpoint.

    Attributes:
        job: id of the job that wrote it, or empty.
        server, count: number of the server, and of all servers.
        configuration: the text that `Configuration.to_text` returns.
        version: batches applied; equal in all parts of one checkpoint.
        numbers: numbers that exist once for all elements, of the store and of each parameter.
        files: the files in reading order: rows of a later file replace those of an earlier one.
        engine: the progress of the trainers: see `Engine.facts`.
    """

    job: str
    server: Whole
    count: Whole
    configuration: str
    version: Whole
    numbers: Mapping[str, Mapping[str, float]]
    files: tuple[DataFile, ...]
    engine: Mapping[str, Any] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The path of the part, relative to the folder of all checkpoints."""
        dot = "." if self.job else ""
        return f"v{self.version:012d}{dot}{self.job}/part-{self.server}-of-{self.count}"

    def to_bytes(self) -> bytes:
        """Encode the manifest as JSON with a checksum, for its file."""
        body = json.dumps({"format": FORMAT, **asdict(self)}, sort_keys=True)
        return json.dumps({"crc32": crc32(body.encode()), "body": body}).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """Decode the contents of a manifest's file.

        Raises:
            CheckpointError: the bytes are not a manifest, or have a different format version.
        """
        if len(data) > MAX_MANIFEST_BYTES:
            raise CheckpointError(f"the manifest is larger than {MAX_MANIFEST_BYTES} bytes")
        try:
            outer = read(_Sealed, checked_json.loads(data), "manifest", "the file")
            if crc32(outer.body.encode()) != outer.crc32:
                raise CheckpointError("the manifest is damaged: the checksum differs")
            said = checked_json.as_object(outer.body)
            if said.get("format") != FORMAT:
                raise CheckpointError(
                    f"expected a manifest of format {FORMAT}, got {said.get('format')!r}: use the release that wrote "
                    "it"
                )
            found = read(cls, said, "manifest", "the file")
            if wrong := [file.path for file in found.files if not _PATH.match(file.path)]:
                raise ValueError(f"the manifest lists {wrong[0]!r}, which is not a checkpoint file")
        except ValueError as error:
            raise CheckpointError(f"cannot read the manifest: {error}") from None
        return found


class _Sealed(NamedTuple):
    """A manifest as stored in its file: JSON as text, and its CRC-32."""

    crc32: Whole
    body: str


class _Described(NamedTuple):
    """The description of a piece; `arrays`: name, dtype and shape of each."""

    parameter: str
    place: Mapping[str, Whole]
    arrays: tuple[tuple[str, str, tuple[Whole, ...]], ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a checkpoint: a part of a parameter with all of its state.

    Attributes:
        place: for a dense piece: `size`, `block`, `first`, `stride` as in `DenseShare`, and `at`, the position among
            the elements of those blocks. Empty for rows, whose ids are the array "ids". For ids that have not yet
            entered a growing table: `waiting`, 0 for the current period, 1 for the previous one.
        arrays: the arrays by name; "value" is the parameter itself.
    """

    parameter: str
    place: Mapping[str, int]
    arrays: Arrays

    @property
    def nbytes(self) -> int:
        """The number of bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def frames(piece: Piece, at: int = 0) -> list[bytes | memoryview]:
    """Encode a piece as several buffers; contiguous arrays are not copied.

    Args:
        at: position of the piece in its file, which is needed to align its arrays at multiples of 64.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in piece.arrays.items()}
    description = json.dumps(
        {
            "parameter": piece.parameter,
            "place": dict(piece.place),
            "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
        }
    ).encode()
    description += b" " * (-(at + HEAD.size + len(description)) % _ALIGNMENT)
    head = HEAD.pack(_MAGIC, len(description), piece.nbytes)
    return [head + description, *(array.data.cast("B") for array in arrays.values() if array.size)]


def head_of(data: bytes) -> tuple[int, int]:
    """Decode the head of a piece (HEAD.size bytes); return the lengths of its description and arrays in bytes.

    Raises:
        CheckpointError: the bytes do not begin a piece.
    """
    if len(data) != HEAD.size:
        raise CheckpointError(f"the header of a piece has {len(data)} bytes; expected {HEAD.size}")
    magic, length, nbytes = HEAD.unpack(data)
    if magic != _MAGIC or length > _MAX_DESCRIPTION:
        raise CheckpointError("expected a piece of a parameter, found none")
    return length, nbytes


def piece_of(description: bytes, arrays: memoryview) -> Piece:
    """Decode a piece; its arrays are views. Raises CheckpointError if the bytes are invalid."""
    try:
        return _read(description, arrays)
    except (ValueError, KeyError) as error:
        raise CheckpointError(f"cannot read a piece of a parameter: {error}") from None


def _read(description: bytes, data: memoryview) -> Piece:
    said = read(_Described, checked_json.loads(description), "piece", "the file")
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, code, shape in said.arrays:
        dtype = _DTYPES[code]
        nbytes = dtype.itemsize * math.prod(shape)
        arrays[name] = np.frombuffer(data[at : at + nbytes], dtype).reshape(shape)
        at += nbytes
    if at != len(data):
        raise ValueError(f"expected a piece of {at} bytes for its arrays, got {len(data)}")
    return Piece(said.parameter, said.place, arrays)
