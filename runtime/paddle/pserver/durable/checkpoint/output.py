# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of a part go: to a disk by way of a few blocks and a thread, or to memory at once."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from pathlib import Path
from typing import Protocol

import numpy as np

from paddle.pserver.durable.checkpoint.crc import crc32
from paddle.pserver.durable.checkpoint.direct import BLOCK, Memory, NewFile, map_block

_BLOCKS = 3
ROOM = (_BLOCKS - 1) * BLOCK
"""Bytes that `make_room` can promise."""


class Output(Protocol):
    """A file under way; used by one thread. Every method but `close` may raise OSError, and `close` is due then.

    Attributes:
        nbytes: written so far.
        crc: of those; None if nobody wants to know.
    """

    nbytes: int
    crc: int | None

    def make_room(self, nbytes: int) -> None:
        """Wait until so many bytes, at most `ROOM`, can be taken without waiting for the disk."""

    def write(self, frame: bytes | memoryview) -> None:
        """Take bytes; their memory is free again afterwards."""

    def finish(self) -> None:
        """Return once all is where it shall be; the file is closed."""

    def close(self) -> None:
        """Close the file, finished or not."""


class DiskOutput:
    """See `Output`: what it finished survives the machine."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.nbytes = 0
        self.crc: int | None = 0
        self._file = NewFile(path)
        self._error: OSError | None = None
        self._free: queue.SimpleQueue[Memory] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[Memory, int] | None] = queue.SimpleQueue()
        self._mine = deque(map_block() for _ in range(_BLOCKS))
        self._used = 0  # bytes of the first of our blocks
        self._filled: deque[tuple[Memory, int]] = deque()  # and neither summed up nor sent yet
        self._thread = threading.Thread(target=self._work, name="checkpoint-disk", daemon=True)
        self._thread.start()

    def make_room(self, nbytes: int) -> None:
        """See `Output`."""
        self._send()
        while len(self._mine) * BLOCK - self._used < nbytes:
            self._mine.append(self._free.get())
        if self._error is not None:
            raise self._error

    def write(self, frame: bytes | memoryview) -> None:
        """See `Output`."""
        rest = np.frombuffer(frame, np.uint8)
        self.nbytes += len(rest)
        while len(rest):
            if not self._mine:
                self.make_room(1)
            block, used = self._mine[0], self._used
            count = min(len(rest), BLOCK - used)
            np.copyto(block[used : used + count], rest[:count])
            rest, self._used = rest[count:], used + count
            if self._used == BLOCK:
                self._turn()

    def finish(self) -> None:
        """See `Output`."""
        if self._used:
            self._turn()
        self._send()
        self._end()
        if self._error is not None:
            raise self._error
        self._file.finish()
        self._file.close()

    def close(self) -> None:
        """See `Output`."""
        self._end()
        self._file.close()

    def _turn(self) -> None:
        self._filled.append((self._mine.popleft(), self._used))
        self._used = 0

    def _send(self) -> None:
        while self._filled:
            block, count = self._filled.popleft()
            self.crc = crc32(block[:count].data, self.crc or 0)
            self._full.put((block, count))

    def _end(self) -> None:
        self._full.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._full.get()) is not None:
            if self._error is None:
                try:
                    self._file.write(*item)
                except OSError as error:
                    self._error = error
            self._free.put(item[0])


class MemoryOutput:
    """See `Output`: what it finished survives the process; nobody but a kill can harm it, so it is not summed up."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.nbytes = 0
        self.crc: int | None = None
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def make_room(self, nbytes: int) -> None:
        """See `Output`."""

    def write(self, frame: bytes | memoryview) -> None:
        """See `Output`."""
        rest = memoryview(frame)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.nbytes += len(frame)

    def finish(self) -> None:
        """See `Output`."""
        self.close()

    def close(self) -> None:
        """See `Output`."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
