# SPDX-License-Identifier: Apache-2.0
"""Memory for large arrays, used again once nobody refers to what lay in it: it is in the caches then, and found."""

from __future__ import annotations

import sys

import numpy as np

_LINE = 64
_KEPT = 4
# Of an array of ours that nobody else uses: in the list, as the loop's variable, as the argument of the question.
_OURS = 3


class ReusedMemory:
    """A few pieces of one reader. Not thread-safe; what was taken may be dropped in any thread."""

    def __init__(self) -> None:
        self._kept: list[np.ndarray[tuple[int], np.dtype[np.uint8]]] = []

    def take(self, length: int) -> memoryview:
        """Return `length` bytes that begin with a line of the cache, so that compiled loops take none twice."""
        for memory in self._kept:
            if memory.size == length and sys.getrefcount(memory) == _OURS:
                return memory.data
        whole = np.empty(length + _LINE, np.uint8)
        start = -whole.ctypes.data % _LINE
        memory = whole[start : start + length]
        self._kept = [memory, *self._kept[: _KEPT - 1]]
        return memory.data
