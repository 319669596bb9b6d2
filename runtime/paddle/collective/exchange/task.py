# SPDX-License-Identifier: Apache-2.0
"""The description of an operation, which ranks compare before they exchange data (Task), and its arrays (Pieces)."""

from __future__ import annotations

import functools
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.collective.errors import PeerDiffers
from paddle.errors import ConfigError
from paddle_node.contract.classes import NamedTuple

_FORM = struct.Struct("<4q")
SIZE = _FORM.size
WORDS = SIZE // 8
Flat = npt.NDArray[Any]


class Kind(IntEnum):
    """The kind of a basic operation; all other operations are composed of these."""

    SUM = 1
    BROADCAST = 2


class Task(NamedTuple):
    """The description of one operation, equal on all ranks.

    Attributes:
        number: the number of operations of this group before this one.
        dtype: the code of the arrays' dtype; see `dtype_code`.
        nbytes: the size of all arrays together.
        root: the rank whose values are broadcast; 0 in a sum.
    """

    number: int
    kind: Kind
    dtype: int
    nbytes: int
    root: int = 0

    def words(self) -> tuple[int, int, int, int]:
        """Return the task as four 64-bit integers, as `pack` writes them."""
        return self.number, self.kind | self.root << 8, self.dtype, self.nbytes

    def pack(self) -> bytes:
        """Return the task as 32 bytes, for comparison with other ranks."""
        return _FORM.pack(*self.words())

    def pack_into(self, memory: memoryview, at: int) -> None:
        """Write the task as 32 bytes into `memory`, starting at byte `at`."""
        _FORM.pack_into(memory, at, *self.words())

    def check(self, words: tuple[int, ...], rank: int) -> None:
        """Compare this operation with another rank's, as encoded by `words`.

        Raises PeerDiffers if they are different.
        """
        if words != self.words():
            theirs = _of(words)
            raise PeerDiffers(
                f"rank {rank} runs {theirs.describe()}, but this rank runs {self.describe()}: all ranks must run "
                "the same program for the same number of batches",
                rank,
            )

    def describe(self) -> str:
        """Return a description of the task, for messages."""
        what = (
            f"sum of {self.nbytes} bytes"
            if self.kind == Kind.SUM
            else f"{self.nbytes} bytes of rank {self.root}"
        )
        return f"operation {self.number} ({what}, {_dtype_name(self.dtype)})"


def unpack(data: bytes | bytearray | memoryview, at: int = 0) -> tuple[int, ...]:
    """Return the four integers of a packed task, which starts at byte `at`."""
    return _FORM.unpack_from(data, at)


def dtype_code(dtype: np.dtype[Any]) -> int:
    """Return the number that stands for a dtype on all machines: its kind and its size in bytes."""
    return ord(dtype.kind) << 8 | dtype.itemsize


def _dtype_name(code: int) -> str:
    names = {"f": "float", "i": "int", "u": "uint"}
    return f"{names.get(chr(code >> 8 & 0x7F), 'type')}{8 * (code & 0xFF)}"


def _of(words: tuple[int, ...]) -> Task:
    number, kind, dtype, nbytes = words
    return Task(
        number, Kind.BROADCAST if kind & 0xFF == Kind.BROADCAST else Kind.SUM, dtype, nbytes, kind >> 8
    )


class Pieces:
    """Several arrays of one dtype, addressed as one sequence of elements without copying them.

    Attributes:
        dtype: the dtype of all arrays.
        size: the number of elements of all arrays together.
        nbytes: the number of bytes of all arrays together.
        only: the only non-empty array, as (size,); None if there are several or none.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Wrap arrays, which the operation changes in place.

        Raises:
            ConfigError: an array cannot be summed in place.
        """
        dtype = arrays[0].dtype if arrays else np.dtype(np.float32)
        for array in arrays:
            _check(array, dtype)
        self.dtype = dtype
        self._flats: list[Flat] = [array.reshape(-1) for array in arrays if array.size]
        self.only = self._flats[0] if len(self._flats) == 1 else None
        self.size = sum([flat.size for flat in self._flats])
        self.nbytes = self.size * dtype.itemsize

    @functools.cached_property
    def _starts(self) -> list[int]:
        return [0, *accumulate(flat.size for flat in self._flats)]

    @functools.cached_property
    def _bytes(self) -> tuple[list[Flat], list[int]]:
        """All arrays as bytes, and the offset of each."""
        item = self.dtype.itemsize
        return [flat.view(np.uint8) for flat in self._flats], [start * item for start in self._starts]

    def elements(self, start: int, stop: int) -> Iterator[tuple[int, Flat]]:
        """Yield elements `start` to `stop`, array by array: the offset from `start`, and a view (n,)."""
        return _cut(self._flats, self._starts, start, stop)

    def raw(self, start: int, stop: int) -> list[memoryview]:
        """Return the bytes of elements `start` to `stop` as views, one per array."""
        return [part.data for _, part in _cut(*self._bytes, start, stop)]

    def copy_to(self, start: int, stop: int, target: Flat) -> None:
        """Copy elements `start` to `stop` to the beginning of an array (n,) of the same dtype."""
        if self.only is not None:
            target[: stop - start] = self.only[start:stop]
            return
        for at, part in self.elements(start, stop):
            target[at : at + part.size] = part

    def copy_from(self, start: int, stop: int, source: Flat) -> None:
        """Overwrite elements `start` to `stop` with the beginning of an array (n,) of the same dtype."""
        for at, part in self.elements(start, stop):
            part[:] = source[at : at + part.size]


def _cut(flats: Sequence[Flat], starts: Sequence[int], start: int, stop: int) -> Iterator[tuple[int, Flat]]:
    at, number = start, bisect_right(starts, start) - 1
    while at < stop:
        first = starts[number]
        part = flats[number][at - first : stop - first]
        yield at - start, part
        at += part.size
        number += 1


def _check(array: npt.NDArray[Any], dtype: np.dtype[Any]) -> None:
    if array.dtype != dtype:
        raise ConfigError(f"arrays of one operation must have the same dtype, got {dtype} and {array.dtype}")
    if dtype.kind not in "fiu":
        raise ConfigError(f"arrays exchanged between ranks: expected floats or integers, got {dtype}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ConfigError("arrays exchanged between ranks: expected contiguous, writable arrays; pass a copy")
