# SPDX-License-Identifier: Apache-2.0
"""A map from int64 ids to uint32 numbers that grows a segment at a time: open addressing, about 15 bytes an id.

It is cut into 1024 segments by the ids' mixed bits, and each of them grows by itself, by about a seventh. So
no operation moves more than a few segments of 1/1024 of all ids, memory never holds an old and a new copy of
everything, and segments, whose thresholds differ, do not grow all at once.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse import index_kernels as kernels
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]

ABSENT = kernels.ABSENT

_MAX_LOAD = 0.88
# After it grew, a segment's load is between these, by its number: neighbours then grow at other times.
_LOW_LOAD, _HIGH_LOAD = 0.72, 0.80
_BUCKET_BYTES = 12
_SMALLEST = 4


class Index:
    """The map. Not thread-safe."""

    def __init__(self) -> None:
        self._address = np.zeros(SEGMENTS, np.uint64)
        self._capacity = np.ones(SEGMENTS, np.int64)
        self._count = np.zeros(SEGMENTS, np.int64)
        self._memory: list[npt.NDArray[np.uint8]] = []
        # Segments without ids share a bucket that stays empty.
        self._nothing = [self._allocate(segment, 1) for segment in (0, 1)]
        for segment in range(SEGMENTS):
            self._memory.append(self._nothing[min(segment, 1)])
            self._address[segment] = self._memory[segment].ctypes.data

    def __len__(self) -> int:
        return int(self._count.sum())

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the buckets take."""
        return sum(memory.nbytes for memory in self._memory)

    def find(self, ids: Ids) -> Numbers:
        """Return the number of each id (n,), ABSENT for those that are not here."""
        numbers = np.empty(len(ids), np.uint32)
        kernels.find(ids, self._address, self._capacity, numbers)
        return numbers

    def insert(self, ids: Ids, numbers: Numbers) -> None:
        """Add ids (n,), of which none is here and none comes twice, with their numbers (n,), not ABSENT."""
        coming = np.bincount(segments_of(ids), minlength=SEGMENTS)
        needed = self._count + coming
        for segment in np.flatnonzero((coming > 0) & (needed > _MAX_LOAD * self._capacity)).tolist():
            self._resize(segment, _roomy(segment, int(needed[segment])))
        kernels.insert(ids, numbers, self._address, self._capacity, self._count)

    def put(self, ids: Ids, numbers: Numbers) -> None:
        """Give ids (n,) that are all here other numbers."""
        kernels.put(ids, numbers, self._address, self._capacity)

    def remove(self, ids: Ids) -> None:
        """Forget ids (n,) that are all here; the room is kept for others."""
        kernels.remove(ids, self._address, self._capacity, self._count)

    def segment(self, segment: int) -> tuple[Ids, Numbers]:
        """Return copies of the ids and the numbers in one segment, in an order that only the index knows."""
        ids = np.empty(int(self._count[segment]), np.int64)
        numbers = np.empty(len(ids), np.uint32)
        kernels.entries(
            self._address[segment], self._capacity[segment], kernels.empty_of(segment), ids, numbers
        )
        return ids, numbers

    def segments(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield what `segment` returns of every one."""
        return (self.segment(segment) for segment in range(SEGMENTS))

    def replace(self, segment: int, ids: Ids, numbers: Numbers) -> None:
        """Let one segment hold these of its ids and no others; it shrinks to fit."""
        self._memory[segment] = self._nothing[min(segment, 1)]
        self._capacity[segment], self._count[segment] = 1, 0
        self._address[segment] = self._memory[segment].ctypes.data
        if len(ids):
            self._resize(segment, _roomy(segment, len(ids)))
            kernels.insert(ids, numbers, self._address, self._capacity, self._count)

    def _resize(self, segment: int, capacity: int) -> None:
        memory = self._allocate(segment, capacity)
        address = np.uint64(memory.ctypes.data)
        kernels.move(
            self._address[segment],
            self._capacity[segment],
            address,
            capacity,
            kernels.empty_of(segment),
        )
        self._memory[segment] = memory
        self._address[segment], self._capacity[segment] = address, capacity

    def _allocate(self, segment: int, capacity: int) -> npt.NDArray[np.uint8]:
        memory = np.empty(_BUCKET_BYTES * capacity, np.uint8)
        memory[: 8 * capacity].view(np.int64)[:] = kernels.empty_of(segment)
        return memory


def _roomy(segment: int, count: int) -> int:
    """Return the buckets that a segment of so many ids gets when it has to grow."""
    load = _LOW_LOAD + (_HIGH_LOAD - _LOW_LOAD) * segment / SEGMENTS
    return max(int(count / load), _SMALLEST) + 1
