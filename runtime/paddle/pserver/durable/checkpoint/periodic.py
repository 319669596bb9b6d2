# SPDX-License-Identifier: Apache-2.0
"""A checkpoint every so many batches, written while training goes on.

By batches, not by time: in synchronous training all servers then copy the same moment without asking each other.
A disk that is full costs a checkpoint, never the job and never an earlier checkpoint.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paddle.pserver.durable.checkpoint.disk import SpareMemory
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.durable.checkpoint.snapshot import dense_size_of, size_of
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration

_log = logging.getLogger(__name__)

_LARGE_BYTES = 16 << 20  # memory for copies of smaller ones is found at once


class Periodic:
    """The checkpoints of one engine; belongs to its thread.

    Attributes:
        series: is to hear of changes first: see `observer.Watch`.
        unsaved: why the newest checkpoint that was due is not there, or empty; other threads may read it.
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
        """Whether something of the store is still to be copied."""
        return self.series.is_copying

    @property
    def is_behind(self) -> bool:
        """Whether one is under way, or waits to be made up for; any thread may ask."""
        return self.series.is_busy or self._store.version == self._skipped > self._begun

    def fall_due(self) -> bool:
        """Return whether a checkpoint is to begin now, if the store is between two batches; tell if one is left out.

        One that was left out begins when there is room for it, if training has not gone on, as at its end.
        """
        version = self._store.version
        if version == self._begun or version % self._period:
            return False
        if self.series.is_busy and version != self._skipped:
            self._skipped = version
            text = f"no checkpoint of batch {version}: that of batch {self._begun} is still being written"
            self.unsaved = f"{text} in {self._root}"
            _log.warning("%s; a larger --checkpoint_period suits this disk", text)
        return not self.series.is_busy

    def begin(self, engine: Mapping[str, Any]) -> None:
        """Begin a checkpoint of the present moment."""
        self._begun, self._begun_at = self._store.version, time.monotonic()
        self.series.begin(engine)

    def advance(self) -> bool:
        """Go on with a checkpoint under way; return whether there is one."""
        if not self.series.is_busy:
            return False
        if self.series.needs_copying:
            self.series.advance()
        outcome = self.series.outcome()
        if isinstance(outcome, OSError):
            self._tell(outcome)
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
        """Give up a checkpoint under way."""
        self._spare.close()
        self.series.abandon()

    def _tell(self, error: OSError) -> None:
        try:
            free = f"{shutil.disk_usage(self._root).free} bytes are free"
        except OSError:
            free = "the folder cannot be looked at"
        self.unsaved = f"no checkpoint of batch {self._begun} in {self._root}: {error.strerror}"
        have = f"the last one is of batch {self._whole}" if self._whole else "there is none of this job yet"
        _log.warning(
            "no checkpoint of batch %d in %s: %s; %s, up to %d are needed; training goes on, %s, "
            "the next try is at batch %d",
            self._begun,
            self._root,
            error.strerror,
            free,
            size_of(self._store),
            have,
            self._begun + self._period,
        )
