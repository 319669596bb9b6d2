# SPDX-License-Identifier: Apache-2.0
"""Files read and written past the system's page cache, where the file system can: then a large file costs no processor.

Through the page cache every byte is copied once more, and memory must be found for it, which on a virtual machine takes
longer than the disk. Such files take memory, places and lengths in whole pages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt

Memory = npt.NDArray[np.uint8]

PAGE = 4096
BLOCK = 16 << 20


def map_block(nbytes: int = BLOCK) -> Memory:
    """Return memory that begins with a page; it is given back with the array."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


def go_past_cache(descriptor: int) -> bool:
    """Have a file go past the page cache from now on; return whether it can."""
    flag = getattr(os, "O_DIRECT", 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | flag)
    except OSError:
        return False
    return bool(flag)


def go_through_cache(descriptor: int) -> None:
    """Undo `go_past_cache`."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~getattr(os, "O_DIRECT", 0)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


class NewFile:
    """A file that is written block after block; every method may raise OSError."""

    def __init__(self, path: Path) -> None:
        """Make the file; there must be none."""
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._is_direct = go_past_cache(self._file)
        self._at = 0

    def write(self, block: Memory, count: int) -> None:
        """Write the first `count` bytes of a mapped block; only the last block may be another than whole pages."""
        length = -(-count // PAGE) * PAGE if self._is_direct else count
        block[count:length] = 0
        done = 0
        while done < length:
            try:
                done += os.pwrite(self._file, block[done:length].data, self._at + done)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                go_through_cache(self._file)  # it was asked too much, and says so only now
                self._is_direct = False
        if not self._is_direct:
            # has the disk begin now instead of at the fsync; nobody reads it here soon
            os.posix_fadvise(self._file, self._at, length, os.POSIX_FADV_DONTNEED)
        self._at += count

    def finish(self) -> None:
        """Have the disk keep what was written."""
        os.ftruncate(self._file, self._at)
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file; may be called twice."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
