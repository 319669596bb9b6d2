# SPDX-License-Identifier: Apache-2.0
"""A growing table whose rows are in memory up to its budget, and otherwise on disk.

The place of a row affects nothing but time. A batch first loads the rows of its ids from disk, and then proceeds as
if all rows were in memory; afterwards the rows that do not fit are evicted by the policy of the budget. Lookups read
the disk and move nothing. While the disk is full, rows stay in memory and batches are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.blocks import Block, ids_of, plain
from paddle.pserver.sparse.disk_rows import DiskRows
from paddle.pserver.sparse.eviction import are_dead
from paddle.pserver.sparse.hash_table import HashTable, Unknown
from paddle.pserver.sparse.index import ABSENT
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.rows import Memory
from paddle.pserver.sparse.slabs import map_memory
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.steps import Moment
from paddle.pserver.sparse.structures import Ids, Numbers
from paddle.pserver.sparse.ticks import rejuvenated

Floats = npt.NDArray[np.float32]


class TieredTable(HashTable):
    """See `HashTable`."""

    def __init__(
        self, spec: TableSpec, optimizer: OptimizerSpec, allocate: Callable[[int], Memory] = map_memory
    ) -> None:
        """Make an empty table. Raises PserverError: the file cannot be created."""
        super().__init__(spec, optimizer, allocate)
        self._disk: DiskRows = DiskRows(spec.budget.disk, self._slabs.parts, self._slabs.part)
        self._refused: PserverError | None = None  # why rows stay in memory that should leave

    def __len__(self) -> int:
        return len(self._slabs) + len(self._disk)

    @property
    def nbytes(self) -> int:
        """The memory in bytes: rows, indexes, sightings."""
        return super().nbytes + self._disk.nbytes

    @property
    def disk_bytes(self) -> int:
        """The size of the file in bytes."""
        return self._disk.file_bytes

    def lookup(self, ids: Ids, unknown: Unknown = "initial", out: Floats | None = None) -> Floats:
        """See `HashTable.lookup`."""
        found = super().lookup(ids, unknown, out)
        slots = self._disk.index.find(plain(ids))
        here = np.flatnonzero(slots != ABSENT)
        if len(here):
            distinct, inverse = np.unique(slots[here], return_inverse=True)
            found[here] = self._disk.recall(distinct)[0, inverse, : self.spec.width]
        return found

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """See `HashTable.update`."""
        self.reserve(gradients)
        brought = self._bring(ids_of(gradients))
        super().update(gradients, learning_rate)
        self.counts.found -= brought

    def reserve(self, gradients: Sequence[RowGradient]) -> None:
        """See `HashTable.reserve`. Raises PserverError: also if the disk is full."""
        if self._refused is not None:
            self._refused = None
            self._evict()
            if self._refused is not None:
                raise self._refused
        super().reserve(gradients)

    def assign(self, ids: Ids, values: Floats) -> None:
        """See `HashTable.assign`."""
        self._bring(ids)
        super().assign(ids, values)

    def shrink(self, min_score: float) -> int:
        """See `HashTable.shrink`."""
        dropped = super().shrink(min_score)
        for segment in range(SEGMENTS):
            ids, slots = self._disk.index.segment(segment)
            dropped += self._drop_on_disk(ids, slots, self._scores_on_disk(slots, self.clock) < min_score)
        return dropped

    def forget(self, ids: Ids) -> None:
        """See `HashTable.forget`."""
        super().forget(ids)
        self._disk.forget(ids)

    def fill(self, block: Block) -> None:
        """See `HashTable.fill`. Raises PserverError: also if the disk is full."""
        self._disk.forget(plain(block.ids))
        super().fill(block)
        self._evict()
        if self._refused is not None:
            raise self._refused

    def _bring(self, ids: Ids) -> int:
        """Load those of ids (n,) that are on disk into memory; return their number."""
        slots = self._disk.index.find(plain(ids))
        here = slots != ABSENT
        if not here.any():
            return 0
        slots, first = np.unique(slots[here], return_index=True)
        ids = ids[here][first]
        self._slabs.reserve(len(ids))
        ticks = self._disk.ticks[slots]
        for snapshot in self._snapshots:
            snapshot.keep_from_disk(ids, slots, ticks)
        parts = self._disk.recall(slots)
        numbers = self._slabs.take(len(ids))
        self._index.insert(ids, numbers)
        self._slabs.rows.scatter(numbers, parts, ticks)
        for snapshot in self._snapshots:
            snapshot.moved(numbers, to_disk=False)
        self._disk.forget(ids)
        self.counts.brought += len(ids)
        return len(ids)

    def _leave(self, ids: Ids, numbers: Numbers, which: npt.NDArray[np.bool_]) -> None:
        ids, numbers = ids[which], numbers[which]
        self._keep(ids, numbers)
        parts, ticks = self._slabs.gathered(numbers)
        try:
            self._disk.reserve(len(ids))
            slots = self._disk.put(ids, parts, ticks)
        except PserverError as error:
            self._refused = error
            return
        for snapshot in self._snapshots:
            snapshot.moved(slots, to_disk=True)
        self._index.remove(ids)
        self._slabs.give_back(numbers)

    def _absent(self, ids: Ids) -> Ids:
        absent = super()._absent(ids)
        left: Ids = absent[self._disk.index.find(absent) == ABSENT]
        return left

    def _decay(self, at: Moment) -> None:
        super()._decay(at)
        for _, slots in self._disk.blocks():
            parts = self._disk.read(slots)
            self._steps.decay_parts(parts, self._disk.ticks[slots], at)
            self._disk.rewrite(slots, parts)

    def _sweep(self, segment: int, clock: int) -> None:
        super()._sweep(segment, clock)
        ids, slots = self._disk.index.segment(segment)
        ticks = self._disk.ticks[slots]
        dead = are_dead(self.spec, ticks, clock, lambda: self._scores_on_disk(slots, clock))
        self._disk.ticks[slots] = rejuvenated(ticks, clock)
        self._drop_on_disk(ids, slots, dead)

    def _scores_on_disk(self, slots: Numbers, clock: int) -> npt.NDArray[np.float64]:
        return self._steps.scores(self._disk.read(slots), self._disk.ticks[slots], clock)

    def _drop_on_disk(self, ids: Ids, slots: Numbers, which: npt.NDArray[np.bool_]) -> int:
        ids, slots = ids[which], slots[which]
        for snapshot in self._snapshots:
            snapshot.keep_from_disk(ids, slots, self._disk.ticks[slots])
        self._disk.forget(ids)
        self._dropped.add(ids, self.clock, len(self))
        self.counts.dropped += len(ids)
        return len(ids)
