# SPDX-License-Identifier: Apache-2.0
"""Saves the state of one server in memory that outlives its process: a full copy, and a journal of later requests.

A request is written to the journal before it is answered. The server's next process loads the newest complete copy and
replays the journal; its state is then bitwise equal to that of the previous process at its last answer. When the
journal is as large as the state, a new copy is made while training continues.

If there is not enough room, training continues without a copy, and copying is retried later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.durable.checkpoint.restore import load
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.durable.checkpoint.snapshot import size_of
from paddle.pserver.durable.journal import MIN_JOURNAL_BYTES, StateFolder
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message

_SEQUENCE = "sequence"


class Owner(Protocol):
    """The interface of the engine whose state is saved."""

    @property
    def is_quiet(self) -> bool:
        """Return whether `facts` and the store currently form the complete state."""

    def facts(self) -> dict[str, Any]:
        """Return the trainers' progress and their requests so far, as JSON values."""

    def take_up(self, configuration: Configuration, store: Store, facts: dict[str, Any]) -> None:
        """Resume from the configuration, store and `facts` that an earlier process saved."""


class SavedState:
    """The saved state of one engine. Belongs to the engine's thread; `adopt` returns the observer of changes."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = StateFolder(folder, clock)
        self._series: Series | None = None
        self._store: Store | None = None
        self._copied = 0  # requests that the copy in progress includes
        self._limit = MIN_JOURNAL_BYTES

    def recover(self, owner: Owner, watch: Callable[[Store, Configuration], None]) -> list[Message]:
        """Load the last full copy into a new engine; return the requests that the engine must execute again.

        Args:
            watch: function that is called with the store before it changes.

        Raises:
            PserverError: an earlier process could not save its state.
        """
        self._folder.check()
        assert self._folder.journal is not None
        sequence = 0
        if any(self._folder.path.glob("v*")):
            part = newest(self._folder.path).parts[0]
            configuration = Configuration.from_text(part.configuration)
            store = Store(configuration.share(), configuration.optimizer)
            load(store, self._folder.path, [part])
            watch(store, configuration)
            owner.take_up(configuration, store, dict(part.engine))
            assert self._series is not None
            self._series.parts.append(part)
            sequence = self._copied = part.engine[_SEQUENCE]
        return list(self._folder.journal.read(sequence))

    def adopt(self, store: Store, configuration: Configuration) -> Series:
        """Start saving a store; return the observer that must be notified before each change: see `observer.Watch`."""
        origin = Origin("", 0, 1, configuration.to_text())
        self._store = store
        self._series = Series(self._folder.path, origin, store, keep=1)
        return self._series

    def record(self, message: Message, owner: Owner, *, copy: bool = False, may_copy: bool = True) -> None:
        """Append an executed request to the journal; start a new full copy if `copy` is set or the journal is long."""
        if self._folder.journal is None:
            self._try_again(owner)
            return
        try:
            self._folder.journal.append(message)
        except OSError as error:
            self._give_up(error)
            return
        is_due = copy or self._folder.is_long(self._limit, self._copied)
        if is_due and may_copy and owner.is_quiet and not self._is_busy():
            self.copy(owner)

    def copy(self, owner: Owner) -> None:
        """Begin a full copy of the present state; the engine must be quiet (see `Owner.is_quiet`)."""
        assert self._series is not None
        assert self._folder.journal is not None
        self._copied = self._folder.journal.sequence
        if self._store is not None:
            self._limit = max(MIN_JOURNAL_BYTES, size_of(self._store))
        self._folder.journal.rotate()
        self._series.begin({**owner.facts(), _SEQUENCE: self._copied})

    def advance(self) -> bool:
        """Continue the copy in progress by one part; return False if no copy is in progress."""
        if self._series is None or not self._series.is_busy:
            return False
        self._series.advance()
        outcome = self._series.outcome()
        if isinstance(outcome, OSError):
            self._give_up(outcome)
        elif outcome is not None:
            self._folder.copied(self._copied)
        return True

    def give_way(self) -> None:
        """Abandon the copy in progress, so that another one can start; a growing table supports only one at a time."""
        if self._store is not None and self._store.growing and self._series is not None:
            self._series.abandon()

    def _is_busy(self) -> bool:
        return self._series is not None and self._series.is_busy

    def _give_up(self, error: OSError) -> None:
        if self._series is not None:
            self._series.abandon()
            self._series.parts.clear()
        self._folder.give_up(error)

    def _try_again(self, owner: Owner) -> None:
        if self._store is None or not owner.is_quiet:
            return
        if self._folder.try_again(size_of(self._store) + self._limit):
            self.copy(owner)
