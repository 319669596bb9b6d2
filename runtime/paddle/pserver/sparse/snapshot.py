# SPDX-License-Identifier: Apache-2.0
"""A copy of a table at one batch, taken in blocks while the table continues to change.

A row belongs to the copy if its last change lies in the copy's time, and is taken once: by whoever is about to change
or drop it, who lets the copy `keep` it first, or by a walk through the index. The table's owner lists rows for that
walk; another thread may copy them, without keeping the owner from changing them: what was kept while it copied is
no more the walk's.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.blocks import Block, Header
from paddle.pserver.sparse.index import Index, PlainIndex
from paddle.pserver.sparse.mixing import SEGMENTS
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.structures import Numbers
from paddle.pserver.sparse.ticks import changed

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]

_BLOCK_BYTES, _BLOCK_ROWS = 4 << 20, 1 << 13
_SMALL = 16
_AHEAD = 16
"""Blocks that are listed and not copied yet: more than whoever copies needs while the owner is busy."""


class _Listed(NamedTuple):
    ids: Ids
    numbers: Numbers


class TableSnapshot:
    """The copy under way. `take` may be one other thread's; all else belongs to the thread that has the table.

    Attributes:
        header: what belongs to the blocks.
        since: the blocks hold rows that changed after this batch; None: all rows.
    """

    def __init__(self, index: Index | PlainIndex, slabs: Slabs, header: Header, since: int | None) -> None:
        self.header, self.since = header, since
        self._index, self._slabs = index, slabs
        row_bytes = 4 * slabs.part * slabs.parts + 12
        self._rows = max(min(_BLOCK_BYTES // row_bytes, _BLOCK_ROWS), 1)
        self._lock = threading.Lock()
        self._is_taken = np.zeros(len(slabs), np.bool_)  # by row number
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
        """How many floats a block of listed rows has at most."""
        return self._floats(self._rows)

    @property
    def is_listed(self) -> bool:
        """Whether `list_ahead` has nothing to do any more."""
        return self._segment >= SEGMENTS

    @property
    def is_over(self) -> bool:
        """Whether all blocks were taken."""
        with self._lock:
            return self.is_listed and not self._listed and not self._kept and self._copied is None

    def list_ahead(self) -> bool:
        """List the next rows, unless enough are; return whether there are any more to `take`."""
        while len(self._listed) < _AHEAD and self._segment < SEGMENTS:
            found = []
            count = 0
            while self._segment < SEGMENTS and count < self._rows:
                found.append(self._index.segment(self._segment))
                count += len(found[-1][0])
                self._segment += 1
            ids, numbers = (np.concatenate(each) for each in zip(*found, strict=True))
            with self._lock:
                for start in range(0, len(ids), self._rows):
                    part = slice(start, start + self._rows)
                    self._listed.append(_Listed(ids[part], numbers[part]))
        return bool(self._listed or self._kept)

    def next_block(self) -> Block | None:
        """List and take some rows; None once all were."""
        self.list_ahead()
        return self.take()

    def take(self, into: Floats | None = None) -> Block | None:
        """Return some rows that were kept or listed, or none of them; None if there are no such.

        Args:
            into: (floats_of_block,): where the floats may lie; the block then holds until the next call.
        """
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
        """Copy rows that are about to change, as far as they belong here and were not taken yet."""
        ours = np.flatnonzero(changed(self._slabs.rows.ticks(numbers), self.since, self.header.clock))
        with self._lock:
            ours = ours[~self._are_taken(numbers[ours])]
            self._is_taken[numbers[ours]] = True
        for start in range(0, len(ours), self._rows):
            part = ours[start : start + self._rows]
            block = self._gathered(ids[part], numbers[part], self._memory(len(part)))
            with self._lock:
                self._keep(block)

    def finish(self) -> None:
        """Copy all that is left at once: everything is about to change."""
        while not self.is_listed or self._listed:
            self.list_ahead()
            with self._lock:
                left = [*self._listed, *filter(None, [self._copied])]
                self._listed.clear()
            for listed in left:
                block = self._copy(listed, None)
                with self._lock:
                    self._keep(block)

    def _keep(self, block: Block) -> None:
        self._kept.append(block)
        self._num_kept += len(block.ids)

    def _memory(self, count: int) -> Floats:
        """Return room for a block of so many rows: what was used before, for to find other memory takes long."""
        with self._lock:
            if count >= self._rows // _SMALL and self._spare:
                return self._spare.pop()
        return np.empty(
            self.floats_of_block if count >= self._rows // _SMALL else self._floats(count), np.float32
        )

    def _take_kept(self, *, may_take_back: bool) -> Block:
        """Return the oldest of the kept blocks; of small ones as many as a block has rows."""
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

    def _gathered(self, ids: Ids, numbers: Numbers, into: Floats) -> Block:
        parts = into[: self._floats(len(ids))].reshape(self._slabs.parts, len(ids), self._slabs.part)
        ticks = np.empty(len(ids), np.uint32)
        self._slabs.rows.gather(numbers, parts, ticks)
        return Block(ids, parts, ticks)

    def _copy(self, listed: _Listed, into: Floats | None) -> Block:
        """Copy those of some rows that belong here and that nobody else takes, before or meanwhile."""
        ids, numbers = listed
        ours = np.flatnonzero(changed(self._slabs.rows.ticks(numbers), self.since, self.header.clock))
        with self._lock:
            ours = ours[~self._are_taken(numbers[ours])]
        ids, numbers = ids[ours], numbers[ours]
        memory = np.empty(self._floats(len(ids)), np.float32) if into is None else into
        ids, parts, ticks = self._gathered(ids, numbers, memory)
        with self._lock:
            late = self._is_taken[numbers]
            self._is_taken[numbers] = True
        if late.any():  # they may have been changed in the midst of being copied
            return Block(ids[~late], parts[:, ~late], ticks[~late])
        return Block(ids, parts, ticks)

    def _are_taken(self, numbers: Numbers) -> npt.NDArray[np.bool_]:
        """Return which rows were taken, of some that belong here."""
        size = int(numbers.max()) + 1 if len(numbers) else 0
        if size > len(self._is_taken):
            more = max(size, 2 * len(self._is_taken)) - len(self._is_taken)
            self._is_taken = np.concatenate((self._is_taken, np.zeros(more, np.bool_)))
        return self._is_taken[numbers]


def _merged(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        np.concatenate([block.ids for block in blocks]),
        np.concatenate([block.parts for block in blocks], axis=1),
        np.concatenate([block.ticks for block in blocks]),
    )
