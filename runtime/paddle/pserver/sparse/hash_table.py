# SPDX-License-Identifier: Apache-2.0
"""A growing table: an `Index` from ids to row numbers, and the rows in `Slabs`.

The first gradient of an id (or a later one; see `TableSpec.entry`) creates its row. Lookups never change the table:
they return initial values for an id without a row. In addition to its floats, a row takes about 19 bytes: a tick of 4
bytes and its share of the index. A table with a memory budget drops rows after a batch that exceeded it: see
`eviction`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.sparse.blocks import NO_IDS, Block, Header, Lineage, joined, new_generation, plain
from paddle.pserver.sparse.disk_rows import DISK_ROW_BYTES, DiskRows
from paddle.pserver.sparse.eviction import Counts, Dropped, Hand, are_dead, capacity_of, pack
from paddle.pserver.sparse.index import ABSENT, grouped, new_index
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.rows import Memory
from paddle.pserver.sparse.slabs import Slabs, map_memory
from paddle.pserver.sparse.snapshot import TableSnapshot
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.steps import BatchCheck, DistinctRows, Moment, Steps, Sums
from paddle.pserver.sparse.structures import Numbers
from paddle.pserver.sparse.ticks import MAX_AGE, new_tick, rejuvenated
from paddle.pserver.sparse.waiting import SIGHTING_BYTES, WaitingRoom
from paddle.pserver.sparse.walk import Cursor, TableRows, next_piece, reach

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Unknown = Literal["initial", "zero"]

# Number of next blocks whose memory is touched while one is loaded from a checkpoint: about 32 MB.
_FILL_AHEAD = 16


class HashTable:
    """One server's rows of a growing table, by id. Not thread-safe: use one thread, or a lock around every call."""

    def __init__(
        self, spec: TableSpec, optimizer: OptimizerSpec, allocate: Callable[[int], Memory] = map_memory
    ) -> None:
        """Create an empty table.

        Args:
            spec: the table.
            optimizer: the update rule of the table.
            allocate: see `Slabs`.

        Raises:
            ConfigError: the rule cannot update single rows.
        """
        spec.check_optimizer(optimizer)
        self.spec = spec
        self.clock, self._caught_up, self.lineage = 0, 0, Lineage(new_generation())
        self._steps = Steps(optimizer, spec.parameter, spec.budget)
        self._index = new_index()
        given = spec.width, 1 + len(self._steps.states), spec.initial, allocate, self._steps.per_row
        self._slabs = Slabs(*given, spec.name, is_half=spec.is_half)
        # Which rows a table with a disk has does not depend on its memory.
        sightings = 0 if spec.budget.disk else spec.budget.memory // 4
        self._waiting = WaitingRoom(spec.entry, spec.max_age, sightings)
        self._check = BatchCheck(spec, self._steps, self._slabs, self._index, self._waiting, self._are_dead)
        self._hand, self._dropped, self.counts = Hand(for_disk=bool(spec.budget.disk)), Dropped(), Counts()
        self._disk: DiskRows | None = None
        self._snapshots: WeakSet[TableSnapshot] = WeakSet()

    def __len__(self) -> int:
        return len(self._slabs)

    @property
    def nbytes(self) -> int:
        """The bytes of memory that the table uses: rows, the index, and counts of ids without a row."""
        return self._slabs.nbytes + self._index.nbytes + self._waiting.nbytes

    @property
    def disk_bytes(self) -> int:
        """The size of the table's file in bytes, or 0 if it has no file."""
        return 0

    @property
    def facts(self) -> tuple[int, ...]:
        """The facts that a table reports: the fields of `Queue` starting with `rows`."""
        counts = self.counts
        return (
            *(len(self), self.nbytes, self.disk_bytes),
            *(counts.made, counts.dropped, counts.asked, counts.found),
        )

    def lookup(self, ids: Ids, unknown: Unknown = "initial", out: Floats | None = None) -> Floats:
        """Return the values (n, width) of ids (n,), in their order; ids may repeat.

        Args:
            ids: any int64 numbers.
            unknown: the values to return for an id without a row: its "initial" values, or "zero".
            out: (n, width) float32, C-contiguous: filled and returned.
        """
        found = np.empty((len(ids), self.spec.width), np.float32) if out is None else out
        self._slabs.rows.lookup(self._index, plain(ids), found, unknown == "zero")
        return found

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Take one step: `reserve`, then `apply`. Raises PserverError like `reserve`, without changing anything."""
        self.reserve(gradients, learning_rate)
        self.apply(gradients, learning_rate)

    def apply(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Take one step with the sum of gradients, added in the given order and, within each, in the order of its rows.

        Call this directly after `reserve` with the same arguments. Ids can be in any order and may repeat. An empty
        sequence also counts as a batch: the clock advances.
        """
        weights = self.spec.budget.weights(gradients, self.spec.width)
        ids, values = joined(gradients, self.spec.width)
        self._begin_batch()
        at = Moment(self.clock, self._caught_up, learning_rate)
        keep = self._keep if self._snapshots else None
        coming = self._slabs.coming(len(ids) if self.spec.entry == 1 else 0)
        step = self._steps.compiled(at, weights) if keep is None else None
        found = self._slabs.rows.update(self._index, ids, values, coming, step)
        self._slabs.took(found.made)
        self.counts.made += found.made
        self.counts.asked += len(found.ids)
        self.counts.found += len(found.ids) - found.made
        if not found.is_changed:
            self.counts.found -= int((found.numbers == ABSENT).sum())
            rows = self._admitted(DistinctRows(found.ids, found.numbers, found.fresh))
            self._steps.apply(self._slabs, rows, Sums(values, found.order, found.starts), at, keep, weights)
        self._evict()

    def prepare(self, gradients: Sequence[RowGradient]) -> None:
        """Check that a batch, or part of it, does not exceed `max_rows`. Raises PserverError if it is too large."""
        self._check.count(len(self), gradients)

    def reserve(self, gradients: Sequence[RowGradient], learning_rate: float | None = None) -> None:
        """Reserve memory for the rows of a batch with these gradients.

        If the rate is given, also check the batch's results.

        Raises:
            PserverError: there is no room, or a value would be out of range; nothing was changed.
        """
        self.prepare(gradients)
        self._check.reserve(gradients)
        if learning_rate is not None:
            self._check.range(gradients, Moment(self.clock + 1, self._caught_up, learning_rate))

    def assign(self, ids: Ids, values: Floats) -> None:
        """Set the values of rows (n, width); create missing rows, and set all states to 0.

        This counts as a batch. If an id occurs several times, its last values are used.

        Raises:
            PserverError: see `update`.
        """
        latest = len(ids) - 1 - grouped(ids[::-1].copy())[0]
        ids, values = ids[latest], values[latest]
        self.spec.check_values(ids, values)
        self._reserve(ids, self._index.find(ids))
        self._begin_batch()
        numbers = self._index.find(ids)
        absent = numbers == ABSENT
        self._keep(ids[~absent], numbers[~absent])
        numbers[absent] = self._make(ids[absent])
        parts = np.zeros((self._slabs.parts, len(ids), self._slabs.part), np.float32)
        parts[0, :, : self.spec.width] = values
        if self._steps.score_at is not None:
            parts[0, :, self._steps.score_at] = 1.0
        self._slabs.rows.scatter(numbers, parts, np.full(len(ids), new_tick(self.clock), np.uint32))
        self._evict()

    def shrink(self, min_score: float) -> int:
        """Drop all rows with scores below `min_score`; return their number. Call this between two batches.

        Raises:
            PserverError: the table's rows have no scores.
        """
        self.spec.check_scored()
        before = len(self)
        for segment in range(SEGMENTS):
            ids, numbers = self._index.segment(segment)
            self._drop(ids, numbers, self._scores(numbers) < min_score)
        return before - len(self)

    def catch_up(self, learning_rate: float) -> None:
        """Apply pending decay to all rows, at this learning rate; a repeated call changes nothing."""
        if not self._steps.decays or self._caught_up == self.clock:
            return
        for snapshot in self._snapshots:
            snapshot.finish()
        self._decay(Moment(self.clock, self._caught_up, learning_rate))
        self._caught_up = self.clock

    def snapshot(self, since: int | None = None) -> TableSnapshot:
        """Begin to copy the current state of the table, which can change during the copy.

        Several snapshots can be in progress; a snapshot without references is discarded.

        Args:
            since: an earlier `clock`: only rows that changed later are copied. None means all rows.
        """
        dropped = self._absent(self._dropped.since(since))
        since = reach(since, self.clock, self._caught_up)
        waiting, own = self._waiting.content(), self.lineage.generation
        header = Header(self.clock, self._caught_up, waiting, self._hand.segment, dropped, own)
        snapshot = TableSnapshot(self._index, self._slabs, header, since, self._disk)
        self._snapshots.add(snapshot)
        return snapshot

    def can_tell_since(self, clock: int) -> bool:
        """Return whether a snapshot since this `clock` would list all rows that have been dropped since then."""
        return self._dropped.can_tell_since(clock)

    def left_since(self, clock: int) -> Ids | None:
        """Return ids without a row, including all that had one at `clock`; None if these ids are no longer known."""
        if self._dropped.can_tell_since(clock):
            return self._absent(self._dropped.since(clock))
        return None if self.spec.max_age or self.spec.budget.drops_rows else NO_IDS

    @property
    def shape(self) -> tuple[int, int]:
        """The dimensions (parts, part) of a gathered row: its values and states, and the number of floats in each."""
        return self._slabs.parts, self._slabs.part

    @property
    def state_size(self) -> int:
        """The number of state values per row in `TableRows`."""
        return self._slabs.part * self._slabs.parts - self.spec.width

    def walk(
        self, at: Cursor, since: int | None, most: int, *, with_states: bool = False
    ) -> tuple[TableRows, Cursor, int | None]:
        """Return rows that changed after batch `since`, or all if None; the next position; and the `since` used.

        Args:
            at: the position; `Cursor()` first.
            most: maximum number of rows.
        """
        since = reach(since, self.clock, self._caught_up)
        block, at = next_piece(self._index, self._slabs, self._disk, at, since, self.clock, most)
        return TableRows.of(block, self.spec.width, self.clock, with_states=with_states), at, since

    def put(self, rows: TableRows) -> None:
        """Set the values, states and ages of rows; evict other rows if there is not enough memory.

        Raises:
            PserverError: see `fill`.
        """
        block = rows.block(*self.shape, self.clock)
        self.spec.check_values(rows.ids, rows.rows)
        if rows.states is None and self._steps.score_at is not None:
            block.parts[0, :, self._steps.score_at] = 1.0
        self.fill(block)

    def resume(self, header: Header) -> None:
        """Restore the table's clock and other state from a snapshot's header, after `fill` with all its blocks.

        If rows were dropped between snapshots, `forget` each header's `dropped` ids before the next one's blocks.
        """
        self.clock, self._caught_up = header.clock, header.caught_up
        self.lineage = Lineage(new_generation(), header.generation, header.clock)
        self._waiting.fill(header.waiting)
        self._hand.segment = header.hand
        self.forget(header.dropped)
        self._dropped = Dropped(header.clock)
        if self.spec.max_age:
            # What was dropped after it had been written leaves by the same rule again.
            for segment in range(SEGMENTS):
                swept = self.clock - (self.clock - segment) % SEGMENTS
                if swept > 0:
                    self._sweep(segment, swept)

    def forget(self, ids: Ids) -> None:
        """Drop the rows of these distinct ids (n,), if they exist; a later snapshot reports them as dropped."""
        numbers = self._index.find(ids)
        here = numbers != ABSENT
        self._index.remove(ids[here])
        self._slabs.give_back(numbers[here])

    def fill(self, block: Block) -> None:
        """Store rows; a later block replaces rows of an earlier one. Rows that exceed the budget are evicted.

        Raises:
            PserverError, MemoryError: the block has a different shape, or there is no room; nothing was changed.
        """
        shape, ids = (self._slabs.parts, len(block.ids), self._slabs.part), plain(block.ids)
        if block.parts.shape != shape or block.ticks.shape != ids.shape:
            raise PserverError(
                f"table {self.spec.name}: rows to restore: expected {shape}, got {block.parts.shape}"
            )
        parts = np.require(block.parts, requirements=("C", "A"))
        ticks = np.require(block.ticks, requirements=("C", "A"))
        self._check.learn(parts)
        self._slabs.expect(_FILL_AHEAD * len(ids))
        numbers = self._index.find(ids)
        absent = numbers == ABSENT
        self._reserve(ids, numbers)
        numbers[absent] = self._make(ids[absent])
        if self._disk is not None:
            self._disk.forget(ids)
        self._slabs.rows.scatter(numbers, parts, ticks)
        self._evict()

    def _begin_batch(self) -> None:
        self.clock += 1
        self._waiting.tick(self.clock)
        self._slabs.begin_batch()
        pack(self._index, self._slabs, self._snapshots)
        if self.spec.max_age or self.spec.budget.min_score or self.clock > MAX_AGE:
            self._sweep(self.clock % SEGMENTS, self.clock)

    def _admitted(self, rows: DistinctRows) -> DistinctRows:
        """Create rows for ABSENT ids that are admitted; return the row numbers of all ids."""
        absent = np.flatnonzero(rows.numbers == ABSENT)
        if len(absent):
            absent = absent[self._waiting.admit(rows.ids[absent])]
            rows.numbers[absent] = self._make(rows.ids[absent])
            rows.fresh[absent] = True
        return rows

    def _reserve(self, ids: Ids, numbers: Numbers) -> None:
        """Reserve room to set rows of distinct ids (n,), given their numbers in memory."""
        if len(self) + len(ids) > self.spec.max_rows:
            self.spec.check_room(len(self), len(self._absent(ids)))
        arrays = 2 * len(ids) * self._slabs.row_bytes
        self._slabs.reserve(int((numbers == ABSENT).sum()), self._index.nbytes, arrays)

    def _make(self, ids: Ids) -> Numbers:
        numbers = self._slabs.next_numbers(len(ids))
        self._index.insert(ids, numbers)
        self._slabs.took(len(ids))
        self.counts.made += len(ids)
        return numbers

    def _keep(self, ids: Ids, numbers: Numbers) -> None:
        if len(ids):
            for snapshot in self._snapshots:
                snapshot.keep(ids, numbers)

    def _sweep(self, segment: int, clock: int) -> None:
        """Drop the rows of one segment that were too old in batch `clock`."""
        ids, numbers = self._index.segment(segment, in_any_order=True)
        dead = self._are_dead(numbers, clock)
        if dead.any():
            self._drop(ids, numbers, dead)
            ids, numbers = ids[~dead], numbers[~dead]
            self._index.replace(segment, ids, numbers)  # which shrinks
        self._slabs.rows.set_ticks(numbers, rejuvenated(self._slabs.rows.ticks(numbers), clock))

    def _are_dead(self, numbers: Numbers, clock: int) -> npt.NDArray[np.bool_]:
        ticks = self._slabs.rows.ticks(numbers)
        return are_dead(self.spec, ticks, clock, lambda: self._scores(numbers, clock))

    def _scores(self, numbers: Numbers, clock: int | None = None) -> npt.NDArray[np.float64]:
        parts, ticks = self._slabs.gathered(numbers)
        return self._steps.scores(parts, ticks, self.clock if clock is None else clock)

    def _evict(self) -> None:
        """Drop rows until the remaining ones fit the budget."""
        if not self.spec.budget.memory:
            return
        taken = SIGHTING_BYTES * len(self._waiting) + DISK_ROW_BYTES * len(self._disk or ())
        capacity = capacity_of(self.spec.budget, taken, self._slabs.row_bytes)
        over = len(self._slabs) - capacity
        if over > 0:
            scores = None if self._steps.score_at is None else self._scores
            over += self._hand.spare(capacity)
            self._leave(*self._hand.victims(over, self._index, self._slabs, self.clock, scores))

    def _absent(self, ids: Ids) -> Ids:
        """Return the ids among (n,) that have no row."""
        left: Ids = ids[self._index.find(ids) == ABSENT]
        return left

    def _decay(self, at: Moment) -> None:
        for _, numbers in self._index.segments():
            self._steps.decay(self._slabs, numbers, at)

    def _leave(self, ids: Ids, numbers: Numbers, which: npt.NDArray[np.bool_]) -> None:
        """Remove the rows marked in `which` from memory."""
        self._drop(ids, numbers, which)

    def _drop(self, ids: Ids, numbers: Numbers, which: npt.NDArray[np.bool_]) -> None:
        """Drop the rows marked in `which`, in the order of their ids."""
        places = np.flatnonzero(which)
        places = places[np.argsort(ids[places])]
        ids, numbers = ids[places], numbers[places]
        self._keep(ids, numbers)
        self._index.remove(ids)
        self._slabs.give_back(numbers)
        self._dropped.add(ids, self.clock, len(self))
        self.counts.dropped += len(ids)
