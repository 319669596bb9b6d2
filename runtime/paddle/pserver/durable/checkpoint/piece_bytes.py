# SPDX-License-Identifier: Apache-2.0
"""The bytes of pieces, from the blocks of one file after the other: where they lie, or put together of two blocks."""

from __future__ import annotations

import numpy as np

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.crc import crc32
from paddle.pserver.durable.checkpoint.direct import Memory
from paddle.pserver.durable.checkpoint.input import Filled, Input, Pool

_NONE = Filled(np.empty(0, np.uint8), 0)


class PieceBytes:
    """Takes blocks from an input, and tells when they may go back to the pool. Used by one thread.

    Attributes:
        at: how many bytes of the file were taken.
        crc: of the blocks that those are of.
    """

    def __init__(self, pool: Pool) -> None:
        self.at = self.crc = 0
        self._pool = pool
        self._data: Input | None = None
        self._block, self._next = _NONE, 0
        self._is_used = False  # whether somebody has a view of the block
        self._used_up: list[Memory] = []

    def begin(self, data: Input) -> None:
        """Go on with another file; all of the one before was taken."""
        self._leave()
        self._data = data
        self.at = self.crc = 0

    def take(self, count: int, *, stays: bool = False) -> memoryview:
        """Return the next bytes.

        Args:
            stays: they are used after the next call, until what `used_up` returns is given back.

        Raises:
            CheckpointError: there are no more.
            OSError: the disk refuses.
        """
        if count and self._next == self._block.nbytes:
            self._turn()
        self.at += count
        if self._next + count <= self._block.nbytes:
            found = self._block.memory[self._next : self._next + count]
            self._next += count
            self._is_used |= stays
            return found.data
        whole = self._pool.spare(count) if stays else np.empty(count, np.uint8)
        if whole is None:
            raise CheckpointError("nobody wants the rest")
        self._put_together(whole[:count])
        if stays:
            self._used_up.append(whole)
        return whole[:count].data

    def used_up(self) -> list[Memory]:
        """Return, once, memory that goes back to the pool when what was taken up to now is used no more."""
        found, self._used_up = self._used_up, []
        return found

    def _put_together(self, whole: Memory) -> None:
        done = 0
        while done < len(whole):
            if self._next == self._block.nbytes:
                self._turn()
            count = min(len(whole) - done, self._block.nbytes - self._next)
            np.copyto(whole[done : done + count], self._block.memory[self._next : self._next + count])
            self._next, done = self._next + count, done + count

    def _turn(self) -> None:
        """Go to the next block."""
        self._leave()
        block = None if self._data is None else self._data.next()
        if block is None or not block.nbytes:
            raise CheckpointError("a piece of a parameter is cut short")
        self._block = block
        self.crc = crc32(block.memory[: block.nbytes].data, self.crc)

    def _leave(self) -> None:
        if self._block.nbytes and self._is_used:
            self._used_up.append(self._block.memory)
        elif self._block.nbytes:
            self._pool.give_back(self._block.memory)
        self._block, self._next, self._is_used = _NONE, 0, False
