# SPDX-License-Identifier: Apache-2.0
"""A growing table whose rows are in memory up to its budget, and otherwise on disk.

Whether a row is in memory or on disk affects only speed. The rows of a batch are loaded from disk when its gradients
are checked, so that an unreadable row refuses the batch before anything changes. The batch then proceeds as if all rows
were in memory. Afterwards, the budget's policy evicts the rows that do not fit, and some more to make room for the next
batches. Lookups read from disk without moving rows. While the disk is full, rows stay in memory and batches are
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy as np
import numpy.typing as npt

from paddle.errors import DiskError, PserverError
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.blocks import Block, plain
from paddle.pserver.sparse.disk_rows import DISK_ROW_BYTES, DiskRows
from paddle.pserver.sparse.eviction import are_dead
from paddle.pserver.sparse.hash_table import HashTable, Unknown
from paddle.pserver.sparse.index import ABSENT
from paddle.pserver.sparse.rows import Memory
from paddle.pserver.sparse.slabs import map_memory
from paddle.pserver.sparse.snapshot import TableSnapshot
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.steps import Moment
from paddle.pserver.sparse.structures import Ids, Numbers
from paddle.pserver.sparse.ticks import rejuvenated
from paddle.pserver.sparse.walk import Cursor, TableRows

Floats = npt.NDArray[np.float32]

_SMALL = 1 << 20
"""Bytes of memory that rows on disk may take in any case."""
_MOST_LOADED = 256
"""Arrays of ids that are remembered to have no rows on disk: one for each trainer's gradient."""


class TieredTable(HashTable):
    """A `HashTable` that stores the rows that exceed its memory on disk."""

    def __init__(
        self, spec: TableSpec, optimizer: OptimizerSpec, allocate: Callable[[int], Memory] = map_memory
    ) -> None:
        """Make an empty table. Raises DiskError if the file cannot be created."""
        super().__init__(spec, optimizer, allocate)
        budget = spec.budget
        self._disk: DiskRows = DiskRows(budget.disk, spec.name, *self.shape, spec.halves)
        self._disk.file.warn_of_space(budget.memory)
        self._refused: DiskError | None = None  # why rows stay in memory that should leave
        self._broken: DiskError | MemoryError | None = None  # why some rows have been changed and others not
        self._brought = 0  # rows loaded for the next batch
        self._loaded: list[Ids] = []  # arrays of ids without rows on disk

    def __len__(self) -> int:
        return len(self._slabs) + len(self._disk)

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the table uses: rows in memory, both indexes, and counts of ids without a row."""
        return super().nbytes + self._disk.nbytes

    @property
    def _index_bytes(self) -> int:
        return DISK_ROW_BYTES * len(self._disk)

    @property
    def disk_bytes(self) -> int:
        """The size in bytes of the file that holds the rows on disk."""
        return self._disk.file_bytes

    def lookup(self, ids: Ids, unknown: Unknown = "initial", out: Floats | None = None) -> Floats:
        """Return the values of ids; see `HashTable.lookup`. Raises DiskError if a row cannot be read."""
        self._check_whole()
        ids = plain(ids)
        found = np.empty((len(ids), self.spec.width), np.float32) if out is None else out
        numbers = self._index.find(ids)
        absent = np.flatnonzero(numbers == ABSENT)
        slots = self._disk.index.find(ids[absent])
        is_here = slots != ABSENT
        here, slots = absent[is_here], slots[is_here]
        self._slabs.rows.read(numbers, ids, found, unknown == "zero" or len(here) == len(absent))
        if len(here):
            distinct, first, inverse = np.unique(slots, return_index=True, return_inverse=True)
            found[here] = self._disk.recall(ids[here[first]], distinct)[0, inverse, : self.spec.width]
        return found

    def apply(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Apply a batch; see `HashTable.apply`. Raises DiskError if rows cannot be read or written."""
        with self._whole():
            super().apply(gradients, learning_rate)
        self.counts.found -= self._brought
        self._loaded, self._brought = [], 0

    def prepare(self, gradients: Sequence[RowGradient]) -> None:
        """Load the batch's rows from disk, and check them like `HashTable.prepare`.

        Raises DiskError if the disk fails.
        """
        self._check_whole()
        if self._refused is not None:
            self._refused = None
            self._evict()
            if self._refused is not None:
                raise self._refused
        for gradient in gradients:
            self._brought += self._load(gradient.rows)
        if self._index_bytes > (least := self.spec.budget.memory // 8 * 7):
            self._check_index(least, self._check.coming(gradients)[0] > 0)
        super().prepare(gradients)

    def assign(self, ids: Ids, values: Floats) -> None:
        """Set the values of rows; see `HashTable.assign`. Raises DiskError if rows cannot be read."""
        self._check_whole()
        self._load(ids)
        super().assign(ids, values)

    def shrink(self, min_score: float) -> int:
        """Drop rows; see `HashTable.shrink`. Raises DiskError if rows cannot be read; then, none is dropped."""
        self._check_whole()
        low = []
        for ids, slots in self._disk.blocks() if self.spec.budget.is_scored else ():
            which = self._scores_on_disk(ids, slots, self.clock) < min_score
            low.append((ids[which], slots[which]))
        dropped = super().shrink(min_score)
        return dropped + sum(self._drop_on_disk(*each) for each in low)

    def catch_up(self, learning_rate: float) -> None:
        """Apply pending decay to all rows, also on disk. Raises DiskError if a row cannot be read or written."""
        self._check_whole()
        with self._whole():
            super().catch_up(learning_rate)

    def snapshot(self, since: int | None = None) -> TableSnapshot:
        """Begin to copy all rows, in memory and on disk; see `HashTable.snapshot`."""
        snapshot = super().snapshot(since)
        snapshot.failure = self._broken
        return snapshot

    def walk(
        self, at: Cursor, since: int | None, most: int, *, with_states: bool = False
    ) -> tuple[TableRows, Cursor, int | None]:
        """Return the next changed rows; see `HashTable.walk`. Raises DiskError if rows cannot be read."""
        self._check_whole()
        return super().walk(at, since, most, with_states=with_states)

    def forget(self, ids: Ids) -> None:
        """Drop the rows of these ids, in memory and on disk; see `HashTable.forget`."""
        super().forget(ids)
        self._disk.forget(ids)

    def fill(self, block: Block) -> None:
        """Store rows of blocks; see `HashTable.fill`. Raises DiskError, for example if the disk is full."""
        super().fill(block)
        self._check_index(self.spec.budget.memory, bool(len(block.ids)))
        if self._refused is not None:
            raise self._refused

    def _check_whole(self) -> None:
        if self._broken is not None:
            raise self._broken

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Make the table refuse all later requests if a change fails halfway within the context."""
        try:
            yield
        except (DiskError, MemoryError) as error:
            self._broken = error
            raise

    def _check_index(self, most: int, has_more: bool) -> None:
        """Raise an error if the index of rows on disk takes more than `most` bytes of memory."""
        if has_more and self._index_bytes > max(most, _SMALL):
            raise PserverError(
                f"table {self.spec.name}: no memory for more rows: the index of {len(self._disk)} rows on disk takes "
                f"{self._index_bytes >> 20} MB of the table's {self.spec.budget.memory >> 20} MB. Increase memory, use "
                "more servers, or set min_count or max_age"
            )

    def _load(self, ids: Ids) -> int:
        """Load the rows of ids (n,) that are on disk into memory; return their number."""
        if any(ids is each for each in self._loaded):
            return 0
        absent = super()._absent(plain(ids))
        slots = self._disk.index.find(absent)
        here = slots != ABSENT
        if here.any():
            slots, first = np.unique(slots[here], return_index=True)
            self._bring(absent[here][first], slots)
        self._loaded = [*self._loaded[-_MOST_LOADED:], ids]
        return len(slots) if here.any() else 0

    def _bring(self, ids: Ids, slots: Numbers) -> None:
        """Load rows at ascending slots (n,), of ids (n,)."""
        self._slabs.reserve(len(ids), self._index.nbytes, 2 * len(ids) * self._slabs.row_bytes)
        parts, ticks = self._disk.recall(ids, slots), self._disk.ticks[slots]
        for snapshot in self._snapshots:
            snapshot.keep_from_disk(ids, slots, ticks)
        numbers = self._slabs.next_numbers(len(ids))
        self._index.insert(ids, numbers)
        with self._whole():
            self._slabs.took(len(ids))
            self._slabs.rows.scatter(numbers, parts, ticks)
            for snapshot in self._snapshots:
                snapshot.moved(numbers, to_disk=False)
            self._disk.drop(ids, slots)
        self.counts.brought += len(ids)

    def _leave(self, ids: Ids, numbers: Numbers, which: npt.NDArray[np.bool_]) -> None:
        ids, numbers = ids[which], numbers[which]
        self._loaded = []
        self._keep(ids, numbers)
        parts, ticks = self._slabs.gathered(numbers)
        try:
            self._disk.reserve(len(ids))
            slots = self._disk.put(ids, parts, ticks)
        except DiskError as error:
            self._refused = error
            return
        with self._whole():
            for snapshot in self._snapshots:
                snapshot.moved(slots, to_disk=True)
            self._index.remove(ids)
            self._slabs.give_back(numbers)
        with suppress(DiskError):  # which a request for one of these rows reports
            self._gather(len(ids))

    def _gather(self, count: int) -> None:
        """Compact the file if too many slots are empty, to make room for about `count` rows."""
        slots = self._disk.scattered(2 * count)
        slots, ids, parts = self._disk.read_undamaged(slots)
        if not len(slots):
            return
        self._disk.reserve(len(slots))
        ticks = self._disk.ticks[slots]
        for snapshot in self._snapshots:
            snapshot.keep_from_disk(ids, slots, ticks)
        moved = self._disk.move(ids, slots, parts, ticks)
        for snapshot in self._snapshots:
            snapshot.moved(moved, to_disk=True)

    def _absent(self, ids: Ids) -> Ids:
        absent = super()._absent(ids)
        left: Ids = absent[self._disk.index.find(absent) == ABSENT]
        return left

    def _decay(self, at: Moment) -> None:
        super()._decay(at)
        for ids, slots in self._disk.blocks():
            parts, ticks = self._disk.read(ids, slots), self._disk.ticks[slots]
            self._steps.decay_parts(parts, ticks, at)
            self._disk.rewrite(ids, slots, parts, ticks)

    def _sweep(self, segment: int, clock: int) -> None:
        super()._sweep(segment, clock)
        ids, slots = self._disk.index.segment(segment)
        ticks = self._disk.ticks[slots]
        dead = are_dead(self.spec, ticks, clock, lambda: self._scores_on_disk(ids, slots, clock))
        later = rejuvenated(ticks, clock)
        if (stale := later != ticks).any():
            for snapshot in self._snapshots:  # a thread may be reading these slots
                snapshot.keep_from_disk(ids[stale], slots[stale], ticks[stale])
            self._disk.rewrite(
                ids[stale], slots[stale], self._disk.read(ids[stale], slots[stale]), later[stale]
            )
        self._drop_on_disk(ids[dead], slots[dead])

    def _scores_on_disk(self, ids: Ids, slots: Numbers, clock: int) -> npt.NDArray[np.float64]:
        return self._steps.scores(self._disk.read(ids, slots), self._disk.ticks[slots], clock)

    def _drop_on_disk(self, ids: Ids, slots: Numbers) -> int:
        for snapshot in self._snapshots:
            snapshot.keep_from_disk(ids, slots, self._disk.ticks[slots])
        self._disk.drop(ids, slots)
        self._dropped.add(ids, self.clock, len(self))
        self.counts.dropped += len(ids)
        return len(ids)
