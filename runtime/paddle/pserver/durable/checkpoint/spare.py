# SPDX-License-Identifier: Apache-2.0
"""Memory for copies that are made in a hurry: the system found it before, and it is used again and again.

Memory that nobody has touched yet has to be found and cleared first, which takes several times as long as copying; on a
virtual machine its host has to find it too.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.pserver.durable.checkpoint.direct import Memory, map_block
from paddle.pserver.durable.checkpoint.yielding import give_way

_SLOT = 8 << 20  # bytes of the largest array that a copy is made of
_SHARE = 8  # of free memory; trainers, other servers and readers of files want some too
_AT_ONCE = 32 << 20
_SMALLEST = _SLOT // 8  # what is smaller would waste most of a slot, and is quickly copied anywhere


class SpareMemory:
    """Slots for copies of arrays. May be used by several threads."""

    def __init__(self) -> None:
        """Begin without any."""
        self._free: deque[Memory] = deque()
        self._is_closed = threading.Event()

    def prepare(self, nbytes: int) -> None:
        """Find so much memory, or an eighth of what is free, in a thread of its own that gives way to others."""
        nbytes = min(nbytes, os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // _SHARE)
        threading.Thread(target=self._find, args=(nbytes,), name="checkpoint-memory", daemon=True).start()

    def copy(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of an array; its memory is used again once nobody has that very array any more."""
        if not _SMALLEST <= array.nbytes <= _SLOT:
            return array.copy()
        try:
            slot = self._free.pop()  # the one that was used last may still be in a cache
        except IndexError:
            return array.copy()
        copy = slot[: array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        weakref.finalize(copy, self._free.append, slot).atexit = False
        return copy

    def close(self) -> None:
        """Find no more."""
        self._is_closed.set()

    def _find(self, nbytes: int) -> None:
        give_way()
        for start in range(0, nbytes, _AT_ONCE):
            if self._is_closed.is_set():
                return
            try:
                memory = map_block(-(-min(_AT_ONCE, nbytes - start) // _SLOT) * _SLOT)
            except OSError:  # copies then go where there is room
                return
            memory[:: mmap.PAGESIZE] = 0
            self._free.extend(memory[at : at + _SLOT] for at in range(0, len(memory), _SLOT))
