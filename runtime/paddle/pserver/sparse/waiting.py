# SPDX-License-Identifier: Apache-2.0
"""Counts the sightings of each id without a row: the batches that contained it.

An id takes about 15 bytes. With a period, sightings are forgotten between one and two periods later, so that ids seen
only once do not accumulate.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.blocks import Sightings
from paddle.pserver.sparse.index import ABSENT, Index, PlainIndex, new_index

Ids = npt.NDArray[np.int64]

SIGHTING_BYTES = 17
"""The maximum memory of an id, on average, in bytes."""


class WaitingRoom:
    """Counts the sightings of ids that have no row yet, to admit frequent ids to the table. Not thread-safe."""

    def __init__(self, entry: int, period: int, memory: int = 0) -> None:
        """Start without sightings.

        Args:
            entry: number of sightings after which an id is admitted.
            period: length of a period in batches; 0 means sightings are never forgotten because of their age.
            memory: approximate bytes of two periods; a period that exceeds its share ends early. 0 for no limit.
        """
        self._entry, self._period = entry, period
        self._most = memory // (2 * SIGHTING_BYTES) if memory else 0
        self._seen, self._before = new_index(), new_index()

    def __len__(self) -> int:
        return len(self._seen) + len(self._before)

    @property
    def nbytes(self) -> int:
        """The memory that the arrays use, in bytes."""
        return self._seen.nbytes + self._before.nbytes

    def tick(self, clock: int) -> None:
        """Begin the batch with number `clock`: start a new period if the current one is over or its memory is full."""
        is_full = self._most and len(self._seen) > self._most
        if is_full or (self._period and clock % self._period == 0):
            self._seen, self._before = new_index(), self._seen

    def would_admit(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Return, for each distinct id (n,), whether one more sighting would give it a row."""
        if self._entry == 1:
            return np.ones(len(ids), np.bool_)
        counts = _counts(self._seen.find(ids)) + _counts(self._before.find(ids))
        return counts + 1 >= self._entry

    def admit(self, ids: Ids) -> npt.NDArray[np.bool_]:
        """Count a sighting of each distinct id (n,); return which ids are admitted, and forget those."""
        let_in = self.would_admit(ids)
        if self._entry == 1:
            return let_in
        seen = self._seen.find(ids)
        known = seen != ABSENT
        self._seen.remove(ids[let_in & known])
        self._before.remove(ids[let_in & (self._before.find(ids) != ABSENT)])
        stays = ~let_in
        self._seen.put(ids[stays & known], seen[stays & known] + np.uint32(1))
        fresh = ids[stays & ~known]
        self._seen.insert(fresh, np.ones(len(fresh), np.uint32))
        return let_in

    def content(self) -> tuple[Sightings, Sightings]:
        """Return copies of the current period's sightings and the previous one's."""
        return _copy(self._seen), _copy(self._before)

    def fill(self, content: tuple[Sightings, Sightings]) -> None:
        """Restore the sightings that `content` of another instance returned."""
        self._seen, self._before = new_index(), new_index()
        for index, (ids, counts) in zip((self._seen, self._before), content, strict=True):
            index.insert(ids, counts)


def _counts(numbers: npt.NDArray[np.uint32]) -> npt.NDArray[np.int64]:
    return np.where(numbers != ABSENT, numbers, 0).astype(np.int64)


def _copy(index: Index | PlainIndex) -> Sightings:
    parts = list(index.segments() if len(index) else [index.segment(0)])
    return Sightings(np.concatenate([ids for ids, _ in parts]), np.concatenate([n for _, n in parts]))
