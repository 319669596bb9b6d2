# SPDX-License-Identifier: Apache-2.0
"""Selects the rows to evict from a growing table that exceeds its memory limit; records recently dropped rows.

As in the CLOCK algorithm, a hand moves around the 1024 segments. When a batch creates more rows than fit, the hand
passes segments until they contain 8 times the number of rows to evict, or the whole table. The worst eighth of their
rows is evicted, which also makes room for later batches. A small table thus drops its worst rows, and a large table
drops the worst rows of a sample; eight rows are inspected for each row evicted. The choice depends only on the rows,
the clock and the hand, not on memory locations or threads.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.blocks import NO_IDS
from paddle.pserver.sparse.budget import Budget, smallest
from paddle.pserver.sparse.index import Index, PlainIndex
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.snapshot import TableSnapshot
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.structures import Numbers
from paddle.pserver.sparse.ticks import ages
from paddle_node.contract.classes import dataclass

Ids = npt.NDArray[np.int64]

_SAMPLE, _SAMPLE_FOR_DISK = 8, 4
_SPARE_SHIFT, _MOST_SPARE = 5, 8192
"""One row in 32 more than necessary goes to a disk, which costs less than many small evictions."""
INDEX_BYTES = 17
"""A row's share of the index, at most, on average."""
_REMEMBERED = 1 << 16


def capacity_of(budget: Budget, taken: int, row_bytes: int) -> int:
    """Return the number of rows that fit in memory, at least those that fill half of it (with a disk, an eighth)."""
    least = budget.memory >> (3 if budget.disk else 1)
    return max(max(budget.memory - taken, least) // (row_bytes + INDEX_BYTES), 1)


def are_dead(
    spec: TableSpec, ticks: Numbers, clock: int, scores: Callable[[], npt.NDArray[np.float64]]
) -> npt.NDArray[np.bool_]:
    """Return which rows (n,), unchanged since batch `clock`, were then too old or had too low a score."""
    age = ages(ticks, clock)
    dead = np.zeros(len(ticks), np.bool_)
    if spec.max_age:
        dead = age > spec.max_age
    if spec.budget.min_score:
        dead |= scores() < spec.budget.min_score
    return dead & (age < 1 << 30)


def pack(index: Index | PlainIndex, slabs: Slabs, snapshots: Iterable[TableSnapshot]) -> None:
    """Compact a table's memory: move rows from its end to free places, if there are many, and release the end."""
    if (surplus := slabs.surplus()) is None:
        return
    end, free = surplus
    for ids, numbers in index.segments():
        moves = numbers >= end
        if not moves.any():
            continue
        ids, numbers = ids[moves], numbers[moves]
        for snapshot in snapshots:
            snapshot.keep(ids, numbers)
        free, to = free[: len(free) - len(ids)], free[len(free) - len(ids) :]
        slabs.rows.scatter(to, *slabs.gathered(numbers))
        index.put(ids, to)
        for snapshot in snapshots:
            snapshot.moved(to, to_disk=False)
    slabs.end_at(end, free)


@dataclass(slots=True)
class Counts:
    """The counters of a table since its process started.

    Attributes:
        made: rows created.
        dropped: rows that were evicted, too old, or below the lowest allowed score.
        asked: distinct ids that batches requested.
        found: the number of those ids that had a row in memory.
        brought: rows loaded from disk.
    """

    made: int = 0
    dropped: int = 0
    asked: int = 0
    found: int = 0
    brought: int = 0


class Hand:
    """The hand of the CLOCK algorithm: selects rows for eviction, beginning with its current segment.

    Attributes:
        segment: the next segment.
    """

    def __init__(self, *, for_disk: bool = False) -> None:
        """Start at segment 0. Rows that move to a disk are selected less carefully, as they can be loaded again."""
        self.segment = 0
        self._sample = _SAMPLE_FOR_DISK if for_disk else _SAMPLE

    def spare(self, capacity: int) -> int:
        """Return the number of rows to evict beyond the necessary ones, for a table with memory for `capacity` rows."""
        return min(capacity >> _SPARE_SHIFT, _MOST_SPARE) if self._sample == _SAMPLE_FOR_DISK else 0

    def victims(
        self,
        count: int,
        index: Index | PlainIndex,
        slabs: Slabs,
        clock: int,
        scores: Callable[[Numbers], npt.NDArray[np.float64]] | None,
    ) -> tuple[Ids, Numbers, npt.NDArray[np.bool_]]:
        """Return ids (n,) and row numbers (n,) of a sample, and which of them to evict, at least `count` if possible.

        Args:
            scores: function that returns the scores of rows (n,); rows with the lowest scores are evicted first. None:
                the oldest rows are evicted first, and among equally old rows those with the smallest ids.
        """
        found: list[tuple[Ids, Numbers]] = []
        seen = 0
        for _ in range(SEGMENTS):
            found.append(index.segment(self.segment))
            self.segment = (self.segment + 1) % SEGMENTS
            seen += len(found[-1][0])
            if seen >= self._sample * count:
                break
        ids, numbers = (np.concatenate(each) for each in zip(*found, strict=True))
        keys: list[npt.NDArray[np.generic]] = [-ages(slabs.rows.ticks(numbers), clock).astype(np.int64), ids]
        keys = keys if scores is None else [scores(numbers), *keys]
        leaves = np.zeros(seen, np.bool_)
        leaves[smallest(max(count, seen // self._sample), keys)] = True
        return ids, numbers, leaves


class Dropped:
    """The ids that were most recently dropped from a table, within a memory limit, for later snapshots."""

    def __init__(self, clock: int = 0) -> None:
        """Start to record the ids dropped after batch `clock`."""
        self._clock, self._count = clock, 0
        self._ids: deque[tuple[int, Ids]] = deque()

    def can_tell_since(self, clock: int) -> bool:
        """Return whether all ids dropped after this batch are known."""
        return clock >= self._clock

    def add(self, ids: Ids, clock: int, rows: int) -> None:
        """Record distinct ids (n,), dropped in or after batch `clock`, of a table with `rows` remaining rows."""
        self._ids.append((clock, ids))
        self._count += len(ids)
        while self._count > max(rows // 8, _REMEMBERED):
            self._clock, ids = self._ids.popleft()
            self._count -= len(ids)

    def since(self, clock: int | None) -> Ids:
        """Return the ids dropped in or after batch `clock`, some of which may have a row again; empty for None."""
        if clock is None:
            return NO_IDS
        return np.unique(np.concatenate([NO_IDS, *(ids for at, ids in self._ids if at >= clock)]))
