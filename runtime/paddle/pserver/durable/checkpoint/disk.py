# SPDX-License-Identifier: Apache-2.0
"""Reads and writes large files, bypassing the page cache where possible, and manages the memory for that.

The page cache copies every byte once more and needs memory: writing 4 GB takes 12 s of processor time through the
cache, and 0.2 s without it. Direct I/O needs memory, positions and lengths in whole pages. Memory is reused, because
allocating and clearing new pages takes several times as long as the copy itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import sys
import threading
import weakref
from collections import deque
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.threads import ServiceThread

Memory = npt.NDArray[np.uint8]

PAGE = 4096
BLOCK = 16 << 20
_SLOT = 8 << 20  # bytes of the largest array in a copy
_SMALLEST = _SLOT // 8  # a smaller array would waste most of a slot, and is copied quickly anyway
_SHARE = 8  # copies use one part in this many of free memory, since other processes need some too
_AT_ONCE = 32 << 20
_NICE = 10


def map_block(nbytes: int = BLOCK) -> Memory:
    """Return page-aligned memory as an array; the memory is released with the array."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def go_past_cache(descriptor: int) -> bool:
    """Make a file bypass the page cache from now on (O_DIRECT); return whether the file system supports this."""
    flag = getattr(os, "O_DIRECT", 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | flag)
    except OSError:
        return False
    return bool(flag)


def go_through_cache(descriptor: int) -> None:
    """Make a file use the page cache again, after `go_past_cache`."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~getattr(os, "O_DIRECT", 0)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


class SpareMemory:
    """A pool of memory for copies of arrays. Thread-safe."""

    def __init__(self) -> None:
        """Start without any memory."""
        self._free: deque[Memory] = deque()
        self._is_closed = threading.Event()

    def prepare(self, nbytes: int) -> None:
        """Allocate this much memory, at most an eighth of the free memory, in a separate low-priority thread."""
        nbytes = min(nbytes, os.sysconf("SC_AVPHYS_PAGES") * mmap.PAGESIZE // _SHARE)
        ServiceThread(partial(self._find, nbytes), name="checkpoint-memory")

    def copy(self, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a copy of an array; its memory is reused when the copy is no longer referenced."""
        if not _SMALLEST <= array.nbytes <= _SLOT:
            return array.copy()
        try:
            slot = self._free.pop()  # the slot that was used last may still be in a cache
        except IndexError:
            return array.copy()
        copy = slot[: array.nbytes].view(array.dtype).reshape(array.shape)
        np.copyto(copy, array)
        weakref.finalize(copy, self._free.append, slot).atexit = False
        return copy

    def close(self) -> None:
        """Stop the thread that allocates spare memory."""
        self._is_closed.set()

    def _find(self, nbytes: int) -> None:
        give_way()
        for start in range(0, nbytes, _AT_ONCE):
            if self._is_closed.is_set():
                return
            try:
                memory = map_block(-(-min(_AT_ONCE, nbytes - start) // _SLOT) * _SLOT)
            except OSError:  # copies are then stored wherever there is room
                return
            memory[:: mmap.PAGESIZE] = 0
            self._free.extend(memory[at : at + _SLOT] for at in range(0, len(memory), _SLOT))


def give_way() -> None:
    """If processors are scarce, give the calling thread a lower priority than threads that trainers wait for."""
    if sys.platform == "linux":  # where a thread has a priority of its own
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
