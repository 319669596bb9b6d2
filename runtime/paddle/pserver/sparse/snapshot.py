# SPDX-License-Identifier: Apache-2.0
"""A copy of a table as it was at one batch, taken in blocks while the table goes on changing.

The copy goes through the index segment by segment, in each by row number. Whoever is about to change or drop a
row that the copy has not come to lets it `keep` the row first. A row belongs to the copy if its last change
lies in the copy's time; rows changed later were kept already, or did not exist.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.pserver.sparse.blocks import Block, Header
from paddle.pserver.sparse.index import Index
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of
from paddle.pserver.sparse.slabs import Numbers, Slabs
from paddle.pserver.sparse.ticks import changed

Ids = npt.NDArray[np.int64]

_ROWS = 4096
_SWEEPS = 64


class Snapshot:
    """The copy under way. Belongs to the thread that has the table.

    Attributes:
        header: what belongs to the blocks.
        since: the blocks hold rows that changed after this batch; None: all rows.
    """

    def __init__(self, index: Index, slabs: Slabs, header: Header, since: int | None) -> None:
        self.header, self.since = header, since
        self._index, self._slabs = index, slabs
        self._kept: list[Block] = []
        self._segment = -1
        self._ids: Ids = np.zeros(0, np.int64)
        self._numbers: Numbers = np.zeros(0, np.uint32)
        self._at = 0

    def __iter__(self) -> Iterator[Block]:
        while (block := self.next_block()) is not None:
            yield block

    def next_block(self) -> Block | None:
        """Return some rows, about 4096 or, where few changed, fewer or none; None once all were returned.

        Looks at a limited number of rows, so that it does not keep others waiting for long.
        """
        if self._kept:
            return self._kept.pop()
        blocks: list[Block] = []
        found = 0
        while self._segment < SEGMENTS and found < _ROWS and len(blocks) < _SWEEPS:
            blocks.append(self._sweep())
            found += len(blocks[-1].ids)
        return _merged(blocks) if blocks else None

    def keep(self, ids: Ids, numbers: Numbers, parts: npt.NDArray[np.float32], ticks: Numbers) -> None:
        """Copy rows that are about to change, as far as they belong here and were not copied yet."""
        if self._segment >= SEGMENTS:
            return
        ours = changed(ticks, self.since, self.header.clock)
        segments = segments_of(ids)
        frontier = self._numbers[self._at] if self._at < len(self._numbers) else np.uint32(0xFFFFFFFF)
        ours &= (segments > self._segment) | ((segments == self._segment) & (numbers >= frontier))
        if ours.any():
            self._kept.append(Block(ids[ours], parts[:, ours], ticks[ours]))

    def finish(self) -> None:
        """Copy all that is left at once: everything is about to change."""
        while self._segment < SEGMENTS:
            self._kept.append(self._sweep())

    def _sweep(self) -> Block:
        """Copy the next rows of the current segment, or go to the next one; may return no rows."""
        if self._at >= len(self._ids):
            self._segment += 1
            self._at = 0
            if self._segment < SEGMENTS:
                ids, numbers = self._index.segment(self._segment)
                order = np.argsort(numbers)
                self._ids, self._numbers = ids[order], numbers[order]
            else:
                self._ids, self._numbers = self._ids[:0], self._numbers[:0]
        part = slice(self._at, self._at + _ROWS)
        ids, numbers = self._ids[part], self._numbers[part]
        self._at += len(ids)
        # A row may have been dropped since, and its number given to another id.
        here = self._index.find(ids) == numbers
        here[here] = changed(self._slabs.ticks(numbers[here]), self.since, self.header.clock)
        ids, numbers = ids[here], numbers[here]
        parts = np.empty((self._slabs.parts, len(ids), self._slabs.width), np.float32)
        ticks = np.empty(len(ids), np.uint32)
        self._slabs.gather(numbers, parts, ticks)
        return Block(ids, parts, ticks)


def _merged(blocks: list[Block]) -> Block:
    if len(blocks) == 1:
        return blocks[0]
    return Block(
        np.concatenate([block.ids for block in blocks]),
        np.concatenate([block.parts for block in blocks], axis=1),
        np.concatenate([block.ticks for block in blocks]),
    )
