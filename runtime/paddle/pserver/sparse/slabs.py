# SPDX-License-Identifier: Apache-2.0
"""Allocates memory for rows of one shape, in slabs that never move; each row has a number, floats and a tick.

Memory is allocated one slab at a time and committed by the kernel page by page, so that growth copies nothing. In a
large table, pages of future rows are touched in advance: about 1/512 of the table's size, or as many as recent batches
used. Freed numbers are reused first. A row's floats have the shape (parts, part): values, then each state. A part has
the width of the row, plus one for each state with one number per row.

The kernel allocates memory for a page when it is first touched, which takes 0.2 ms for 2 MB, or 4 ms on a virtual
machine whose host must also allocate it. A thread that touches pages without the interpreter's lock saves this time in
the thread that answers trainers. It touches a range from its end, so that it meets the thread that fills the range from
the beginning only once, and the two do not both wait for every page. It also avoids a lock on the whole address space,
as `MADV_POPULATE_WRITE` takes, which would block every other allocation. Contents do not change.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.pserver.sparse.blocks import cells_of
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.rows import KERNELS, Floats, Memory, rows_of
from paddle.pserver.sparse.structures import ComingRows, Numbers
from paddle.threads import ServiceThread
from paddle_node.contract.classes import NamedTuple

_SLAB_BYTES, _HUGE_PAGE = 32 << 20, 2 << 20
_SLABS_ALONE, _SLABS_AT_ONCE = 4, 16
"""Slabs after the first ones are side by side and share huge pages: the ends of a slab alone, where its ticks are, take
small pages, with which updates are slower."""
_LEFT = 4
"""Slabs that are not needed yet are mapped only if this many times their memory could be."""
_NO_MEMORY = OSError, MemoryError, ValueError
_MAX_BITS = 20
_TICK_BYTES = 4
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_HEADROOM, _MOST_PIECE_BYTES = 4 << 20, 1 << 18
_LARGE_BYTES = 16 << 20
_AHEAD_SHIFT, _LEAST_AHEAD_BYTES, _MOST_PACE_BYTES = 9, 4 << 20, 64 << 20
_PACE_SHIFT = 3
"""The estimate of growth decays by an eighth in each batch."""
_SPARE_SHIFT, _MOST_FREE_SHIFT = 6, 4
"""One row in 64 stays free for later ones; more than a sixteenth of all is too much."""
_IDLE_S = 1.0
"""Seconds without work after which the thread ends; until then, new work need not wait for a thread to start."""


def map_memory(nbytes: int) -> Memory:
    """Return zeroed memory that is committed when touched, in huge pages where the machine has them."""
    more = _HUGE_PAGE if nbytes >= _SLAB_BYTES // 2 else 0
    memory = mmap.mmap(-1, nbytes + more, flags=_PRIVATE)
    found = np.frombuffer(memory, np.uint8)
    if not more:
        return found
    memory.madvise(mmap.MADV_HUGEPAGE)
    start = -found.ctypes.data % _HUGE_PAGE
    return found[start : start + nbytes]


class RowMemoryError(PserverError):
    """Raised when there is no memory for new rows of a growing table."""


class Slabs:
    """The memory allocator for the rows of one table. Not thread-safe.

    Attributes:
        rows: reads and changes the rows.
        row_bytes: bytes of a row: floats and tick.
    """

    def __init__(
        self,
        width: int,
        parts: int,
        initial: Initial,
        allocate: Callable[[int], Memory] = map_memory,
        per_row: int = 0,
        name: str = "",
        *,
        is_half: bool = False,
    ) -> None:
        """Create slabs without rows.

        Args:
            width: elements of the values, and of each state.
            parts: 1 + number of states.
            per_row: number of states with one number per row; they follow the values in their part.
            allocate: returns writeable, zeroed, 64-byte aligned memory of the given number of bytes.
            name: the name of the table, for errors.
            is_half: whether values are float16 in memory; see `halves`.
        """
        self._name = name
        self.parts, self.part = parts, width + per_row
        self._allocate = allocate
        self.width, self.is_half = width, is_half
        self.row_bytes = 4 * cells_of(width, self.part * parts, is_half=is_half) + _TICK_BYTES
        self._bits = min(max((_SLAB_BYTES // self.row_bytes).bit_length() - 1, 4), _MAX_BITS)
        self._slab_bytes = self.row_bytes << self._bits
        self._slabs: list[Memory] = []
        self._next_slabs: list[Memory] = []
        self.rows = rows_of(self._bits, width, parts, initial, per_row, is_half=is_half)
        self._used = 0
        self._touched = 0
        self._pace = self._taken = 0
        self._need = self._needed = 0  # rows, new or freed before, that the latest batches took at most
        self._toucher = Toucher()
        self._free = np.zeros(0, np.uint32)
        self._num_free = 0

    def __len__(self) -> int:
        return self._used - self._num_free

    @property
    def nbytes(self) -> int:
        """The memory in bytes of all rows used so far, including freed ones, their ticks, and the list of free rows."""
        return self._used * self.row_bytes + self._free.nbytes + self.rows.nbytes

    def reserve(self, count: int, index_bytes: int, arrays: int = 0) -> None:
        """Reserve rows, and check that there is memory for a batch's arrays and the index.

        Args:
            count: number of rows.
            index_bytes: bytes of the index, which can grow by a fifth in one step.
            arrays: bytes of the arrays.

        Raises:
            RowMemoryError: there is not enough memory; neither rows nor memory were taken.
        """
        slabs = max(-(self._room - count >> self._bits), 0)
        more = max(slabs - len(self._next_slabs), 0) * self._slab_bytes
        try:
            # A limit such as RLIMIT_AS is noticed before a batch changes anything.
            _check_room(_HEADROOM + more + arrays + min(index_bytes // 4, count * _MOST_PIECE_BYTES))
            for _ in range(slabs):
                self._add_slab()
        except _NO_MEMORY as error:
            raise RowMemoryError(
                f"table {self._name}: no memory for {count} more rows; its {len(self)} rows of {self.row_bytes} bytes "
                f"and their index take {self.nbytes + index_bytes} bytes: {error}. Use more servers, or set min_count, "
                "max_age or memory"
            ) from None

    def expect(self, count: int) -> None:
        """Start touching the memory of `count` rows needed soon, unless half of it has been touched already."""
        if count * self.row_bytes >= _LEAST_AHEAD_BYTES and self._touched < self._used + count // 2:
            self._touch(self._used, self._used + count)

    def begin_batch(self) -> None:
        """Begin a batch: lower the estimate of growth, and release memory that was touched in advance and not used."""
        self._pace -= -(-self._pace >> _PACE_SHIFT)
        self._taken = 0
        self._need, self._needed = max(self._needed, self._need - -(-self._need >> _PACE_SHIFT)), 0
        keep = self._used + self._ahead
        if self._touched - self._used > 2 * self._ahead and self._toucher.is_idle:
            for memory, start, end in self._ranges(keep, self._touched):
                self._toucher.untouch(memory, start, end)
            self._touched = keep

    def next_numbers(self, count: int) -> Numbers:
        """Return the numbers of `count` reserved rows, not used before `took` is called; their contents are undefined.

        Raises:
            RowMemoryError: the rows are not reserved.
        """
        if count > self._room:
            raise RowMemoryError(f"table {self._name}: {count} rows are not reserved")
        again = min(count, self._num_free)
        new = np.arange(self._used, self._used + count - again, dtype=np.uint32)
        return np.concatenate((self._free[self._num_free - again : self._num_free], new))

    def coming(self, most: int) -> ComingRows:
        """Return at most `most` reserved rows that a kernel may take."""
        is_large = self._used * self.row_bytes >= _LARGE_BYTES
        ready = max(self._touched - self._used, 0) + self._num_free if is_large else most
        return ComingRows(self._free[: self._num_free], self._used, min(most, self._room), ready)

    def took(self, count: int) -> None:
        """Record that the next `count` reserved rows, as given by `coming` or `next_numbers`, are in use."""
        again = min(count, self._num_free)
        fresh = count - again
        self._num_free -= again
        self._used += fresh
        self._taken += fresh
        self._needed += count
        self._pace = max(self._pace, self._taken)
        if fresh and self._used * self.row_bytes >= _LARGE_BYTES:
            self._touch(self._used - fresh, self._used)
            # The thread is woken when half of the prepared pages are used, not in every batch.
            if self._touched < self._used + max(self._ahead // 2, self._pace):
                self._touch(self._used, self._used + self._ahead)

    def give_back(self, numbers: Numbers) -> None:
        """Mark the rows with these numbers as free, so that new ids can use their memory."""
        needed = self._num_free + len(numbers)
        if needed > len(self._free):
            self._free = np.concatenate((self._free, np.zeros(needed, np.uint32)))
        self._free[self._num_free : needed] = numbers
        self._num_free = needed

    def surplus(self) -> tuple[int, Numbers] | None:
        """Return the new number of row numbers after releasing memory at the end, and the free row numbers below it.

        Returns None if this would release too little memory. Enough rows remain free for a batch as large as the latest
        ones.
        """
        spare = max(len(self) >> _SPARE_SHIFT, self._need, self._needed)
        end = len(self) + spare
        less = self._used - end
        if less <= self._used >> _MOST_FREE_SHIFT or less * self.row_bytes < _LEAST_AHEAD_BYTES:
            return None
        free = self._free[: self._num_free]
        return end, free[free < end]

    def end_at(self, end: int, free: Numbers) -> None:
        """Release the numbers from `end` onwards, whose rows have moved; `free` lists the free numbers before `end`."""
        self._touched = max(self._touched, self._used)  # the next batch returns that memory
        self._used, self._free, self._num_free = end, free.copy(), len(free)

    def room(self, count: int) -> tuple[Floats, Numbers]:
        """Return uninitialized arrays for gathering rows: parts (parts, count, part) float32, and ticks (count,)."""
        return np.empty((self.parts, count, self.part), np.float32), np.empty(count, np.uint32)

    def gathered(self, numbers: Numbers) -> tuple[Floats, Numbers]:
        """Return copies of the rows with these numbers, as (parts, n, part), and of their ticks (n,)."""
        parts, ticks = self.room(len(numbers))
        self.rows.gather(numbers, parts, ticks)
        return parts, ticks

    @property
    def _room(self) -> int:
        """The number of rows that the slabs have room for, in addition to those there are."""
        return (len(self._slabs) << self._bits) - self._used + self._num_free

    @property
    def _ahead(self) -> int:
        """The number of rows beyond the used ones whose memory is touched."""
        pace_bytes = min(self._pace * self.row_bytes, _MOST_PACE_BYTES)
        used_bytes = self._used * self.row_bytes
        return max(used_bytes >> _AHEAD_SHIFT, _LEAST_AHEAD_BYTES, pace_bytes) // self.row_bytes

    def _touch(self, start: int, end: int) -> None:
        """Start to touch the untouched memory of rows number `start` to `end`."""
        start = max(start, self._touched)
        with contextlib.suppress(*_NO_MEMORY):  # reported when it is needed
            while end > len(self._slabs) << self._bits:
                if not self._next_slabs:
                    _check_room(_LEFT * self._slab_bytes)
                self._add_slab()
        end = min(end, len(self._slabs) << self._bits)
        for memory, first, last in reversed(list(self._ranges(start, end))):
            self._toucher.touch(memory, first, last)
        self._touched = max(self._touched, end)

    def _ranges(self, start: int, end: int) -> Iterator[tuple[Memory, int, int]]:
        """Yield (memory, first byte, end byte) of the floats and ticks of rows number `start` to `end`."""
        row = self.row_bytes - _TICK_BYTES
        while start < end:
            slab, place = start >> self._bits, start & ((1 << self._bits) - 1)
            count = min(end - start, (1 << self._bits) - place)
            for base, size in ((0, row), (row << self._bits, _TICK_BYTES)):
                yield self._slabs[slab], base + place * size, base + (place + count) * size
            start += count

    def _add_slab(self) -> None:
        size, count = self._slab_bytes, _SLABS_AT_ONCE if len(self._slabs) >= _SLABS_ALONE else 1
        while not self._next_slabs:
            try:
                if count > 1:
                    _check_room(_LEFT * count * size)
                memory = self._allocate(count * size)
                self._next_slabs = [memory[at : at + size] for at in range(0, len(memory), size)]
            except _NO_MEMORY:
                if count == 1:
                    raise
                count //= 2
        memory = self._next_slabs.pop(0)
        self._slabs.append(memory)
        self.rows.add(memory)


def _check_room(nbytes: int) -> None:
    """Check that this much memory could be mapped. Raises one of `_NO_MEMORY`."""
    mmap.mmap(-1, nbytes, flags=_PRIVATE).close()


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
        at = memory.ctypes.data + start + _HUGE_PAGE - 1 & -_HUGE_PAGE
        last = memory.ctypes.data + end & -_HUGE_PAGE
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
