# SPDX-License-Identifier: Apache-2.0
"""Arrays of one dtype seen as one long buffer, so that many gradients travel as one without being copied together."""

from __future__ import annotations

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
    """

    def __init__(self, arrays: Sequence[npt.NDArray[Any]]) -> None:
        """Take arrays; they are changed later on.

        Raises:
            ConfigError: they cannot be summed where they lie.
        """
        for array in arrays:
            _check(array, arrays[0].dtype)
        self.dtype = arrays[0].dtype if arrays else np.dtype(np.float32)
        self._flats: list[Flat] = [array.reshape(-1) for array in arrays if array.size]
        self._bytes = [flat.view(np.uint8) for flat in self._flats]
        self._starts = [0, *accumulate(flat.size for flat in self._flats)]
        self._byte_starts = [start * self.dtype.itemsize for start in self._starts]
        self.size = self._starts[-1]
        self.nbytes = self._byte_starts[-1]

    def elements(self, start: int, stop: int) -> Iterator[tuple[int, Flat]]:
        """Yield what lies between two elements: how far from `start`, and (n,) of one array."""
        return _cut(self._flats, self._starts, start, stop)

    def raw(self, start: int, stop: int) -> list[memoryview]:
        """Return what lies between two bytes."""
        return [part.data for _, part in _cut(self._bytes, self._byte_starts, start, stop)]


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
