# SPDX-License-Identifier: Apache-2.0
"""Writes one server's part of a checkpoint to a temporary folder, and then renames the folder in one step.

A durable part is written in this order: data, fsync, manifest, fsync, fsync of the folder, rename, fsync of the parent
folders. A part with its final name is therefore complete, whenever the process or the machine stops.
"""

from __future__ import annotations

import errno
import os
import queue
import secrets
import shutil
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from paddle.pserver.durable.checkpoint.disk import (
    BLOCK,
    PAGE,
    Memory,
    SpareMemory,
    give_way,
    go_past_cache,
    go_through_cache,
    map_block,
)
from paddle.pserver.durable.checkpoint.format import (
    DATA,
    MANIFEST,
    DataFile,
    Manifest,
    Piece,
    crc32,
    frames,
)
from paddle.threads import ServiceThread
from paddle_node.contract.classes import replace
from paddle_node.linux.descriptors import sync

UNFINISHED = ".unfinished-"
_BLOCKS = 3
ROOM = (_BLOCKS - 1) * BLOCK
"""The largest number of bytes that `make_room` can guarantee."""
_JOIN_S = 5.0


class DiskOutput:
    """An output file that survives a machine crash; its own thread writes it through a few blocks. Used by one thread.

    Every method except `close` may raise OSError; then `close` must be called.

    Attributes:
        nbytes: number of bytes written so far.
        crc: CRC of those bytes.
    """

    def __init__(self, path: Path) -> None:
        """Create the file to write."""
        self.nbytes = self.crc = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._is_direct = go_past_cache(self._file)
        self._at = 0  # bytes written to the file
        self._error: OSError | None = None
        self._free: queue.SimpleQueue[Memory] = queue.SimpleQueue()
        self._full: queue.SimpleQueue[tuple[Memory, int] | None] = queue.SimpleQueue()
        self._mine = deque(map_block() for _ in range(_BLOCKS))
        self._used = 0  # bytes of the first of our blocks
        self._filled: deque[tuple[Memory, int]] = deque()  # and neither summed up nor sent yet
        self._thread = ServiceThread(self._work, name="checkpoint-disk")

    def make_room(self, nbytes: int) -> None:
        """Wait until `nbytes` bytes, at most `ROOM`, can be accepted without waiting for the disk. Raises OSError."""
        self._send()
        while len(self._mine) * BLOCK - self._used < nbytes:
            self._mine.append(self._free.get())
        if self._error is not None:
            raise self._error

    def write(self, frame: bytes | memoryview) -> None:
        """Append bytes, whose memory can be reused afterwards. Raises OSError if an earlier write failed."""
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
        """Wait until all bytes are on disk, and close the file. Raises OSError if a byte could not be written."""
        if self._used:
            self._turn()
        self._send()
        self._end()
        if self._error is not None:
            raise self._error
        os.ftruncate(self._file, self._at)
        os.fsync(self._file)
        self.close()

    def close(self) -> None:
        """Close the file, finished or not; can be called twice."""
        self._end()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _turn(self) -> None:
        self._filled.append((self._mine.popleft(), self._used))
        self._used = 0

    def _send(self) -> None:
        while self._filled:
            block, count = self._filled.popleft()
            self.crc = crc32(block[:count].data, self.crc)
            self._full.put((block, count))

    def _end(self) -> None:
        self._full.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (item := self._full.get()) is not None:
            if self._error is None:
                try:
                    self._write(*item)
                except OSError as error:
                    self._error = error
            self._free.put(item[0])

    def _write(self, block: Memory, count: int) -> None:
        """Write the first bytes of a block; only the last block can have a length other than whole pages."""
        length = -(-count // PAGE) * PAGE if self._is_direct else count
        block[count:length] = 0
        done = 0
        while done < length:
            try:
                done += os.pwrite(self._file, block[done:length].data, self._at + done)
            except OSError as error:
                if not self._is_direct or error.errno != errno.EINVAL:
                    raise
                go_through_cache(self._file)  # direct I/O is not supported, which is only reported here
                self._is_direct = False
        if not self._is_direct:
            # makes the disk start writing now instead of at the fsync; the data is not read again soon
            os.posix_fadvise(self._file, self._at, length, os.POSIX_FADV_DONTNEED)
        self._at += count


class MemoryOutput:
    """An output file in memory that survives the process, with the interface of `DiskOutput` but without a checksum."""

    crc = None

    def __init__(self, path: Path) -> None:
        """Create the file to write."""
        self.nbytes = 0
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def make_room(self, nbytes: int) -> None:
        """Return immediately: memory never blocks."""

    def write(self, frame: bytes | memoryview) -> None:
        """Append bytes to the file in memory."""
        rest = memoryview(frame)
        while rest:
            rest = rest[os.write(self._file, rest) :]
        self.nbytes += len(frame)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    finish = close


class PartWriter:
    """A checkpoint part that is being written. Used by one thread.

    If a method raises OSError, `abandon` must be called.
    """

    def __init__(self, root: Path, server: int, *, durable: bool) -> None:
        """Begin a part.

        Args:
            root: the folder of all checkpoints; created if missing.
            server: number of the server, so that no other server removes this part.
            durable: whether the part must survive a crash of the machine, and is verified when read; otherwise, it only
                survives the process.
        """
        root.mkdir(parents=True, exist_ok=True)
        self._root, self._durable = root, durable
        self._folder = root / f"{UNFINISHED}{server}-{secrets.token_hex(4)}"
        self._folder.mkdir()
        try:
            self._output = DiskOutput(self._folder / DATA) if durable else MemoryOutput(self._folder / DATA)
        except OSError:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def make_room(self, nbytes: int) -> None:
        """Wait until `nbytes` bytes, or the maximum if that is less, can be accepted; see `DiskOutput.make_room`."""
        self._output.make_room(min(nbytes, ROOM))

    def write(self, piece: Piece) -> None:
        """Append a piece, whose arrays can be reused afterwards."""
        self.make_room(piece.nbytes)
        for frame in frames(piece, self._output.nbytes):
            self._output.write(frame)

    def publish(self, manifest: Manifest, earlier: Sequence[DataFile] = ()) -> Manifest:
        """Rename the part to its final name; return its complete manifest.

        Args:
            manifest: the manifest, without files.
            earlier: files of earlier parts that this part builds upon.
        """
        self._output.finish()
        data = DataFile(f"{manifest.folder}/{DATA}", self._output.nbytes, self._output.crc)
        manifest = replace(manifest, files=(*earlier, data))
        with open(self._folder / MANIFEST, "xb") as file:
            file.write(manifest.to_bytes())
            file.flush()
            if self._durable:
                os.fsync(file.fileno())
        self._sync(self._folder)
        final = self._root / manifest.folder
        final.parent.mkdir(exist_ok=True)
        if final.exists():  # a restarted server writes the same version again
            aside = self._root / f"{UNFINISHED}{manifest.server}-{secrets.token_hex(4)}"
            os.rename(final, aside)
            os.rename(self._folder, final)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            os.rename(self._folder, final)
        for folder in (final.parent, self._root):
            self._sync(folder)
        return manifest

    def abandon(self) -> None:
        """Remove the unfinished part."""
        self._output.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _sync(self, folder: Path) -> None:
        if self._durable:
            sync(folder)


Outcome: TypeAlias = Manifest | OSError | None
Job: TypeAlias = Callable[[PartWriter], None]
"""Writes to a part, in the thread that has it."""


class Sink:
    """The output of one checkpoint part for a caller that must not fail; `outcome` reports disk errors.

    Attributes:
        has_thread: whether a separate thread writes the part, so that `defer` returns immediately.
    """

    def __init__(self, root: Path, server: int, spare: SpareMemory | None = None) -> None:
        """Begin a part.

        Args:
            root, server: see `PartWriter`.
            spare: memory for arrays that wait for the writing thread. None means without a thread, the part is written
                immediately to memory, which never blocks.
        """
        self.has_thread = spare is not None
        self._spare = spare
        self._open = partial(PartWriter, root, server, durable=self.has_thread)
        self._writer: PartWriter | None = None
        self._outcome: Outcome = None
        self._given = self._written = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread = ServiceThread(self._run, name=f"checkpoint-{server}") if self.has_thread else None
        if self._thread is None:
            self._carry_out(lambda _: None)

    @property
    def backlog(self) -> int:
        """The number of bytes that are queued but not written yet."""
        return self._given - self._written if self._outcome is None else 0

    def give(self, piece: Piece) -> None:
        """Append a piece; its arrays may be reused after the call."""
        self._given += piece.nbytes
        if self._outcome is None:
            if spare := self._spare:
                own = {n: a if a.base is None else spare.copy(a) for n, a in piece.arrays.items()}
                piece = replace(piece, arrays=own)
            self.defer(partial(self._write, piece))

    def defer(self, job: Job) -> None:
        """Have the part's thread run a job after all earlier ones; the job is skipped if an earlier one failed."""
        if self._outcome is None:
            (self._jobs.put if self.has_thread else self._carry_out)(job)

    def finish(self, manifest: Manifest, earlier: Sequence[DataFile]) -> None:
        """Publish the part with the pieces given so far; see `PartWriter.publish`."""
        self.defer(partial(self._publish, manifest, earlier))

    def outcome(self) -> Outcome:
        """Return the manifest once it is published, or the error that prevented that; None while in progress."""
        return self._outcome

    def abandon(self) -> None:
        """Remove the part; wait for its thread for at most 5 s."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(_JOIN_S)
        else:
            self._end()

    def _write(self, piece: Piece, writer: PartWriter) -> None:
        writer.write(piece)
        self._written += piece.nbytes

    def _publish(self, manifest: Manifest, earlier: Sequence[DataFile], writer: PartWriter) -> None:
        self._outcome = writer.publish(manifest, earlier)

    def _carry_out(self, job: Job) -> None:
        try:
            self._writer = self._writer or self._open()
            job(self._writer)
        except (OSError, MemoryError) as error:
            self._end()
            no_memory = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self._outcome = error if isinstance(error, OSError) else no_memory

    def _run(self) -> None:
        self._carry_out(lambda _: give_way())
        while self._outcome is None and (job := self._jobs.get()) is not None:
            self._carry_out(job)
            del job  # otherwise the memory of its piece would stay allocated until the next piece
        if self._outcome is None:
            self._end()

    def _end(self) -> None:
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None
