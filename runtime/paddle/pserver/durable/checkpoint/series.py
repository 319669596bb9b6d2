# SPDX-License-Identifier: Apache-2.0
"""The series of one server's checkpoints: full parts and, between them, parts with only the rows that changed.

A part with changed rows names the files that it builds upon. After several such parts, or when their total size
exceeds that of the full part, a new full part is written.

A checkpoint is due every N batches, and is written while training continues. The interval is counted in batches, not
in time, so that in synchronous training all servers copy the same state without coordination. If the disk is full, only
the current checkpoint is lost, never the job or an earlier checkpoint.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.pserver.durable.checkpoint.disk import SpareMemory
from paddle.pserver.durable.checkpoint.folder import clear_unfinished, prune
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.snapshot import Mask, Snapshot, dense_size_of, size_of
from paddle.pserver.durable.checkpoint.writer import Sink
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle_node.contract.classes import dataclass

_log = logging.getLogger(__name__)

_MAX_FILES = 8
_MAX_BACKLOG = 256 << 20
_LARGE_BYTES = 16 << 20  # memory for copies of smaller ones is found at once


@dataclass(frozen=True, slots=True)
class Origin:
    """The writer of a checkpoint part, as recorded in its manifest: the server and the job."""

    job: str
    server: int
    count: int
    configuration: str


class Series:
    """The checkpoint parts of one store. Belongs to the store's thread, which must notify it before each change.

    Attributes:
        parts: the existing parts, oldest first.
    """

    def __init__(
        self, root: Path, origin: Origin, store: Store, keep: int, spare: SpareMemory | None = None
    ) -> None:
        self.parts: list[Manifest] = []
        self._root, self._origin, self._store, self._keep = root, origin, store, keep
        self._spare = spare
        self._changed = self._masks()
        self._taken: dict[str, Mask] = {}
        self._snapshot: Snapshot | None = None
        self._sink: Sink | None = None
        self._manifest: Manifest | None = None
        self._is_whole = True
        clear_unfinished(root, origin.server)

    @property
    def is_busy(self) -> bool:
        """Return whether a part of a checkpoint is being written."""
        return self._sink is not None

    @property
    def is_copying(self) -> bool:
        """Return whether part of the store must still be copied."""
        return self._snapshot is not None

    @property
    def needs_copying(self) -> bool:
        """Return whether `advance` can copy now: a snapshot is unfinished, and the writer's backlog is short."""
        return self._snapshot is not None and self._sink is not None and self._sink.backlog < _MAX_BACKLOG

    def dense(self, elements: Elements) -> None:
        """Copy these dense elements for the snapshot in progress, before they change; blocks until they are copied."""
        if self._snapshot is not None:
            self._snapshot.dense(elements)

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """Copy rows (n,) that are about to change for the snapshot in progress, and record them for the next part."""
        if self._snapshot is not None:
            self._snapshot.rows(name, rows)
        self._changed[name][rows] = True

    def begin(self, engine: Mapping[str, Any]) -> None:
        """Begin a part from the present state. No other part may be in progress.

        Args:
            engine: progress of the trainers, which the manifest stores.
        """
        self._sink = Sink(self._root, self._origin.server, self._spare)
        self._is_whole = self._wants_whole()
        self._taken, self._changed = self._changed, self._masks()
        rows = None if self._is_whole else {name: mask.copy() for name, mask in self._taken.items()}
        since = None if self._is_whole else self._clocks()
        self._snapshot = Snapshot(self._store, self._sink, rows, since)
        o, s = self._origin, self._snapshot
        self._manifest = Manifest(
            o.job, o.server, o.count, o.configuration, s.version, s.numbers, (), dict(engine)
        )

    def advance(self) -> None:
        """Copy a small part of the store; once everything is copied, finish the checkpoint part."""
        if self._snapshot is None or self._sink is None or self._manifest is None:
            return
        self._snapshot.advance()
        if self._snapshot.is_over:
            self._snapshot = None
            self._sink.finish(self._manifest, () if self._is_whole else self.parts[-1].files)

    def outcome(self) -> Manifest | OSError | None:
        """Return the finished part, or the error that prevented it, only once; None if there is nothing new."""
        outcome = None if self._sink is None else self._sink.outcome()
        if outcome is None:
            return None
        self._forget()
        if isinstance(outcome, OSError):
            for name, mask in self._taken.items():
                self._changed[name] |= mask
            return outcome
        self.parts = [*(part for part in self.parts if part.version != outcome.version), outcome]
        try:
            self.parts = prune(self._root, self.parts, self._origin.server, self._keep)
        except OSError as error:
            _log.warning("old checkpoints in %s are not removed yet: %s", self._root, error)
        return outcome

    def abandon(self) -> None:
        """Abandon the checkpoint in progress; complete ones are retained on disk."""
        if self._sink is not None:
            if self._snapshot is not None:
                self._snapshot.cancel()  # otherwise its thread would copy to the end
            self._sink.abandon()
            for name, mask in self._taken.items():
                self._changed[name] |= mask
        self._forget()

    def _forget(self) -> None:
        if self._snapshot is not None:
            self._snapshot.cancel()
        self._snapshot = self._sink = self._manifest = None

    def _wants_whole(self) -> bool:
        if not self.parts or not (self._changed or self._store.growing):
            return True
        clocks = self._clocks()
        if not all(each.table.can_tell_since(clocks[name]) for name, each in self._store.growing.items()):
            return True
        files = self.parts[-1].files
        return len(files) >= _MAX_FILES or sum(file.nbytes for file in files[1:]) > files[0].nbytes

    def _clocks(self) -> dict[str, int]:
        numbers = self.parts[-1].numbers
        return {name: int(numbers[name]["clock"]) for name in self._store.growing}

    def _masks(self) -> dict[str, Mask]:
        return {name: np.zeros(table.share.height, np.bool_) for name, table in self._store.tables.items()}


class Periodic:
    """Writes the periodic checkpoints of one engine. Belongs to the engine's thread.

    Attributes:
        series: must be notified before changes: see `observer.Watch`.
        unsaved: why the last checkpoint that was due was not written, or empty; other threads may read it.
    """

    def __init__(
        self, root: Path, period: int, keep: int, job: str, store: Store, configuration: Configuration
    ) -> None:
        self._root, self._period, self._store = root, period, store
        c = configuration
        origin = Origin(job, c.server, c.num_dense + c.num_sparse, c.to_text())
        self._spare = SpareMemory()
        self.series = Series(root, origin, store, keep, self._spare)
        self._begun = self._skipped = store.version
        self._begun_at = 0.0
        self._whole = 0  # version of the newest one
        self.unsaved = ""
        if dense_size_of(store) >= _LARGE_BYTES:
            self._spare.prepare(dense_size_of(store))

    @property
    def is_copying(self) -> bool:
        """Return whether part of the store must still be copied."""
        return self.series.is_copying

    @property
    def is_behind(self) -> bool:
        """Return whether a checkpoint is in progress or a skipped one is pending. Thread-safe."""
        return self.series.is_busy or (
            self._store.version == self._skipped > max(self._begun, self._store.shrunk_at)
        )

    def fall_due(self) -> bool:
        """Return whether a checkpoint must begin now, at the end of a batch; log each checkpoint that is skipped.

        A skipped checkpoint begins when there is room for it, provided that no batch followed and no table was shrunk.
        After a shrink it would lack the rows that other servers' checkpoints of this batch contain.
        """
        version = self._store.version
        if version == self._begun or version % self._period:
            return False
        if version == self._store.shrunk_at:
            if version != self._skipped:
                self._skip(f"no checkpoint of batch {version}: tables were shrunk before it could begin")
            return False
        if self.series.is_busy and version != self._skipped:
            self._skip(
                f"no checkpoint of batch {version}: the checkpoint of batch {self._begun} is still being written",
                "; use a larger --checkpoint_period for this disk",
            )
        return not self.series.is_busy

    def _skip(self, text: str, remedy: str = "") -> None:
        self._skipped = self._store.version
        self.unsaved = f"{text} in {self._root}"
        _log.warning("%s%s", text, remedy)

    def begin(self, engine: Mapping[str, Any]) -> None:
        """Begin a checkpoint of the present state; the manifest stores `engine`, the engine's state as JSON values."""
        self._begun, self._begun_at = self._store.version, time.monotonic()
        self.series.begin(engine)

    def advance(self) -> bool:
        """Continue a checkpoint in progress; return whether there is one."""
        if not self.series.is_busy:
            return False
        if self.series.needs_copying:
            self.series.advance()
        outcome = self.series.outcome()
        if isinstance(outcome, OSError):
            self._log_failure(outcome)
        elif outcome is not None:
            self._whole = outcome.version
            if outcome.version >= self._skipped:
                self.unsaved = ""
            _log.info(
                "checkpoint of batch %d: %d bytes in %.2f s",
                outcome.version,
                outcome.files[-1].nbytes,
                time.monotonic() - self._begun_at,
            )
        return self.series.is_busy

    def close(self) -> None:
        """Abandon the checkpoint in progress, if any."""
        self._spare.close()
        self.series.abandon()

    def _log_failure(self, error: OSError) -> None:
        try:
            free = f"{shutil.disk_usage(self._root).free} bytes are free"
        except OSError:
            free = "cannot examine the directory"
        self.unsaved = f"no checkpoint of batch {self._begun} in {self._root}: {error.strerror}"
        have = (
            f"the last checkpoint is of batch {self._whole}"
            if self._whole
            else "this job has no checkpoint yet"
        )
        _log.warning(
            "no checkpoint of batch %d in %s: %s; %s, and up to %d are needed. Training continues: "
            "%s, and the next attempt is at batch %d",
            self._begun,
            self._root,
            error.strerror,
            free,
            size_of(self._store),
            have,
            self._begun + self._period,
        )
