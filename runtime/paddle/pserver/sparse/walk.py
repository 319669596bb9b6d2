# SPDX-License-Identifier: Apache-2.0
"""Iterates over a table in bounded pieces, without state on the server, for any number of readers at any speed.

A walk visits the segments of the index, each in the order of ids. Rows may change between two pieces: each piece has
the rows as of its time. The next walk, which starts from the clock at which this one began, returns the rows that
changed during this one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.blocks import Block, Lineage
from paddle.pserver.sparse.disk_rows import DiskRows
from paddle.pserver.sparse.index import Index, PlainIndex
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.ticks import MAX_AGE, ages, changed
from paddle_node.contract.classes import NamedTuple

_LEAST = np.iinfo(np.int64).min
_SEGMENTS_AT_ONCE = 64
_IDS_AT_ONCE = 1 << 17
_NEW = np.uint32(1 << 31)


class TableRows(NamedTuple):
    """Rows of a growing table in the form in which they are sent and stored in files.

    Attributes:
        ids: (n,) int64, distinct.
        rows: (n, width) float32.
        ages: (n,) int32, see `ages_of`.
        states: (n, k) float32: the rule's states of each row, side by side; None means not requested.
    """

    ids: npt.NDArray[np.int64]
    rows: npt.NDArray[np.float32]
    ages: npt.NDArray[np.int32]
    states: npt.NDArray[np.float32] | None

    @classmethod
    def of(cls, block: Block, width: int, clock: int, *, with_states: bool) -> TableRows:
        """Convert a block of a table with this clock to rows, with states only if `with_states`."""
        values, *states = block.parts
        kept = np.concatenate([values[:, width:], *states], axis=1) if with_states else None
        return cls(block.ids, np.ascontiguousarray(values[:, :width]), ages_of(block.ticks, clock), kept)

    def block(self, parts: int, part: int, clock: int) -> Block:
        """Convert these rows to a block for a table with this clock; missing states become 0."""
        n, width = self.rows.shape
        whole = np.zeros((n, parts * part), np.float32)
        whole[:, :width] = self.rows
        if self.states is not None:
            whole[:, width:] = self.states
        cut = np.ascontiguousarray(whole.reshape(n, parts, part).transpose(1, 0, 2))
        return Block(self.ids, cut, ticks_of(self.ages, clock))

    def aged(self, batches: int) -> TableRows:
        """Return the rows as they are after this number of batches without a change."""
        batches = min(batches, MAX_AGE)
        return self._replace(
            ages=np.where(self.ages < 0, self.ages - batches, self.ages + batches).astype(np.int32)
        )

    def take(self, which: npt.NDArray[np.bool_] | slice) -> TableRows:
        """Return the rows selected by a mask (n,) or a slice."""
        kept = None if self.states is None else self.states[which]
        return TableRows(self.ids[which], self.rows[which], self.ages[which], kept)


class Cursor(NamedTuple):
    """A position in a walk over a table, which the reader sends with each request.

    Attributes:
        segment: segment of the index; `SEGMENTS`: the end.
        first: the smallest id of this segment that has not been visited, counted from the smallest int64: 0 to 2^64 -
            1.
    """

    segment: int = 0
    first: int = 0

    @property
    def is_over(self) -> bool:
        """Return whether the walk has ended."""
        return self.segment >= SEGMENTS


class Walking(Protocol):
    """The interface of a walk over one server's rows, and the ids of rows that have left; see `reader.TableWalk`."""

    clock: int
    since: int | None
    left: npt.NDArray[np.int64]
    lineage: Lineage

    def __iter__(self) -> Iterator[TableRows]:
        """Yield pieces, at least one."""


class Source(Protocol):
    """The interface of a source of tables: a `Reader` of a running job, or a `tables.Saved` checkpoint."""

    def rule(self, name: str) -> str:
        """Return the name of a table's update rule. Raises ConfigError if the table does not exist."""

    def holders(self, name: str) -> list[int]:
        """Return the numbers of the servers that have rows of a table."""

    def walk(self, name: str, server: int, since: int | None = None, *, states: bool = False) -> Walking:
        """Return a walk over one server's rows."""


def next_piece(
    index: Index | PlainIndex,
    slabs: Slabs,
    disk: DiskRows | None,
    at: Cursor,
    since: int | None,
    clock: int,
    most: int,
) -> tuple[Block, Cursor]:
    """Return copies of at most `most` rows, starting at `at`, and the next position; an empty piece is not the end.

    Args:
        disk: the rows that are on disk.
        since: only rows that changed after this batch; None means all.
        clock: clock of the table.
    """
    found_ids, found_places, scanned = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], 0
    last = min(at.segment + _SEGMENTS_AT_ONCE, SEGMENTS)
    while at.segment < last and most > 0 and scanned < _IDS_AT_ONCE:
        ids, numbers = index.segment(at.segment)
        places, ticks = numbers.astype(np.int64), slabs.rows.ticks(numbers)
        if disk is not None:
            more, slots = disk.index.segment(at.segment)
            ids, ticks = np.concatenate((ids, more)), np.concatenate((ticks, disk.ticks[slots]))
            places = np.concatenate((places, -1 - slots.astype(np.int64)))
        scanned += len(ids)
        here = np.flatnonzero(changed(ticks, since, clock)) if len(ids) else ids
        if at.first:
            here = here[ids[here] >= at.first + int(_LEAST)]
        following = Cursor(at.segment + 1)
        if len(here) > most:
            here = here[np.argsort(ids[here])[: most + 1]]
            following = Cursor(at.segment, int(ids[here[-1]]) - int(_LEAST))
            here = here[:-1]
        found_ids.append(ids[here])
        found_places.append(places[here])
        most -= len(here)
        at = following
    ids, places = np.concatenate(found_ids), np.concatenate(found_places)
    parts, ticks = slabs.room(len(ids))
    away = places < 0
    parts[:, ~away], ticks[~away] = slabs.gathered(places[~away].astype(np.uint32))
    if disk is not None and away.any():
        slots = (-1 - places[away]).astype(np.uint32)
        parts[:, away], ticks[away] = disk.read(ids[away], slots), disk.ticks[slots]
    return Block(ids, parts, ticks), at


def reach(since: int | None, clock: int, caught_up: int) -> int | None:
    """Return the batch after which rows must be read for a requested `since`; None means all rows must be read."""
    if since is None or since < caught_up or since > clock or clock - since > MAX_AGE:
        return None
    return since


def ages_of(ticks: npt.NDArray[np.uint32], clock: int) -> npt.NDArray[np.int32]:
    """Return each row's age (n,): the number a of batches since its last change, or −1 − a if that was not a gradient.

    In a table with a different clock, rows of these ages get the ticks that `ticks_of` returns.
    """
    age = ages(ticks, clock).astype(np.int32)
    return np.where(ticks & _NEW != 0, -1 - age, age).astype(np.int32)


def ticks_of(found: npt.NDArray[np.int32], clock: int) -> npt.NDArray[np.uint32]:
    """Return the ticks (n,) of rows with these ages (see `ages_of`) in a table with this clock."""
    is_new = found < 0
    age = np.where(is_new, -1 - found, found).astype(np.int64)
    ticks = ((clock - age) & ((1 << 31) - 1)).astype(np.uint32)
    return np.where(is_new, ticks | _NEW, ticks)
