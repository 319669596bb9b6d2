# SPDX-License-Identifier: Apache-2.0
"""Rows of a table that are on disk: floats in an unnamed file, ids and ticks in memory.

The file is an extension of memory: it is not read after the process has ended, and checkpoints contain its rows. It
grows by extents that the file system reserves, so a full disk is detected before any row is moved. Rows are written
through a mapping, which takes a hundredth of the time of system calls, and read by system calls, which report errors:
the kernel is asked for all rows before the first is read. The mapping is dropped now and then, so that its pages do not
count as memory of the process.

    file    | slot 0: values, state 1, .. | slot 1 | .. |        row_bytes each
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.kernels import library
from paddle.pserver.sparse.index import ABSENT, new_index
from paddle.pserver.sparse.structures import Ids, Numbers

Floats = npt.NDArray[np.float32]

_LEAST_EXTENT, _MOST_EXTENT = 1 << 20, 256 << 20
_BLOCK_ROWS = 4096
_MOST_LATELY = 16 << 20
_MOST_WRITTEN = 1 << 14
"""Rows, each in a page of its own, that are written before the mapping is dropped: 64 MB."""
KERNELS = library.Kernels(disk_read="npnnp:n")
"""The loop of `disk.c`."""

DISK_ROW_BYTES = 21
"""Memory of a row on disk: its share of the index, and its tick."""


class DiskRows:
    """The rows on disk. Not thread-safe, except `read_into`.

    Attributes:
        index: slot of each id.
        ticks: by slot; replaced by another array when the number of slots grows.
        close: closes the file, which deletes it.
    """

    def __init__(self, folder: str, parts: int, part: int) -> None:
        """Create the file.

        Args:
            folder: a directory on the disk.
            parts, part: shape of a row's floats.

        Raises:
            PserverError: the file cannot be created.
        """
        self._folder, self._parts, self._part = folder, parts, part
        self.row_bytes = 4 * parts * part
        self.index = new_index()
        self.ticks = np.zeros(0, np.uint32)
        self._free: list[Numbers] = []
        self._used = self._num_free = self._written = 0
        self._lately: tuple[Numbers, Floats] | None = (
            None  # slots and rows that were read since the last write
        )
        try:
            os.makedirs(folder, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder) as file:
                self._fd = os.dup(file.fileno())
        except OSError as error:
            raise PserverError(f"disk {folder!r} of a growing table: {error.strerror}") from None
        self.close = weakref.finalize(self, os.close, self._fd)

    def __len__(self) -> int:
        return self._used - self._num_free

    @property
    def used(self) -> int:
        """The number of slots that were ever used."""
        return self._used

    @property
    def nbytes(self) -> int:
        """The memory in bytes."""
        return self.index.nbytes + self.ticks.nbytes + 4 * self._num_free

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes."""
        return len(self.ticks) * self.row_bytes

    def reserve(self, count: int) -> None:
        """Reserve room for more rows.

        Raises:
            PserverError: the disk is full; nothing was changed.
        """
        needed = self._used + count - self._num_free
        if needed <= len(self.ticks):
            return
        slots = len(self.ticks)
        extent = min(max(slots * self.row_bytes // 8, _LEAST_EXTENT), _MOST_EXTENT) // self.row_bytes
        for size in (max(needed, slots + extent), needed):  # a little less may fit
            try:
                start = slots * self.row_bytes
                os.posix_fallocate(self._fd, start, size * self.row_bytes - start)
            except OSError as error:
                os.ftruncate(self._fd, start)
                why = error.strerror
                continue
            self.ticks = np.concatenate((self.ticks, np.zeros(size - slots, np.uint32)))
            self._map = mmap.mmap(self._fd, size * self.row_bytes)
            self._rows = np.frombuffer(self._map, np.float32).reshape(size, self._parts, self._part)
            return
        raise PserverError(
            f"disk {self._folder!r} of a growing table: no room for {count} more rows of {self.row_bytes} bytes "
            f"beside {len(self)}: {why}; free some space, or use more servers; nothing was changed"
        )

    def put(self, ids: Ids, parts: Floats, ticks: Numbers) -> Numbers:
        """Write rows (parts, n, part) of new ids (n,), after `reserve`; return their slots (n,)."""
        slots = self._take(len(ids))
        self.rewrite(slots, parts)
        self.ticks[slots] = ticks
        self.index.insert(ids, slots)
        return slots

    def read(self, slots: Numbers) -> Floats:
        """Return rows (parts, n, part)."""
        return self.read_into(slots, np.empty((self._parts, len(slots), self._part), np.float32))

    def recall(self, slots: Numbers) -> Floats:
        """Return rows (parts, n, part) of ascending slots (n,), not to be changed.

        A batch that looks up its rows first finds them in memory when it changes them.
        """
        if self._lately is not None:
            known, parts = self._lately
            at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
            if len(slots) and (known[at] == slots).all():
                return parts if len(slots) == len(known) else np.ascontiguousarray(parts[:, at])
        found = self.read(slots)
        if 0 < found.nbytes <= _MOST_LATELY:
            self._lately = slots, found
        return found

    def read_into(self, slots: Numbers, parts: Floats) -> Floats:
        """Read rows into (parts, n, part), and return it. Any thread can call it.

        Raises:
            PserverError: they cannot be read.
        """
        if not len(slots):
            return parts
        order = np.argsort(slots)
        rows = np.empty((len(slots), self._parts, self._part), np.float32)
        slots, loops = slots[order], KERNELS.loaded or _PLAIN
        found = loops.disk_read(self._fd, slots.ctypes.data, len(slots), self.row_bytes, rows.ctypes.data)
        if found:
            why = os.strerror(found) if found > 0 else "the file is too short"
            raise PserverError(f"disk {self._folder!r} of a growing table: {why}")
        parts[:, order] = rows.swapaxes(0, 1)
        return parts

    def rewrite(self, slots: Numbers, parts: Floats) -> None:
        """Overwrite rows."""
        self._lately = None
        self._rows[slots] = parts.swapaxes(0, 1)
        self._written += len(slots)
        if self._written >= _MOST_WRITTEN:
            self._map.madvise(mmap.MADV_DONTNEED)  # of a mapped file: its content stays
            self._written = 0

    def forget(self, ids: Ids) -> Numbers:
        """Drop the rows of ids (n,), all distinct and on disk; return their slots, which can still be read."""
        slots = self.index.find(ids)
        here = slots != ABSENT
        self.index.remove(ids[here])
        self._give_back(slots[here])
        left: Numbers = slots[here]
        return left

    def blocks(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield ids and slots of all rows, in blocks."""
        for ids, slots in self.index.segments():
            for start in range(0, len(ids), _BLOCK_ROWS):
                yield ids[start : start + _BLOCK_ROWS], slots[start : start + _BLOCK_ROWS]

    def _take(self, count: int) -> Numbers:
        found: list[Numbers] = []
        left = count
        while left and self._free:
            some = self._free.pop()
            found.append(some[:left])
            if len(some) > left:
                self._free.append(some[left:])
            left -= len(found[-1])
        self._num_free -= count - left
        found.append(np.arange(self._used, self._used + left, dtype=np.uint32))
        self._used += left
        slots: Numbers = np.sort(np.concatenate(found))
        return slots

    def _give_back(self, slots: Numbers) -> None:
        if len(slots):
            self._free.append(np.sort(slots))
            self._num_free += len(slots)


class _Plain:
    """The plain form of `disk.c`."""

    def disk_read(self, fd: int, slots: int, n: int, size: int, rows: int) -> int:
        """Read rows one after the other."""
        for row, at in _rows_at(slots, n, size, rows):
            try:
                if os.preadv(fd, [row], at) < size:
                    return -1
            except OSError as error:
                return error.errno or errno.EIO
        return 0


_PLAIN = _Plain()


def _rows_at(slots: int, n: int, size: int, rows: int) -> Iterator[tuple[memoryview, int]]:
    """Yield the memory of each row, and its position in the file."""
    whole = memoryview((ctypes.c_char * (n * size)).from_address(rows)).cast("B")
    for i, slot in enumerate((ctypes.c_uint32 * n).from_address(slots)):
        yield whole[i * size : (i + 1) * size], slot * size
