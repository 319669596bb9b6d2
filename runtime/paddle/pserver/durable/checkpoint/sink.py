# SPDX-License-Identifier: Apache-2.0
"""Where the pieces of a snapshot go: into a part at once, or by way of a thread that may take its time.

A sink never raises: what the disk refuses is its outcome, for whoever asks at the end.
"""

from __future__ import annotations

import errno
import os
import queue
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from paddle.pserver.durable.checkpoint.manifest import DataFile, Manifest
from paddle.pserver.durable.checkpoint.part import PartWriter
from paddle.pserver.durable.checkpoint.piece import Piece
from paddle.pserver.durable.checkpoint.spare import SpareMemory
from paddle.pserver.durable.checkpoint.yielding import give_way

Outcome: TypeAlias = Manifest | OSError | None
Job: TypeAlias = Callable[[PartWriter], None]
"""Writes pieces; runs in the thread that has the part."""
_JOIN_S = 5.0


class Sink(Protocol):
    """One part under way."""

    @property
    def has_thread(self) -> bool:
        """Whether `defer` may be called."""

    @property
    def nbytes(self) -> int:
        """Bytes that were given so far."""

    @property
    def backlog(self) -> int:
        """Bytes that were given and are not written."""

    def give(self, piece: Piece) -> None:
        """Take a piece; its arrays need not hold after the call."""

    def defer(self, job: Job) -> None:
        """Have the thread of the part do something after what came before; after a failure it is left out."""

    def finish(self, manifest: Manifest, earlier: Sequence[DataFile]) -> None:
        """Publish what came: see `PartWriter.publish`."""

    def outcome(self) -> Outcome:
        """Return the manifest once it is published, or why it will not be; None: not yet."""

    def abandon(self) -> None:
        """Leave nothing behind."""


class DirectSink:
    """Writes in the caller's thread: for memory, which does not keep one waiting."""

    has_thread = False

    def __init__(self, root: Path, server: int) -> None:
        self.nbytes, self.backlog = 0, 0
        self._outcome: Outcome = None
        self._writer: PartWriter | None = None
        try:
            self._writer = PartWriter(root, server, durable=False)
        except OSError as error:
            self._outcome = error

    def give(self, piece: Piece) -> None:
        """See `Sink`."""
        self.nbytes += piece.nbytes
        if self._writer is not None:
            try:
                self._writer.write(piece)
            except OSError as error:
                self._fail(error)

    def defer(self, job: Job) -> None:
        """See `Sink`: there is no thread."""
        raise RuntimeError("a part that is written at once has no thread")

    def finish(self, manifest: Manifest, earlier: Sequence[DataFile]) -> None:
        """See `Sink`."""
        if self._writer is not None:
            try:
                self._outcome = self._writer.publish(manifest, earlier)
            except OSError as error:
                self._fail(error)

    def outcome(self) -> Outcome:
        """See `Sink`."""
        return self._outcome

    def abandon(self) -> None:
        """See `Sink`."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def _fail(self, error: OSError) -> None:
        self.abandon()
        self._outcome = error


class _Finish(NamedTuple):
    """The last item of a thread's work."""

    manifest: Manifest
    earlier: Sequence[DataFile]


class ThreadSink:
    """Writes, checks and syncs in a thread of its own."""

    has_thread = True

    def __init__(self, root: Path, server: int, spare: SpareMemory) -> None:
        """Begin; `spare`: where what is given waits."""
        self.nbytes = 0
        self._spare = spare
        self._written = 0
        self._outcome: Outcome = None
        self._work: queue.SimpleQueue[Piece | Job | _Finish | None] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, args=(root, server), name=f"checkpoint-{server}", daemon=True
        )
        self._thread.start()

    @property
    def backlog(self) -> int:
        """See `Sink`."""
        return self.nbytes - self._written if self._outcome is None else 0

    def give(self, piece: Piece) -> None:
        """See `Sink`."""
        self.nbytes += piece.nbytes
        if self._outcome is None:
            own = {n: a if a.base is None else self._spare.copy(a) for n, a in piece.arrays.items()}
            self._work.put(Piece(piece.parameter, piece.place, own))

    def defer(self, job: Job) -> None:
        """See `Sink`."""
        if self._outcome is None:
            self._work.put(job)

    def finish(self, manifest: Manifest, earlier: Sequence[DataFile]) -> None:
        """See `Sink`."""
        self._work.put(_Finish(manifest, earlier))

    def outcome(self) -> Outcome:
        """See `Sink`."""
        return self._outcome

    def abandon(self) -> None:
        """See `Sink`; waits 5 s at most."""
        self._work.put(None)
        self._thread.join(_JOIN_S)

    def _run(self, root: Path, server: int) -> None:
        writer: PartWriter | None = None
        try:
            writer = PartWriter(root, server, durable=True)
            give_way()
            while (item := self._work.get()) is not None:
                if isinstance(item, Piece):
                    writer.write(item)
                    self._written += item.nbytes
                    del item  # or its memory would be ours until something else comes
                elif isinstance(item, _Finish):
                    self._outcome = writer.publish(*item)
                    return
                else:
                    item(writer)
            writer.abandon()
        except (OSError, MemoryError) as error:
            if writer is not None:
                writer.abandon()
            no_memory = OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
            self._outcome = error if isinstance(error, OSError) else no_memory
