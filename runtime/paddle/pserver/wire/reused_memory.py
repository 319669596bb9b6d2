# SPDX-License-Identifier: Apache-2.0
"""Memory for large arrays, used again once nobody refers to what lay in it: it is in the caches then, and found."""

from __future__ import annotations

import sys

import numpy as np

_LINE = 64
_KEPT = 4


class ReusedMemory:
    """A few pieces of one reader. Not thread-safe; what was taken may be dropped in any thread."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def take(self, length: int) -> memoryview:
        """Return `length` bytes that begin with a line of the cache, so that compiled loops take none twice."""
        for memory in self._kept:
            if memory.size == length and sys.getrefcount(memory) == _FREE:
                return memory.data
        whole = np.empty(length + _LINE, np.uint8)
        start = -whole.ctypes.data % _LINE
        memory = whole[start : start + length]
        self._kept = [memory, *self._kept[: _KEPT - 1]]
        return memory.data


def _references_when_free() -> int:
    """Return what the question of `take` is answered for memory that nobody refers to, -1 if that cannot be told.

    How many references the interpreter holds itself differs between its versions.
    """
    kept = [np.empty(1, np.uint8)]
    view, counts = None, []
    for _ in range(2):
        for memory in kept:
            counts.append(sys.getrefcount(memory))
        view = kept[0].data
    del view
    free, used = counts
    return free if free < used else -1


_FREE = _references_when_free()
