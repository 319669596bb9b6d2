# SPDX-License-Identifier: Apache-2.0
"""Arrays of one dtype seen as one long buffer, so that many gradients travel as one without being copied together."""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError

Flat = npt.NDArray[Any]


class Pieces:
    """The arrays' own memory, end to end.

    Attributes:
        dtype: of all arrays.
        size: elements of all arrays.
        nbytes: bytes of all arrays.
        only: (size,), the only array that is not empty; None: there are several, or none.
    """

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Take arrays; they are changed later on.

        Raises:
            ConfigError: they cannot be summed where they lie.
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
        """All arrays as bytes, and where each begins."""
        item = self.dtype.itemsize
        return [flat.view(np.uint8) for flat in self._flats], [start * item for start in self._starts]

    def elements(self, start: int, stop: int) -> Iterator[tuple[int, Flat]]:
        """Yield what lies between two elements: how far from `start`, and (n,) of one array."""
        return _cut(self._flats, self._starts, start, stop)

    def raw(self, start: int, stop: int) -> list[memoryview]:
        """Return what lies between two bytes."""
        return [part.data for _, part in _cut(*self._bytes, start, stop)]

    def copy_to(self, start: int, stop: int, target: Flat) -> None:
        """Copy what lies between two elements to the beginning of an array."""
        if self.only is not None:
            target[: stop - start] = self.only[start:stop]
            return
        for at, part in self.elements(start, stop):
            target[at : at + part.size] = part

    def copy_from(self, start: int, stop: int, source: Flat) -> None:
        """Replace what lies between two elements by the beginning of an array."""
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
        raise ConfigError(f"arrays of one operation: expected all {dtype}, got {array.dtype} too")
    if dtype.kind not in "fiu":
        raise ConfigError(f"arrays between ranks: expected float or integer numbers, got {dtype}")
    if not array.flags.c_contiguous or not array.flags.writeable:
        raise ConfigError("arrays between ranks: expected contiguous, writable ones; pass a copy")
