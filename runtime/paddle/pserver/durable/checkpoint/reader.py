# SPDX-License-Identifier: Apache-2.0
"""Reads checkpoint files: piece by piece, with threads that read ahead, or as a whole, to verify them.

Every byte is read from disk once, into a few blocks that are reused. Pieces are verified only when the iteration ends
without an error, which means that every file matched its manifest.
"""

from __future__ import annotations

import errno
import io
import os
import queue
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from paddle.errors import CheckpointError
from paddle.pserver.durable.checkpoint.disk import (
    BLOCK,
    Memory,
    go_past_cache,
    go_through_cache,
    map_block,
)
from paddle.pserver.durable.checkpoint.format import HEAD, DataFile, Piece, crc32, head_of, piece_of
from paddle.threads import ServiceThread
from paddle_node.contract.classes import NamedTuple

_BLOCKS, _SPARE = 4, 2


def open_plain(path: Path) -> io.FileIO:
    """Open a regular file for reading; links are not followed, and files that can block are refused.

    Raises:
        CheckpointError: the path is missing, or not a regular file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        what = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise CheckpointError(f"{path.name}: {what}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CheckpointError(f"{path.name}: not a regular file")
    return os.fdopen(descriptor, "rb", buffering=0)


def open_file(root: Path, file: DataFile) -> io.FileIO:
    """Open a checkpoint file without a buffer. Raises CheckpointError if it is missing or has another size."""
    data = open_plain(root / file.path)
    size = os.fstat(data.fileno()).st_size
    if size != file.nbytes:
        data.close()
        raise CheckpointError(f"{file.path}: expected {file.nbytes} bytes, got {size}")
    return data


def compare(file: DataFile, crc: int) -> None:
    """Check a file's CRC-32 against its manifest. Raises CheckpointError if they differ."""
    if file.crc32 not in (None, crc):
        raise CheckpointError(f"{file.path}: damaged: expected checksum {file.crc32:08x}, got {crc:08x}")


class Read(NamedTuple):
    """A piece that was read, and the file that contains it."""

    file: DataFile
    piece: Piece


class _Ready(NamedTuple):
    read: Read
    used_up: list[Memory]  # free once this piece was used


class Reading:
    """An iterator over the pieces of checkpoint files. A context manager that stops reading on exit; iterated once."""

    def __init__(self, root: Path, files: Sequence[DataFile], *, past_cache: bool = False) -> None:
        """Begin to read the files.

        Args:
            past_cache: see `Input`; for files that no other process of this machine reads.
        """
        self._root, self._files, self._past_cache = root, files, past_cache
        self._pool = Pool()
        self._bytes = PieceBytes(self._pool)
        self._ready: queue.SimpleQueue[_Ready | CheckpointError | None] = queue.SimpleQueue()
        self._thread = ServiceThread(self._work, name="checkpoint-read")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._thread.join()

    def __iter__(self) -> Iterator[Read]:
        """Yield all pieces; their arrays are valid until the next piece is requested.

        Raises:
            CheckpointError: a file is missing or differs.
        """
        while (found := self._ready.get()) is not None:
            if isinstance(found, CheckpointError):
                raise found
            yield found.read
            for memory in found.used_up:
                self._pool.give_back(memory)

    def _work(self) -> None:
        try:
            for file in self._files:
                with open_file(self._root, file) as opened:
                    past_cache = self._past_cache and file.crc32 is not None
                    data = Input(opened.fileno(), file.nbytes, self._pool, past_cache=past_cache)
                    try:
                        self._read(file, data)
                    finally:
                        data.close()
            self._ready.put(None)
        except CheckpointError as error:
            self._ready.put(error)
        except (OSError, MemoryError) as error:
            self._ready.put(CheckpointError(f"{file.path}: {error}"))
        finally:
            self._ready.put(
                CheckpointError("the reading thread of the checkpoint ended before its last file")
            )  # ends each wait

    def _read(self, file: DataFile, data: Input) -> None:
        found = self._bytes
        found.begin(data)
        while found.at < file.nbytes:
            start = found.at
            length, nbytes = head_of(bytes(found.take(HEAD.size)))
            if found.at + length + nbytes > file.nbytes:
                raise CheckpointError(f"{file.path}: the piece at byte {start} is truncated")
            description = bytes(found.take(length))
            piece = piece_of(description, found.take(nbytes, stays=True))
            self._ready.put(_Ready(Read(file, piece), found.used_up()))
        compare(file, found.crc)


class Filled(NamedTuple):
    """A block of memory, and the number of its bytes that were read from the file."""

    memory: Memory
    nbytes: int


class Pool:
    """A pool of memory that is reused for one file after another: blocks, and spare memory of any size."""

    def __init__(self) -> None:
        self._blocks: queue.SimpleQueue[Memory | None] = queue.SimpleQueue()
        self._spare: queue.SimpleQueue[Memory | None] = queue.SimpleQueue()
        for _ in range(_BLOCKS):
            self._blocks.put(map_block())
        for _ in range(_SPARE):
            self._spare.put(np.empty(0, np.uint8))

    def block(self) -> Memory | None:
        """Wait for a block; None means the pool is closed."""
        return self._blocks.get()

    def spare(self, nbytes: int) -> Memory | None:
        """Wait for spare memory of at least `nbytes` bytes; None means the pool is closed."""
        memory = self._spare.get()
        return memory if memory is None or len(memory) >= nbytes else _sized(nbytes)

    def give_back(self, memory: Memory) -> None:
        """Make a block of memory available to later reads."""
        (self._blocks if len(memory) == BLOCK else self._spare).put(memory)

    def close(self) -> None:
        """Close the pool and wake up all waiting threads; later waits return immediately."""
        for each in (self._blocks, self._spare):
            each.put(None)
            each.put(None)


def _sized(nbytes: int) -> Memory:
    """Return memory of slightly more than `nbytes` bytes, so that its size differs from that of a block."""
    return np.empty(nbytes + nbytes // 8 + (1 if nbytes + nbytes // 8 == BLOCK else 0), np.uint8)


class Input:
    """Reads one file block by block in its own thread; must be closed."""

    def __init__(self, descriptor: int, nbytes: int, pool: Pool, *, past_cache: bool) -> None:
        """Begin to read the first `nbytes` of an open file, which the caller closes after `close`.

        Args:
            past_cache: bypass the system's page cache if the file system supports it; otherwise read through it.
        """
        self._file, self._nbytes, self._pool = descriptor, nbytes, pool
        self._is_direct = past_cache and go_past_cache(descriptor)
        self._filled: queue.SimpleQueue[Filled | OSError | None] = queue.SimpleQueue()
        self._is_wanted = True
        self._thread = ServiceThread(self._work, name="checkpoint-disk")

    def next(self) -> Filled | None:
        """Return the next block, which the caller returns to the pool; None if the pool is closed or the file ends.

        Raises:
            OSError: reading failed.
        """
        filled = self._filled.get()
        if isinstance(filled, OSError):
            raise filled
        return filled

    def close(self) -> None:
        """Stop reading; waits for the block in progress."""
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
        """Fill a block from position `at`, a multiple of its size unless the file is short; return the byte count."""
        done, wanted = 0, min(BLOCK, self._nbytes - at)
        if not self._is_direct:
            os.posix_fadvise(self._file, at, _BLOCKS * BLOCK, os.POSIX_FADV_WILLNEED)
        while done < wanted:
            try:
                count = os.preadv(self._file, [memory[done:].data], at + done)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                go_through_cache(self._file)  # direct I/O is not supported, which is only reported here
                self._is_direct = False
                continue
            if not count:
                break
            done += count
        return min(done, wanted)


_NONE = Filled(np.empty(0, np.uint8), 0)


class PieceBytes:
    """The bytes of one input after another; reports which blocks can be returned to the pool. Used by one thread.

    Attributes:
        at: number of bytes of the file taken so far.
        crc: CRC-32 of the blocks that contain those bytes.
    """

    def __init__(self, pool: Pool) -> None:
        self.at = self.crc = 0
        self._pool = pool
        self._data: Input | None = None
        self._block, self._next = _NONE, 0
        self._is_used = False  # whether a view of the block exists
        self._used_up: list[Memory] = []

    def begin(self, data: Input) -> None:
        """Begin to read another file; all bytes of the previous one must have been taken."""
        self._leave()
        self._data = data
        self.at = self.crc = 0

    def take(self, count: int, *, stays: bool = False) -> memoryview:
        """Return the next `count` bytes as a view.

        Args:
            stays: whether the bytes remain valid after the next call, until the result of `used_up` is returned to the
                pool.

        Raises:
            CheckpointError: there are no more bytes.
            OSError: reading failed.
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
            raise CheckpointError("reading was stopped: the rest of the file is not needed")
        self._put_together(whole[:count])
        if stays:
            self._used_up.append(whole)
        return whole[:count].data

    def used_up(self) -> list[Memory]:
        """Return the memory to give back to the pool once the bytes taken so far are no longer used."""
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
        """Continue with the next block."""
        self._leave()
        block = None if self._data is None else self._data.next()
        if block is None or not block.nbytes:
            raise CheckpointError("the file ended in the middle of a piece of a parameter")
        self._block = block
        self.crc = crc32(block.memory[: block.nbytes].data, self.crc)

    def _leave(self) -> None:
        if self._block.nbytes and self._is_used:
            self._used_up.append(self._block.memory)
        elif self._block.nbytes:
            self._pool.give_back(self._block.memory)
        self._block, self._next, self._is_used = _NONE, 0, False
