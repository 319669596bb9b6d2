# SPDX-License-Identifier: Apache-2.0
"""Pieces of a server's state as bytes: some elements of a dense parameter or some rows of a sparse one.

    piece:  magic "PIEC" | length of the description I | bytes of all arrays Q     (little-endian)
            description, JSON | the arrays, one after the other

A piece says of itself where it belongs, so that it can be put anywhere else: a dense one which blocks of how
many, a sparse one its row ids. Whoever reads one trusts nothing.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from paddle.errors import CheckpointError

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]

IDS = "ids"
VALUE = "value"
WAITING = "waiting"
_MAGIC = b"PIEC"
_HEAD = struct.Struct("<4sIQ")
HEAD_BYTES = _HEAD.size
_MAX_DESCRIPTION = 1 << 20
_ALIGNMENT = 64
_DTYPES: Mapping[str, np.dtype[Any]] = MappingProxyType(
    {name: np.dtype(name) for name in ("<f4", "<f8", "<i8", "<i4", "<u4", "|b1", "|u1")}
)


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of a parameter with everything that is kept for it.

    Attributes:
        place: of a dense piece: `size`, `block`, `first`, `stride` as in `DenseShare`, and `at`, the position
            among the elements of those blocks. Empty: the piece has rows, their ids are the array "ids". Of
            ids that wait for their entry into a growing table: `waiting`, 0 for this period, 1 for the last.
        arrays: by name; "value" is the parameter itself.
    """

    parameter: str
    place: Mapping[str, int]
    arrays: Arrays

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def frames(piece: Piece, at: int = 0) -> list[bytes | memoryview]:
    """Return a piece's bytes in parts; those of arrays are not copied if they are contiguous.

    Args:
        at: where in a file the piece begins; its arrays then begin at a multiple of 64.
    """
    arrays = {name: np.ascontiguousarray(array) for name, array in piece.arrays.items()}
    description = json.dumps(
        {
            "parameter": piece.parameter,
            "place": dict(piece.place),
            "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
        }
    ).encode()
    description += b" " * (-(at + HEAD_BYTES + len(description)) % _ALIGNMENT)
    head = _HEAD.pack(_MAGIC, len(description), piece.nbytes)
    return [head + description, *(array.data.cast("B") for array in arrays.values() if array.size)]


def head_of(data: bytes) -> tuple[int, int]:
    """Return the lengths of description and arrays, in bytes, from a piece's first HEAD_BYTES.

    Raises:
        CheckpointError: they are no piece's.
    """
    if len(data) != HEAD_BYTES:
        raise CheckpointError(f"a piece of a parameter ends after {len(data)} bytes")
    magic, length, nbytes = _HEAD.unpack(data)
    if magic != _MAGIC or length > _MAX_DESCRIPTION:
        raise CheckpointError("no piece of a parameter where one is expected")
    return length, nbytes


def piece_of(description: bytes, arrays: memoryview) -> Piece:
    """Put a piece together; its arrays are views.

    Raises:
        CheckpointError: the bytes are something else.
    """
    try:
        return _read(description, arrays)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CheckpointError(f"a piece of a parameter cannot be read: {error}") from None


def _read(description: bytes, data: memoryview) -> Piece:
    said = json.loads(description)
    arrays: dict[str, npt.NDArray[Any]] = {}
    at = 0
    for name, code, shape in said["arrays"]:
        dtype = _DTYPES[code]
        if not all(type(dim) is int and dim >= 0 for dim in shape):
            raise ValueError(f"shape {shape}")
        nbytes = dtype.itemsize * math.prod(shape)
        arrays[str(name)] = np.frombuffer(data[at : at + nbytes], dtype).reshape(shape)
        at += nbytes
    if at != len(data):
        raise ValueError(f"arrays of {at} bytes in {len(data)}")
    place = {str(name): int(value) for name, value in said["place"].items()}
    return Piece(str(said["parameter"]), place, arrays)
