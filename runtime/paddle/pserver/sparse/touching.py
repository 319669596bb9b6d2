# SPDX-License-Identifier: Apache-2.0
"""Touches memory shortly before rows are put there, in a thread of its own.

The kernel finds memory for a page when it is first touched: 0.2 ms for 2 MB, 4 ms on a virtual machine whose host
has to find it too. A thread that does this without the interpreter's lock takes that time off whoever
answers trainers. It lives only as long as it has something to do, and changes no content.
"""

from __future__ import annotations

import ctypes
import mmap
import threading
from collections import deque
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Memory = npt.NDArray[np.uint8]

_MADV_POPULATE_WRITE = 23  # Linux 5.14; elsewhere the call fails and pages come when they are touched
_PIECE = 2 << 20
"""Bytes at a time: whoever maps memory waits for one piece at most."""


class _Range(NamedTuple):
    memory: Memory
    start: int
    end: int


class Toucher:
    """Touches ranges of memory in the order in which they are given. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: deque[_Range] = deque()
        self._runs = False
        self._advise = ctypes.CDLL(None).madvise
        self._advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

    def touch(self, memory: Memory, start: int, end: int) -> None:
        """Have bytes start .. end of some memory touched soon; returns at once."""
        with self._lock:
            self._ranges.append(_Range(memory, start, end))
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=self._work, name="paddle-memory", daemon=True).start()

    @property
    def is_idle(self) -> bool:
        """Whether all that was given is touched."""
        return not self._runs

    def untouch(self, memory: Memory, start: int, end: int) -> None:
        """Give the whole pages of bytes start .. end back to the machine: they are 0 when they are used again.

        Nobody may be touching them: see `is_idle`.
        """
        at = memory.ctypes.data + start + _PIECE - 1 & -_PIECE
        last = memory.ctypes.data + end & -_PIECE
        if at < last:
            self._advise(at, last - at, mmap.MADV_DONTNEED)

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._ranges:
                    self._runs = False
                    return
                memory, start, end = self._ranges.popleft()
            at = memory.ctypes.data + start & -mmap.PAGESIZE
            last = memory.ctypes.data + end
            while at < last:
                upto = min(at + _PIECE & -_PIECE, last)
                if self._advise(at, upto - at, _MADV_POPULATE_WRITE):
                    break  # a hint, no more
                at = upto
