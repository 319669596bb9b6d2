# SPDX-License-Identifier: Apache-2.0
"""Rows of one shape in slabs of memory that never move; a row has a number, floats and a tick.

Memory is taken a slab at a time and committed by the kernel page by page, so that growth copies nothing. A large
table has the pages of rows to come touched beforehand: about 1/512 of its size, and as many as a batch lately took.
Numbers that were given back are used again first. Floats of a row: values, then each state, (parts, part): a
part is as wide as the row, and wider by the states of which the row has one number.
"""

from __future__ import annotations

import contextlib
import mmap
from collections.abc import Callable, Iterator

import numpy as np

from paddle.errors import PserverError
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.rows import Floats, Memory, rows_of
from paddle.pserver.sparse.structures import ComingRows, Numbers
from paddle.pserver.sparse.touching import Toucher

_SLAB_BYTES = 32 << 20
_MAX_BITS = 20
_TICK_BYTES = 4
_LARGE_BYTES = 16 << 20
_AHEAD_SHIFT, _LEAST_AHEAD_BYTES, _MOST_PACE_BYTES = 9, 4 << 20, 64 << 20
_PACE_SHIFT = 3
"""The pace of growth is forgotten by an eighth at each batch."""


def map_memory(nbytes: int) -> Memory:
    """Return zeros that take memory once they are touched, in huge pages where the machine has them."""
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if nbytes >= _SLAB_BYTES // 2:
        memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)


class Slabs:
    """All rows of one table. Not thread-safe.

    Attributes:
        rows: what reads and changes them.
        row_bytes: of a row: floats and tick.
    """

    def __init__(
        self,
        width: int,
        parts: int,
        initial: Initial,
        allocate: Callable[[int], Memory] = map_memory,
        per_row: int = 0,
    ) -> None:
        """Prepare.

        Args:
            width: elements of the values, and of each state.
            parts: 1 + number of states.
            per_row: states of which a whole row has one number; they end the part of the values.
            allocate: gives writeable, zeroed, 64-byte aligned memory of so many bytes.
        """
        self.parts, self.part = parts, width + per_row
        self._allocate = allocate
        self.row_bytes = 4 * self.part * parts + _TICK_BYTES
        self._bits = min(max((_SLAB_BYTES // self.row_bytes).bit_length() - 1, 4), _MAX_BITS)
        self._slabs: list[Memory] = []
        self.rows = rows_of(self._bits, width, parts, initial, per_row)
        self._used = 0
        self._touched = 0
        self._pace = self._taken = 0
        self._toucher = Toucher()
        self._free = np.zeros(0, np.uint32)
        self._num_free = 0

    def __len__(self) -> int:
        return self._used - self._num_free

    @property
    def nbytes(self) -> int:
        """Bytes that rows took so far with their ticks, given back or not, and what is kept about free ones."""
        return self._used * self.row_bytes + self._free.nbytes + self.rows.nbytes

    def reserve(self, count: int) -> None:
        """Reserve the given number of rows.

        Raises:
            PserverError: there is no memory for them; no row was taken.
        """
        while self._used + count - self._num_free > len(self._slabs) << self._bits:
            try:
                self._add_slab()
            except (OSError, MemoryError, ValueError) as error:
                raise PserverError(
                    f"no memory for more than {len(self)} rows of {self.row_bytes} bytes: {error}; "
                    "use more servers, an entry filter, eviction by age or a memory budget"
                ) from None

    def expect(self, count: int) -> None:
        """Have memory touched for so many rows that will be taken soon, unless half of it is."""
        if count * self.row_bytes >= _LEAST_AHEAD_BYTES and self._touched < self._used + count // 2:
            self._touch(self._used, self._used + count)

    def begin_batch(self) -> None:
        """Forget a little of the pace of growth, and give memory back that it made ready and that nobody came for."""
        self._pace -= -(-self._pace >> _PACE_SHIFT)
        self._taken = 0
        keep = self._used + self._ahead
        if self._touched - self._used > 2 * self._ahead and self._toucher.is_idle:
            for memory, start, end in self._ranges(keep, self._touched):
                self._toucher.untouch(memory, start, end)
            self._touched = keep

    def take(self, count: int) -> Numbers:
        """Return the numbers of so many rows, which were reserved; they hold whatever was there."""
        again = min(count, self._num_free)
        new = np.arange(self._used, self._used + count - again, dtype=np.uint32)
        numbers = np.concatenate((self._free[self._num_free - again : self._num_free], new))
        self.took(count)
        return numbers

    def coming(self, most: int) -> ComingRows:
        """Return which of the reserved rows a kernel takes, `most` of them."""
        is_large = self._used * self.row_bytes >= _LARGE_BYTES
        ready = max(self._touched - self._used, 0) + self._num_free if is_large else most
        return ComingRows(self._free[: self._num_free], self._used, most, ready)

    def took(self, count: int) -> None:
        """Note that this many rows, as in `coming`, were taken."""
        again = min(count, self._num_free)
        fresh = count - again
        self._num_free -= again
        self._used += fresh
        self._taken += fresh
        self._pace = max(self._pace, self._taken)
        if fresh and self._used * self.row_bytes >= _LARGE_BYTES:
            self._touch(self._used - fresh, self._used)
            self._touch(self._used, self._used + self._ahead)

    def give_back(self, numbers: Numbers) -> None:
        """Free these rows for reuse."""
        needed = self._num_free + len(numbers)
        if needed > len(self._free):
            self._free = np.concatenate((self._free, np.zeros(needed, np.uint32)))
        self._free[self._num_free : needed] = numbers
        self._num_free = needed

    def room(self, count: int) -> tuple[Floats, Numbers]:
        """Return what rows can be gathered into: parts (parts, count, part) and ticks (count,), not filled."""
        return np.empty((self.parts, count, self.part), np.float32), np.empty(count, np.uint32)

    def gathered(self, numbers: Numbers) -> tuple[Floats, Numbers]:
        """Return copies of rows: parts (parts, n, part), and ticks (n,)."""
        parts, ticks = self.room(len(numbers))
        self.rows.gather(numbers, parts, ticks)
        return parts, ticks

    @property
    def _ahead(self) -> int:
        """How many rows beyond the used ones have their memory touched."""
        pace_bytes = min(self._pace * self.row_bytes, _MOST_PACE_BYTES)
        used_bytes = self._used * self.row_bytes
        return max(used_bytes >> _AHEAD_SHIFT, _LEAST_AHEAD_BYTES, pace_bytes) // self.row_bytes

    def _touch(self, start: int, end: int) -> None:
        """Have the memory of rows number `start` to `end` touched, as far as it was not."""
        start = max(start, self._touched)
        with contextlib.suppress(OSError, MemoryError, ValueError):  # told when it is needed
            while end > len(self._slabs) << self._bits:
                self._add_slab()
        end = min(end, len(self._slabs) << self._bits)
        for memory, first, last in reversed(list(self._ranges(start, end))):
            self._toucher.touch(memory, first, last)
        self._touched = max(self._touched, end)

    def _ranges(self, start: int, end: int) -> Iterator[tuple[Memory, int, int]]:
        """Yield where rows number `start` to `end` lie, floats and ticks: memory, first byte, byte after the last."""
        row, floats = 4 * self.part * self.parts, 4 * self.part * self.parts << self._bits
        while start < end:
            slab, place = start >> self._bits, start & ((1 << self._bits) - 1)
            count = min(end - start, (1 << self._bits) - place)
            for base, size in ((0, row), (floats, _TICK_BYTES)):
                yield self._slabs[slab], base + place * size, base + (place + count) * size
            start += count

    def _add_slab(self) -> None:
        memory = self._allocate(self.row_bytes << self._bits)
        self._slabs.append(memory)
        self.rows.add(memory)
