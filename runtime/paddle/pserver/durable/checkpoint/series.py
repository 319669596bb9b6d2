# SPDX-License-Identifier: Apache-2.0
"""One server's checkpoints, one after the other: whole ones, and between them only the rows that changed.

A part that holds changed rows names the files it builds upon. After several of those, or when they have grown
larger than the whole, a whole one is written again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.pserver.durable.checkpoint.disk import SpareMemory
from paddle.pserver.durable.checkpoint.folder import clear_unfinished, prune
from paddle.pserver.durable.checkpoint.format import Manifest
from paddle.pserver.durable.checkpoint.snapshot import Mask, Snapshot
from paddle.pserver.durable.checkpoint.writer import Sink
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store

_log = logging.getLogger(__name__)

_MAX_FILES = 8
_MAX_BACKLOG = 256 << 20


@dataclass(frozen=True, slots=True)
class Origin:
    """Who writes checkpoints: see `Manifest`."""

    job: str
    server: int
    count: int
    configuration: str


class Series:
    """The parts of one store. Belongs to the thread that owns the store; is to be told of changes first.

    Attributes:
        parts: those that are there, oldest first.
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
        """Whether a part is under way."""
        return self._sink is not None

    @property
    def is_copying(self) -> bool:
        """Whether something of the store is still to be copied."""
        return self._snapshot is not None

    @property
    def needs_copying(self) -> bool:
        """Whether `advance` has something to do now."""
        return self._snapshot is not None and self._sink is not None and self._sink.backlog < _MAX_BACKLOG

    def dense(self, elements: Elements) -> None:
        """See `Watch.dense`."""
        if self._snapshot is not None:
            self._snapshot.dense(elements)

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """See `Watch.rows`."""
        if self._snapshot is not None:
            self._snapshot.rows(name, rows)
        self._changed[name][rows] = True

    def begin(self, engine: Mapping[str, Any]) -> None:
        """Begin a part of the present moment; none may be under way.

        Args:
            engine: goes into the manifest.
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
        """Copy a little more."""
        if self._snapshot is None or self._sink is None or self._manifest is None:
            return
        self._snapshot.advance()
        if self._snapshot.is_over:
            self._snapshot = None
            self._sink.finish(self._manifest, () if self._is_whole else self.parts[-1].files)

    def outcome(self) -> Manifest | OSError | None:
        """Return, once, the part that was under way, or why it is not there; None: nothing new."""
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
            _log.warning("old checkpoints in %s stay for now: %s", self._root, error)
        return outcome

    def abandon(self) -> None:
        """Give up what is under way; what is there stays."""
        if self._sink is not None:
            if self._snapshot is not None:
                self._snapshot.cancel()  # or its thread would go on to the end
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
        files = self.parts[-1].files
        return len(files) >= _MAX_FILES or sum(file.nbytes for file in files[1:]) > files[0].nbytes

    def _clocks(self) -> dict[str, int]:
        numbers = self.parts[-1].numbers
        return {name: int(numbers[name]["clock"]) for name in self._store.growing}

    def _masks(self) -> dict[str, Mask]:
        return {name: np.zeros(table.share.height, np.bool_) for name, table in self._store.tables.items()}
