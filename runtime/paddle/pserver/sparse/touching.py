# SPDX-License-Identifier: Apache-2.0
"""Touches memory in a separate thread, shortly before rows are written to it.

The kernel allocates memory for a page when it is first touched, which takes 0.2 ms for 2 MB, or 4 ms on a virtual
machine whose host must also allocate it. A thread that touches pages without the interpreter's lock saves this time in
the thread that answers trainers. It touches a range from its end, so that it meets the thread that fills the range from
the beginning only once, and the two do not both wait for every page. It also avoids a lock on the whole address space,
as `MADV_POPULATE_WRITE` takes, which would block every other allocation. Contents do not change.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.rows import KERNELS
from paddle.threads import ServiceThread

Memory = npt.NDArray[np.uint8]

_HUGE = 2 << 20
_IDLE_S = 1.0
"""Seconds without work after which the thread ends; until then, new work need not wait for a thread to start."""


def touch(memory: npt.NDArray[np.generic], start: int = 0, end: int | None = None) -> None:
    """Touch the pages of bytes start .. end of a block of memory, from the last page back to the first."""
    size = memory.nbytes if end is None else end
    if (
        loops := KERNELS.loaded
    ) is None or start >= size:  # only C can touch memory that other threads may be writing
        return
    address = memory.ctypes.data
    loops.rows_touch(address + start & -mmap.PAGESIZE, address + size - 1 & -mmap.PAGESIZE, mmap.PAGESIZE)


class _Range(NamedTuple):
    memory: Memory
    start: int
    end: int


class Toucher:
    """A thread that touches ranges of memory in the given order. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ranges: deque[_Range] = deque()
        self._runs = False
        self._is_idle = True
        self._advise = ctypes.CDLL(None).madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def touch(self, memory: Memory, start: int, end: int) -> None:
        """Have bytes start .. end of a block of memory touched soon; returns immediately."""
        if start >= end:
            return
        with self._changed:
            self._ranges.append(_Range(memory, start, end))
            self._is_idle = False
            self._changed.notify()
            if self._runs:
                return
            self._runs = True
        try:
            ServiceThread(self._work, name="paddle-memory")
        except RuntimeError:  # there are too many: memory is then found when it is needed
            with self._changed:
                self._ranges.clear()
                self._runs, self._is_idle = False, True

    @property
    def is_idle(self) -> bool:
        """Return whether the thread has touched all memory that it was given."""
        return self._is_idle

    def untouch(self, memory: Memory, start: int, end: int) -> None:
        """Return the whole pages in bytes start .. end of a block to the system; used again, they read as 0.

        No thread may be touching these pages: see `is_idle`.
        """
        at = memory.ctypes.data + start + _HUGE - 1 & -_HUGE
        last = memory.ctypes.data + end & -_HUGE
        if at < last:
            self._advise(at, last - at, mmap.MADV_DONTNEED)

    def _work(self) -> None:
        while (given := self._next()) is not None:
            touch(*given)
            del given

    def _next(self) -> _Range | None:
        """Wait for a range to touch; None means none was added for a long time, and the thread ends."""
        with self._changed:
            if not self._ranges:
                self._is_idle = True
                self._changed.wait_for(lambda: self._ranges, _IDLE_S)
            if not self._ranges:
                self._runs = False
                return None
            return self._ranges.popleft()
