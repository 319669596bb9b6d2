# SPDX-License-Identifier: Apache-2.0
"""Keeps the state of a program's server in files that outlive the process: a whole copy, a journal of what came after.

A request is in the journal before it is answered. The next process takes up the copy and carries out the journal's
requests again. When the journal is longer than the state, another copy is made, at once: trainers wait for it. A copy
has its name only when it is whole, and its checksum is compared when it is read.

Without room for that, training goes on without it, and it is tried again later.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from paddle.errors import PserverError
from paddle.pserver.durable.journal import Journal
from paddle.pserver.durable.memory_copy import clear
from paddle.pserver.durable.program_copy import Copy, Sent, newest_copy, read_copy, write_copy
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.program_service import ProgramService
from paddle.pserver.server.served import Served
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message

_log = logging.getLogger(__name__)

_MIN_JOURNAL_BYTES = 64 << 20
_MAX_REQUESTS = 10_000  # or the next process would need long to carry them out again
_RETRY_S = 60.0
_GONE = "gone"


class ProgramKeeper:
    """The keeper of one engine: see `keeping.Keeper`. Belongs to the engine's thread."""

    def __init__(
        self,
        folder: Path,
        program: Served,
        *,
        journal_bytes: int = _MIN_JOURNAL_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare.

        Args:
            folder: where the state is kept; what is there is taken up by `recover`.
            program: what is kept.
            journal_bytes: how long a journal may grow at least.
            clock: monotonic seconds.
        """
        self._folder, self._program, self._clock = folder, program, clock
        self._journal: Journal | None = Journal(folder)
        self._least = self._limit = journal_bytes
        self._engine: Engine | None = None
        self._service: ProgramService | None = None
        self._copied: Copy | None = None
        self._replaying = False
        self._retry_at = 0.0

    def recover(self, engine: Engine, service: ProgramService) -> None:
        """Bring an engine that was just made where an earlier process was; the first one begins to keep its state.

        Raises:
            PaddleError: an earlier process did not leave what is needed.
        """
        gone = self._folder / _GONE
        if gone.exists():
            raise PserverError(gone.read_text(encoding="utf-8"))
        self._engine, self._service = engine, service
        copy = newest_copy(self._folder)
        if copy is None:
            self._try(self._copy)
            return
        started = time.monotonic()
        for kept in read_copy(copy):
            if isinstance(kept, dict):
                service.go_on(kept["training"])
                engine.take_up_sessions(kept)
            elif isinstance(kept, Sent):
                service.take_up_sent(kept.trainer, kept.sections)
            else:
                self._program.take_up(*kept)
        self._note(copy)
        self._replay(engine, copy.sequence)
        _log.info("took up the state of step %d in %.2f s", engine.version, time.monotonic() - started)

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """See `Keeper`; a program has no store."""
        return False

    def record(self, message: Message) -> None:
        """See `Keeper`."""
        if self._replaying or self._engine is None:
            return
        if self._journal is None:
            self._try_again()
            return
        journal, copied = self._journal, self._copied
        self._try(lambda: journal.append(message))
        if not self._is_kept:
            return
        since = journal.sequence - (0 if copied is None else copied.sequence)
        if self._engine.is_quiet and (journal.nbytes > self._limit or since > _MAX_REQUESTS):
            self._try(self._copy)

    def background(self) -> float:
        """See `Keeper`."""
        return math.inf

    def close(self) -> None:
        """Close files; what is there stays."""
        if self._journal is not None:
            self._journal.close()

    @property
    def _is_kept(self) -> bool:
        return self._journal is not None

    def _replay(self, engine: Engine, sequence: int) -> None:
        assert self._journal is not None
        self._replaying = True
        for request in self._journal.read(sequence):
            engine.handle(b"", request)
        engine.miss_everyone()
        self._replaying = False

    def _copy(self) -> None:
        """Copy the state as it is; the journal begins anew.

        Raises:
            OSError: there is no room.
        """
        assert self._journal is not None
        assert self._engine is not None
        assert self._service is not None
        sequence = self._journal.sequence
        self._journal.rotate()
        sent = (Sent(trainer, tuple(sections)) for trainer, sections in self._service.sent())
        self._note(write_copy(self._folder, sequence, self._program.kept(), sent, self._engine.facts()))
        self._journal.drop(sequence)

    def _note(self, copy: Copy) -> None:
        self._copied, self._limit = copy, max(self._least, copy.nbytes)

    def _try(self, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Go on without; whoever is started after us must know that nothing is here."""
        text = (
            f"the state of this server could not be kept in {self._folder} ({error.strerror}): killed now, it would be "
            "lost"
        )
        _log.warning("%s; training goes on, the next try is in %.0f s", text, _RETRY_S)
        self.close()
        self._journal = self._copied = None
        self._retry_at = self._clock() + _RETRY_S
        try:
            clear(self._folder)
            (self._folder / _GONE).write_text(text, encoding="utf-8")
        except OSError as again:
            # the next process then knows no trainer, and refuses whoever comes with a session of before
            _log.warning("%s: %s", self._folder, again)

    def _try_again(self) -> None:
        assert self._engine is not None
        if self._clock() < self._retry_at or not self._engine.is_quiet:
            return
        self._retry_at = self._clock() + _RETRY_S
        if shutil.disk_usage(self._folder).free < 2 * self._limit:
            return
        self._journal = Journal(self._folder)
        self._try(self._copy)
        if self._is_kept:
            (self._folder / _GONE).unlink(missing_ok=True)
