# SPDX-License-Identifier: Apache-2.0
"""Copies a table as of one batch, in blocks, while the table continues to change.

A row belongs to the copy if its last change was in the period of the copy. It is copied once: either by `keep`, which
the owner calls before it changes or drops a row, or by a walk through the index. The table's owner lists rows for that
walk. A second thread can copy them while the owner changes the table; the walk skips rows that `keep` has copied. Rows
on disk are copied by a second walk through their slots. A row that moves between memory and disk is copied before it
moves, and counts as copied at its new place.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.errors import DiskError
from paddle.pserver.sparse.blocks import Block, Header
from paddle.pserver.sparse.disk_rows import DiskRows
from paddle.pserver.sparse.index import Index, PlainIndex
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.structures import Flags, Numbers
from paddle.pserver.sparse.ticks import changed
from paddle_node.contract.classes import NamedTuple

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_BLOCK_BYTES, _BLOCK_ROWS = 4 << 20, 1 << 13
_SMALL = 16
_AHEAD = 16
"""Blocks that are listed but not copied yet: more than the copying thread needs while the owner is busy."""


class _Listed(NamedTuple):
    ids: Ids
    numbers: Numbers  # or slots
    on_disk: bool


class TableSnapshot:
    """A snapshot of a table in progress.

    One other thread may call `take`; only the table's thread calls the other methods.

    Attributes:
        header: the header for the blocks.
        since: batch after which rows must have changed to be copied; None means all rows.
        failure: why the copy cannot be completed; raised when rows are taken.
        halves: see `TableSpec`.
    """

    def __init__(
        self,
        index: Index | PlainIndex,
        slabs: Slabs,
        header: Header,
        since: int | None,
        disk: DiskRows | None = None,
    ) -> None:
        self.header, self.since = header, since
        self.failure: DiskError | MemoryError | None = None
        self.halves = slabs.width if slabs.is_half else 0
        self._index, self._slabs, self._disk = index, slabs, disk
        self._end = SEGMENTS if disk is None else 2 * SEGMENTS
        row_bytes = 4 * slabs.part * slabs.parts + 12
        self._rows = max(min(_BLOCK_BYTES // row_bytes, _BLOCK_ROWS), 1)
        self._lock = threading.Lock()
        # By row number, and by slot on disk: rows that move to the disk from now on are included.
        self._is_taken = {
            False: np.zeros(len(slabs), np.bool_),
            True: np.zeros(0 if disk is None else disk.num_slots, np.bool_),
        }
        self._kept: deque[Block] = deque()
        self._num_kept = 0
        self._spare: list[Floats] = []
        self._lent: Floats | None = None  # of the kept block that was returned last
        self._listed: deque[_Listed] = deque()
        self._copied: _Listed | None = None  # at this moment
        self._segment = 0

    def __iter__(self) -> Iterator[Block]:
        while (block := self.next_block()) is not None:
            yield block

    @property
    def floats_of_block(self) -> int:
        """The maximum number of floats in a block of listed rows."""
        return self._floats(self._rows)

    @property
    def is_listed(self) -> bool:
        """Return whether `list_ahead` has no more rows to list."""
        return self._segment >= self._end

    @property
    def is_over(self) -> bool:
        """Return whether all blocks have been taken."""
        with self._lock:
            is_empty = self.is_listed and not self._listed and not self._kept and self._copied is None
            return is_empty and self.failure is None

    def list_ahead(self) -> bool:
        """List the next rows, unless enough are listed; return whether there are more to `take`."""
        while len(self._listed) < _AHEAD and self._segment < self._end:
            found = []
            count = 0
            on_disk = self._segment >= SEGMENTS
            index = self._disk.index if on_disk and self._disk is not None else self._index
            end = self._end if on_disk else SEGMENTS
            while self._segment < end and count < self._rows:
                found.append(index.segment(self._segment % SEGMENTS))
                count += len(found[-1][0])
                self._segment += 1
            ids, numbers = (np.concatenate(each) for each in zip(*found, strict=True))
            with self._lock:
                for start in range(0, len(ids), self._rows):
                    part = slice(start, start + self._rows)
                    self._listed.append(_Listed(ids[part], numbers[part], on_disk))
        return bool(self._listed or self._kept or self.failure)

    def next_block(self) -> Block | None:
        """List rows and take a block; return None after the last one."""
        self.list_ahead()
        return self.take()

    def take(self, into: Floats | None = None) -> Block | None:
        """Return a block of the rows that were kept or listed, which may be empty; None if there are none.

        Args:
            into: (floats_of_block,): memory for the floats; the block is then valid until the next call.

        Raises:
            DiskError: rows on disk cannot be read.
        """
        if self.failure is not None:
            raise self.failure
        with self._lock:
            if self._lent is not None:
                self._spare.append(self._lent)
                self._lent = None
            if self._num_kept >= self._rows or (self._kept and not self._listed):
                return self._take_kept(may_take_back=into is not None)
            if not self._listed:
                return None
            self._copied = listed = self._listed.popleft()
        block = self._copy(listed, into)
        with self._lock:
            self._copied = None
        return block

    def keep(self, ids: Ids, numbers: Numbers) -> None:
        """Copy rows that are about to change, if they belong to the copy and are not copied yet."""
        self._keep_from(_Listed(ids, numbers, on_disk=False), self._slabs.rows.ticks(numbers))

    def keep_from_disk(self, ids: Ids, slots: Numbers, ticks: Numbers) -> None:
        """Copy rows on disk, like `keep`, before their owner reads or drops them."""
        self._keep_from(_Listed(ids, slots, on_disk=True), ticks)

    def moved(self, places: Numbers, *, to_disk: bool) -> None:
        """Record the new row numbers or disk slots of rows that have moved. Call `keep` or `keep_from_disk` first."""
        with self._lock:
            self._are_taken(places, to_disk)
            self._is_taken[to_disk][places] = True

    def _keep_from(self, listed: _Listed, ticks: Numbers) -> None:
        ids, numbers, on_disk = listed
        ours = np.flatnonzero(changed(ticks, self.since, self.header.clock))
        with self._lock:
            ours = ours[~self._are_taken(numbers[ours], on_disk)]
            self._is_taken[on_disk][numbers[ours]] = True
        for start in range(0, len(ours), self._rows):
            part = ours[start : start + self._rows]
            try:
                block, damaged = self._gathered(
                    _Listed(ids[part], numbers[part], on_disk), self._memory(len(part))
                )
                self._check(numbers[part], damaged)
            except DiskError as error:
                self.failure = error
                return
            with self._lock:
                self._keep(block)

    def _check(self, slots: Numbers, damaged: Flags) -> None:
        if self._disk is not None:
            self._disk.check(slots, damaged)

    def finish(self) -> None:
        """Copy all remaining rows immediately, because all rows are about to change."""
        while not self.is_listed or self._listed:
            self.list_ahead()
            with self._lock:
                left = [*self._listed, *filter(None, [self._copied])]
                self._listed.clear()
            for listed in left:
                try:
                    block = self._copy(listed, None)
                except DiskError as error:
                    self.failure = error
                    return
                with self._lock:
                    self._keep(block)

    def _keep(self, block: Block) -> None:
        self._kept.append(block)
        self._num_kept += len(block.ids)

    def _memory(self, count: int) -> Floats:
        """Return room for a block of `count` rows; reuses earlier memory, because new memory is slow."""
        with self._lock:
            if count >= self._rows // _SMALL and self._spare:
                return self._spare.pop()
        return np.empty(
            self.floats_of_block if count >= self._rows // _SMALL else self._floats(count), np.float32
        )

    def _take_kept(self, *, may_take_back: bool) -> Block:
        """Return the oldest kept block; small ones are joined up to the number of rows of a block."""
        blocks = [self._kept.popleft()]
        count = len(blocks[0].ids)
        if self._is_spare(blocks[0]):
            self._lent = blocks[0].parts.base if may_take_back else None
        else:
            while self._kept and count < self._rows and not self._is_spare(self._kept[0]):
                blocks.append(self._kept.popleft())
                count += len(blocks[-1].ids)
        self._num_kept -= count
        return _merged(blocks)

    def _is_spare(self, block: Block) -> bool:
        return block.parts.base is not None and block.parts.base.size == self.floats_of_block

    def _floats(self, count: int) -> int:
        return count * self._slabs.parts * self._slabs.part

    def _gathered(self, listed: _Listed, into: Floats) -> tuple[Block, Flags]:
        """Return copies of rows, and which ones (n,) are damaged."""
        ids, numbers, on_disk = listed
        parts = into[: self._floats(len(ids))].reshape(self._slabs.parts, len(ids), self._slabs.part)
        if on_disk and self._disk is not None:
            parts, damaged = self._disk.read_checked(ids, numbers, parts)
            return Block(ids, parts, self._disk.ticks[numbers]), damaged
        ticks = np.empty(len(ids), np.uint32)
        self._slabs.rows.gather(numbers, parts, ticks)
        return Block(ids, parts, ticks), np.zeros(len(ids), np.bool_)

    def _copy(self, listed: _Listed, into: Floats | None) -> Block:
        """Copy the listed rows that belong to the copy and that `keep` does not copy before or meanwhile."""
        ids, numbers, on_disk = listed
        disk = self._disk if on_disk else None
        ticks = self._slabs.rows.ticks(numbers) if disk is None else disk.ticks[numbers]
        ours = np.flatnonzero(changed(ticks, self.since, self.header.clock))
        with self._lock:
            ours = ours[~self._are_taken(numbers[ours], on_disk)]
        ids, numbers = ids[ours], numbers[ours]
        memory = np.empty(self._floats(len(ids)), np.float32) if into is None else into
        (ids, parts, ticks), damaged = self._gathered(_Listed(ids, numbers, on_disk), memory)
        with self._lock:
            late = self._is_taken[on_disk][numbers]
            self._is_taken[on_disk][numbers] = True
        self._check(numbers, damaged & ~late)
        if late.any():  # they may have been changed in the midst of being copied
            return Block(ids[~late], parts[:, ~late], ticks[~late])
        return Block(ids, parts, ticks)

    def _are_taken(self, numbers: Numbers, on_disk: bool) -> npt.NDArray[np.bool_]:
        """Return which of some rows that belong to the copy were taken."""
        size, taken = int(numbers.max()) + 1 if len(numbers) else 0, self._is_taken[on_disk]
        if size > len(taken):
            more = max(size, 2 * len(taken)) - len(taken)
            self._is_taken[on_disk] = taken = np.concatenate((taken, np.full(more, on_disk)))
        return taken[numbers]


def _merged(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        np.concatenate([block.ids for block in blocks]),
        np.concatenate([block.parts for block in blocks], axis=1),
        np.concatenate([block.ticks for block in blocks]),
    )
