# SPDX-License-Identifier: Apache-2.0
"""Manages the rows of a table that are on disk: floats in a `DiskFile`, ids and ticks in memory.

The file only extends memory: it is not read after the process has ended, and checkpoints include its rows. Rows are
written sequentially into empty extents, so that a batch's rows take one or two system calls. A row that returns to
memory leaves its slot empty. When a quarter of the slots is empty, the rows of the emptiest extents are compacted.

    extent 0      | extent 1      | ..
    a . b . . c d | . . . . . . . |          next rows go to extent 1
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import numpy as np

from paddle.errors import DiskError
from paddle.pserver.sparse.disk_file import DiskFile, Floats
from paddle.pserver.sparse.index import ABSENT, new_index
from paddle.pserver.sparse.structures import Flags, Ids, Numbers

_EXTENT_BYTES = 512 << 10
_GROWTH_SHIFT, _MOST_GROWTH = 3, 256 << 20
_BLOCK_ROWS = 4096
_MOST_LATELY, _MOST_LOOKUPS = 4 << 20, 8
_MOST_EMPTY = 4
"""One slot in this number may be empty."""

DISK_ROW_BYTES = 27
"""Memory of a row on disk, at most, on average: its share of the index, its tick, and a byte, also for empty slots."""


class DiskRows:
    """The rows of a table that are on disk. Not thread-safe, except `read_checked`.

    Attributes:
        index: slot of each id.
        file: the file.
        ticks: the ticks by slot; replaced by a new array when the number of slots grows.
    """

    def __init__(self, folder: str, table: str, parts: int, part: int, halves: int = 0) -> None:
        """Create the file.

        Args:
            folder, table, parts, part, halves: see `DiskFile`.

        Raises:
            DiskError: the file cannot be created.
        """
        self.file = DiskFile(folder, table, parts, part, halves)
        self.index = new_index()
        self.ticks = np.zeros(0, np.uint32)
        self._shape = parts, part
        self._extent = max(_EXTENT_BYTES // self.file.slot_bytes, 8)
        self._is_used = np.zeros(0, np.bool_)  # by slot
        self._counts = np.zeros(0, np.int64)  # of used slots, by extent
        self._empty: list[int] = []  # extents
        self._damaged: set[int] = set()  # extents with rows that cannot be read, which stay there
        self._next = self._end = 0  # slots of the extent that is written
        self._num_used = 0
        # Slots and rows that were read since the last write, by the lookups of some trainers.
        self._lately: deque[tuple[Numbers, Floats]] = deque(maxlen=_MOST_LOOKUPS)

    def __len__(self) -> int:
        return self._num_used

    @property
    def num_slots(self) -> int:
        """The number of slots, used or not."""
        return self.file.num_slots

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the index of rows on disk takes."""
        return self.index.nbytes + self.ticks.nbytes + self._is_used.nbytes + self._counts.nbytes

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes."""
        return self.file.num_slots * self.file.slot_bytes

    def reserve(self, count: int) -> None:
        """Reserve slots for `count` more rows.

        Raises:
            DiskError: the disk is full; nothing was changed.
        """
        missing = count - (self._end - self._next) - len(self._empty) * self._extent
        if missing <= 0:
            return
        least, extents = -(-missing // self._extent), len(self._counts)
        most = max(least, min(extents >> _GROWTH_SHIFT, _MOST_GROWTH // _EXTENT_BYTES))
        self.file.grow(most * self._extent, least * self._extent)
        more = self.file.num_slots - len(self.ticks)
        self.ticks = np.concatenate((self.ticks, np.zeros(more, np.uint32)))
        self._is_used = np.concatenate((self._is_used, np.zeros(more, np.bool_)))
        self._counts = np.concatenate((self._counts, np.zeros(more // self._extent, np.int64)))
        self._empty = [*range(len(self._counts) - 1, extents - 1, -1), *self._empty]

    def put(self, ids: Ids, parts: Floats, ticks: Numbers) -> Numbers:
        """Write rows (parts, n, part) of new ids (n,), after `reserve`; return their slots (n,).

        Raises:
            DiskError, MemoryError: the rows cannot be written; nothing was changed.
        """
        slots = self._written(ids, parts, ticks)
        try:
            self.index.insert(ids, slots)
        except MemoryError:
            self._give_back(slots)
            raise
        return slots

    def move(self, ids: Ids, slots: Numbers, parts: Floats, ticks: Numbers) -> Numbers:
        """Write rows that are at slots `slots` (n,) to new slots, after `reserve`; return the new slots (n,).

        Raises:
            DiskError: the rows cannot be written; nothing was changed.
        """
        moved = self._written(ids, parts, ticks)
        self.index.put(ids, moved)
        self._give_back(slots)
        return moved

    def scattered(self, most: int) -> Numbers:
        """Return slots (n,) of about `most` rows to move for compaction; none unless too many slots are empty."""
        extents = len(self._counts) - len(self._empty) - len(self._damaged)
        if (extents - 2) * self._extent * (_MOST_EMPTY - 1) <= _MOST_EMPTY * len(self):
            return np.zeros(0, np.uint32)
        counts = np.where(self._counts > 0, self._counts, self._extent)
        if self._next < self._end:
            counts[self._next // self._extent] = self._extent
        counts[list(self._damaged)] = self._extent
        some = min(2 * most // self._extent + 1, len(counts) - 1)
        emptiest = np.argpartition(counts, some)[:some]
        emptiest = emptiest[counts[emptiest] < self._extent]
        emptiest = emptiest[: max(int(np.searchsorted(np.cumsum(counts[emptiest]), most)), 1)]
        slots = np.sort(emptiest)[:, None] * self._extent + np.arange(self._extent)
        return slots[self._is_used[slots]].astype(np.uint32)

    def read(self, ids: Ids, slots: Numbers) -> Floats:
        """Return the rows (parts, n, part) of ids (n,) at slots (n,).

        Raises:
            DiskError: the rows cannot be read, or are damaged.
        """
        parts, damaged = self.read_checked(ids, slots, self._room(len(slots)))
        self.check(slots, damaged)
        return parts

    def read_checked(self, ids: Ids, slots: Numbers, parts: Floats) -> tuple[Floats, Flags]:
        """Read rows into (parts, n, part); return them, and which ones are damaged. Thread-safe.

        Raises:
            DiskError: the rows cannot be read.
        """
        return parts, self.file.read(slots, ids, self.ticks[slots], parts)

    def read_undamaged(self, slots: Numbers) -> tuple[Numbers, Ids, Floats]:
        """Return the undamaged slots among (n,), with their ids and rows (parts, n, part).

        Raises DiskError on I/O errors.
        """
        ids, parts = np.empty(len(slots), np.int64), self._room(len(slots))
        try:
            damaged = self.file.read(slots, ids, self.ticks[slots], parts, finds_ids=True)
        except DiskError:
            self._damaged.update(np.unique(slots // self._extent).tolist())
            raise
        if damaged.any():
            self._damaged.update((slots[damaged] // self._extent).tolist())
            slots, ids, parts = slots[~damaged], ids[~damaged], np.ascontiguousarray(parts[:, ~damaged])
        return slots, ids, parts

    def check(self, slots: Numbers, damaged: Flags) -> None:
        """Raise DiskError for the first slot that is damaged."""
        if damaged.any():
            raise self.file.damage(int(slots[damaged.argmax()]))

    def recall(self, ids: Ids, slots: Numbers) -> Floats:
        """Return the rows (parts, n, part) of ids (n,) at ascending slots (n,); the caller must not change them.

        Rows that a batch looks up are retained in memory until it changes them.
        """
        for known, parts in reversed(self._lately):
            at = np.minimum(np.searchsorted(known, slots), len(known) - 1)
            if (known[at] == slots).all():
                return parts if len(slots) == len(known) else np.ascontiguousarray(parts[:, at])
        found = self.read(ids, slots)
        if 0 < found.nbytes <= _MOST_LATELY:
            self._lately.append((slots, found))
        return found

    def rewrite(self, ids: Ids, slots: Numbers, parts: Floats, ticks: Numbers) -> None:
        """Overwrite the rows in the given slots, and store their ticks.

        Args:
            ids: the ids of the rows, (n,).
            slots: their slots, (n,).
            parts: the new values, (parts, n, part).
            ticks: the new ticks, (n,).

        Raises:
            DiskError: writing failed; some rows may have been overwritten.
        """
        self._lately.clear()
        self.file.write(slots, ids, parts, ticks)
        self.ticks[slots] = ticks

    def forget(self, ids: Ids) -> None:
        """Drop the rows of these distinct ids (n,); ids without a row on disk are ignored."""
        slots = self.index.find(ids)
        here = slots != ABSENT
        self.drop(ids[here], slots[here])

    def drop(self, ids: Ids, slots: Numbers) -> None:
        """Drop the rows of ids (n,), which are in the slots (n,)."""
        self.index.remove(ids)
        self._give_back(slots)

    def blocks(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield the ids (n,) and slots (n,) of all rows, in blocks of bounded size."""
        for ids, slots in self.index.segments():
            for start in range(0, len(ids), _BLOCK_ROWS):
                yield ids[start : start + _BLOCK_ROWS], slots[start : start + _BLOCK_ROWS]

    def _room(self, count: int) -> Floats:
        parts, part = self._shape
        return np.empty((parts, count, part), np.float32)

    def _written(self, ids: Ids, parts: Floats, ticks: Numbers) -> Numbers:
        before = self._next, self._end
        slots = self._take(len(ids))
        self._lately.clear()
        try:
            self.file.write(slots, ids, parts, ticks)
        except OSError:
            self._next, self._end = before
            self._empty += [
                each for each in np.unique(slots // self._extent)[::-1].tolist() if not self._is_open(each)
            ]
            raise
        self.ticks[slots] = ticks
        self._is_used[slots] = True
        self._count(slots, 1)
        return slots

    def _take(self, count: int) -> Numbers:
        found = []
        while count:
            if self._next == self._end:
                self._next = self._empty.pop() * self._extent
                self._end = self._next + self._extent
            some = min(count, self._end - self._next)
            found.append(np.arange(self._next, self._next + some, dtype=np.uint32))
            self._next += some
            count -= some
        return np.concatenate([np.zeros(0, np.uint32), *found])

    def _give_back(self, slots: Numbers) -> None:
        self._is_used[slots] = False
        self._count(slots, -1)

    def _count(self, slots: Numbers, sign: int) -> None:
        extents = slots // self._extent
        np.add.at(self._counts, extents, sign)
        self._num_used += sign * len(slots)
        emptied = np.unique(extents[self._counts[extents] == 0]).tolist()
        self._empty += [each for each in emptied if not self._is_open(each)]
        self._damaged.difference_update(emptied)

    def _is_open(self, extent: int) -> bool:
        return self._next < self._end and self._next // self._extent == extent
