# SPDX-License-Identifier: Apache-2.0
"""Task: what one operation is, in 32 bytes that ranks compare before they take each other's numbers."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

from paddle.collective.errors import PeerDiffers

_FORM = struct.Struct("<4q")
SIZE = _FORM.size
WORDS = SIZE // 8


class Kind(IntEnum):
    """The operations that all others are made of."""

    SUM = 1
    BROADCAST = 2


class Task(NamedTuple):
    """One operation, the same on all ranks.

    Attributes:
        number: how many there were before it in this group.
        dtype: a number for it, see `dtype_code`.
        nbytes: of all arrays.
        root: whose values are sent; 0 in a sum.
    """

    number: int
    kind: Kind
    dtype: int
    nbytes: int
    root: int = 0

    def words(self) -> tuple[int, int, int, int]:
        """Return four 64-bit numbers that say all of it."""
        return self.number, self.kind | self.root << 8, self.dtype, self.nbytes

    def pack(self) -> bytes:
        """Return the words as bytes."""
        return _FORM.pack(*self.words())

    def pack_into(self, memory: memoryview, at: int) -> None:
        """Write the words as bytes."""
        _FORM.pack_into(memory, at, *self.words())

    def check(self, words: tuple[int, ...], rank: int) -> None:
        """Compare with what another rank says that it does.

        Raises:
            PeerDiffers: it is something else.
        """
        if words != self.words():
            theirs = _of(words)
            raise PeerDiffers(
                f"rank {rank} is at {theirs.describe()}, this rank at {self.describe()}: ranks must run the same "
                "program for equal numbers of batches",
                rank,
            )

    def describe(self) -> str:
        """Return it in words."""
        what = (
            f"sum of {self.nbytes} bytes"
            if self.kind == Kind.SUM
            else f"{self.nbytes} bytes of rank {self.root}"
        )
        return f"operation {self.number} ({what}, {_dtype_name(self.dtype)})"


def unpack(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[int, ...]:
    """Return the words of a packed task."""
    return _FORM.unpack_from(data, at)


def dtype_code(dtype: np.dtype[Any]) -> int:
    """Return a number for a dtype, the same on all machines."""
    return ord(dtype.kind) << 8 | dtype.itemsize


def _dtype_name(code: int) -> str:
    names = {"f": "float", "i": "int", "u": "uint"}
    return f"{names.get(chr(code >> 8 & 0x7F), 'type')}{8 * (code & 0xFF)}"


def _of(words: tuple[int, ...]) -> Task:
    number, kind, dtype, nbytes = words
    return Task(
        number, Kind.BROADCAST if kind & 0xFF == Kind.BROADCAST else Kind.SUM, dtype, nbytes, kind >> 8
    )
