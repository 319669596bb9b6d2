# SPDX-License-Identifier: Apache-2.0
"""The bytes of a file in large blocks, brought from the disk by a thread before they are asked for."""

from __future__ import annotations

import errno
import os
import queue
import threading
from typing import NamedTuple

import numpy as np

from paddle.pserver.durable.checkpoint.direct import (
    BLOCK,
    Memory,
    go_past_cache,
    go_through_cache,
    map_block,
)

_BLOCKS, _SPARE = 4, 2


class Filled(NamedTuple):
    """A block, and how many of its bytes are the file's."""

    memory: Memory
    nbytes: int


class Pool:
    """Memory that is filled again and again, by one file after the other: blocks, and spare room of any size."""

    def __init__(self) -> None:
        self._blocks: queue.SimpleQueue[Memory | None] = queue.SimpleQueue()
        self._spare: queue.SimpleQueue[Memory | None] = queue.SimpleQueue()
        for _ in range(_BLOCKS):
            self._blocks.put(map_block())
        for _ in range(_SPARE):
            self._spare.put(np.empty(0, np.uint8))

    def block(self) -> Memory | None:
        """Wait for a block; None: nobody needs one any more."""
        return self._blocks.get()

    def spare(self, nbytes: int) -> Memory | None:
        """Wait for some other memory, of so many bytes at least; None as above."""
        memory = self._spare.get()
        return memory if memory is None or len(memory) >= nbytes else _sized(nbytes)

    def give_back(self, memory: Memory) -> None:
        """Let memory be filled again."""
        (self._blocks if len(memory) == BLOCK else self._spare).put(memory)

    def close(self) -> None:
        """Let nobody wait any more."""
        for each in (self._blocks, self._spare):
            each.put(None)
            each.put(None)


def _sized(nbytes: int) -> Memory:
    """Return memory of somewhat more bytes, not as many as a block has."""
    return np.empty(nbytes + nbytes // 8 + (1 if nbytes + nbytes // 8 == BLOCK else 0), np.uint8)


class Input:
    """One file being read; `close` is due."""

    def __init__(self, descriptor: int, nbytes: int, pool: Pool, *, past_cache: bool) -> None:
        """Begin to read the first `nbytes` of an open file, which stays the caller's to close, after `close`.

        Args:
            past_cache: past the system's page cache, if the file system can; else through it.
        """
        self._file, self._nbytes, self._pool = descriptor, nbytes, pool
        self._is_direct = past_cache and go_past_cache(descriptor)
        self._filled: queue.SimpleQueue[Filled | OSError | None] = queue.SimpleQueue()
        self._is_wanted = True
        self._thread = threading.Thread(target=self._work, name="checkpoint-disk", daemon=True)
        self._thread.start()

    def next(self) -> Filled | None:
        """Return the next block, to be given back to the pool; None: nobody wants more, or the file ends too early.

        Raises:
            OSError: the disk refuses.
        """
        filled = self._filled.get()
        if isinstance(filled, OSError):
            raise filled
        return filled

    def close(self) -> None:
        """Read no more; waits for the block under way."""
        self._is_wanted = False
        self._thread.join()

    def _work(self) -> None:
        at = 0
        try:
            while at < self._nbytes and self._is_wanted and (memory := self._pool.block()) is not None:
                count = self._fill(memory, at)
                self._filled.put(Filled(memory, count))
                at += count
                if not count:
                    break
            self._filled.put(None)
        except OSError as error:
            self._filled.put(error)

    def _fill(self, memory: Memory, at: int) -> int:
        """Fill a block from place `at`, a multiple of its size unless the file is short; return the bytes."""
        done, wanted = 0, min(BLOCK, self._nbytes - at)
        if not self._is_direct:
            os.posix_fadvise(self._file, at, _BLOCKS * BLOCK, os.POSIX_FADV_WILLNEED)
        while done < wanted:
            try:
                count = os.preadv(self._file, [memory[done:].data], at + done)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                go_through_cache(self._file)  # it was asked too much, and says so only now
                self._is_direct = False
                continue
            if not count:
                break
            done += count
        return min(done, wanted)
