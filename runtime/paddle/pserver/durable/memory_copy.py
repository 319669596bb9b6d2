# SPDX-License-Identifier: Apache-2.0
"""The state of one server in memory that outlives its process: a whole copy, and a journal of what came after it.

A request is in the journal before it is answered. Another process of the same server takes the newest whole
copy and carries out the journal's requests again: it is then where the first one was when it answered last,
bit for bit. When the journal has grown as large as the state, another copy is made while training goes on.

Without room for that, training goes on without it, and it is tried again later.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paddle.errors import PserverError
from paddle.pserver.durable.checkpoint.folder import newest
from paddle.pserver.durable.checkpoint.restore import load
from paddle.pserver.durable.checkpoint.series import Origin, Series
from paddle.pserver.durable.checkpoint.snapshot import size_of
from paddle.pserver.durable.journal import Journal
from paddle.pserver.store.observer import Elements
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message

_log = logging.getLogger(__name__)

_MIN_JOURNAL_BYTES = 64 << 20
_MAX_REQUESTS = 10_000  # or the next process would need long to carry them out again
_RETRY_S = 60.0
_GONE = "gone"
_SEQUENCE = "sequence"


class Owner(Protocol):
    """The engine whose state it is."""

    @property
    def is_quiet(self) -> bool:
        """Whether `facts` and the store together are the whole state."""

    def facts(self) -> dict[str, Any]:
        """Return who did what so far, as JSON."""

    def take_up(self, configuration: Configuration, store: Store, facts: dict[str, Any]) -> None:
        """Go on where another process was."""


class Kept:
    """The state of one engine. Belongs to the engine's thread; hears of changes first: see `watch.Watch`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self._clock = folder, clock
        self._journal: Journal | None = Journal(folder)
        self._series: Series | None = None
        self._store: Store | None = None
        self._copied = 0  # requests that the copy under way holds
        self._limit = _MIN_JOURNAL_BYTES
        self._retry_at = 0.0

    @property
    def is_lost(self) -> bool:
        """Whether an earlier process could not keep its state to the end."""
        return (self._folder / _GONE).exists()

    def recover(self, owner: Owner, watch: Callable[[Store, Configuration], None]) -> list[Message]:
        """Give a new engine the last whole copy; return the requests it must carry out again.

        Args:
            watch: called with the store before anything of it changes.

        Raises:
            PserverError: an earlier process could not keep its state.
        """
        if self.is_lost:
            raise PserverError((self._folder / _GONE).read_text(encoding="utf-8"))
        assert self._journal is not None
        sequence = 0
        if any(self._folder.glob("v*")):
            part = newest(self._folder).parts[0]
            configuration = Configuration.from_text(part.configuration)
            store = Store(configuration.share(), configuration.optimizer)
            load(store, self._folder, [part])
            watch(store, configuration)
            owner.take_up(configuration, store, dict(part.engine))
            assert self._series is not None
            self._series.parts.append(part)
            sequence = self._copied = part.engine[_SEQUENCE]
        return list(self._journal.read(sequence))

    def adopt(self, store: Store, configuration: Configuration) -> None:
        """Take a store into care."""
        origin = Origin("", 0, 1, configuration.to_text())
        self._store = store
        self._series = Series(self._folder, origin, store, keep=1)

    def record(self, message: Message, owner: Owner, *, copy: bool = False, may_copy: bool = True) -> None:
        """Note a request; begin another copy if it is asked for, or the journal is long."""
        if self._journal is None:
            self._try_again(owner)
            return
        try:
            self._journal.append(message)
        except OSError as error:
            self._give_up(error)
            return
        is_long = self._journal.nbytes > self._limit or self._journal.sequence - self._copied > _MAX_REQUESTS
        is_due = copy or is_long
        if is_due and may_copy and owner.is_quiet and not self._is_busy():
            self.copy(owner)

    def copy(self, owner: Owner) -> None:
        """Begin a copy of the present state; the engine must be quiet."""
        assert self._series is not None
        assert self._journal is not None
        self._copied = self._journal.sequence
        if self._store is not None:
            self._limit = max(_MIN_JOURNAL_BYTES, size_of(self._store))
        self._journal.rotate()
        self._series.begin({**owner.facts(), _SEQUENCE: self._copied})

    def advance(self) -> bool:
        """Go on with a copy under way; return whether there is one."""
        if self._series is None or not self._series.is_busy:
            return False
        self._series.advance()
        outcome = self._series.outcome()
        if isinstance(outcome, OSError):
            self._give_up(outcome)
        elif outcome is not None and self._journal is not None:
            self._journal.drop(self._copied)
            (self._folder / _GONE).unlink(missing_ok=True)
        return True

    def give_way(self) -> None:
        """Let a copy under way be: somebody else wants to copy, and a growing table has one copy at a time."""
        if self._store is not None and self._store.growing and self._series is not None:
            self._series.abandon()

    def dense(self, elements: Elements) -> None:
        """See `Watch.dense`."""
        if self._series is not None:
            self._series.dense(elements)

    def rows(self, name: str, rows: npt.NDArray[np.int64]) -> None:
        """See `Watch.rows`."""
        if self._series is not None:
            self._series.rows(name, rows)

    def _is_busy(self) -> bool:
        return self._series is not None and self._series.is_busy

    def _give_up(self, error: OSError) -> None:
        """Go on without; whoever is started after us must know that nothing is here."""
        free = shutil.disk_usage(self._folder).free
        text = (
            f"the state of this server could not be kept in {self._folder} ({error.strerror}; {free} bytes are free): "
            "killed now, it would be lost"
        )
        _log.warning("%s; training goes on, the next try is in %.0f s", text, _RETRY_S)
        if self._journal is not None:
            self._journal.close()
        if self._series is not None:
            self._series.abandon()
            self._series.parts.clear()
        self._journal = None
        self._retry_at = self._clock() + _RETRY_S
        try:
            clear(self._folder)
            (self._folder / _GONE).write_text(text, encoding="utf-8")
        except OSError as again:
            # the next process then knows no trainer, and refuses whoever comes with a session of before
            _log.warning("%s: %s", self._folder, again)

    def _try_again(self, owner: Owner) -> None:
        if self._clock() < self._retry_at or not owner.is_quiet or self._store is None:
            return
        needed = size_of(self._store) + self._limit
        if shutil.disk_usage(self._folder).free < needed:
            self._retry_at = self._clock() + _RETRY_S
            return
        self._journal = Journal(self._folder)
        self.copy(owner)


def clear(folder: Path) -> None:
    """Remove all state below a folder."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            os.unlink(path)
