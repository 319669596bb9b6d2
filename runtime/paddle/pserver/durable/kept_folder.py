# SPDX-License-Identifier: Apache-2.0
"""The folder in which one server's state outlives its process: a whole copy, and a journal of what came after it.

Without room for that, training goes on without it, and it is tried again later.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

from paddle.errors import PserverError
from paddle.pserver.durable.journal import Journal

_log = logging.getLogger(__name__)

MIN_JOURNAL_BYTES = 64 << 20
_MAX_REQUESTS = 10_000  # in a journal, or the next process would need long to carry them out again
_RETRY_S = 60.0
_GONE = "gone"


class KeptFolder:
    """The folder of one server, and its journal.

    Attributes:
        journal: None without room.
    """

    def __init__(self, path: Path, clock: Callable[[], float]) -> None:
        """Open or begin; `clock`: monotonic seconds."""
        self.path = path
        self.journal: Journal | None = Journal(path)
        self._clock = clock
        self._retry_at = 0.0

    def check(self) -> None:
        """Look whether an earlier process kept its state to the end.

        Raises:
            PserverError: it could not.
        """
        gone = self.path / _GONE
        if gone.exists():
            raise PserverError(gone.read_text(encoding="utf-8"))

    def is_long(self, limit: int, sequence: int) -> bool:
        """Whether the journal is so long that another copy is due.

        Args:
            limit: bytes.
            sequence: number of the last request that the last copy holds.
        """
        journal = self.journal
        return journal is not None and (journal.nbytes > limit or journal.sequence - sequence > _MAX_REQUESTS)

    def copied(self, sequence: int) -> None:
        """Drop what another whole copy holds: requests up to and including number `sequence`."""
        if self.journal is not None:
            self.journal.drop(sequence)
            (self.path / _GONE).unlink(missing_ok=True)

    def give_up(self, error: OSError) -> None:
        """Go on without; whoever is started after us must know that nothing is here."""
        free = shutil.disk_usage(self.path).free
        text = (
            f"the state of this server could not be kept in {self.path} ({error.strerror}; {free} bytes are free): "
            "killed now, it would be lost"
        )
        _log.warning("%s; training goes on, the next try is in %.0f s", text, _RETRY_S)
        self.close()
        self.journal = None
        self._retry_at = self._clock() + _RETRY_S
        try:
            for path in self.path.iterdir():
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()
            (self.path / _GONE).write_text(text, encoding="utf-8")
        except OSError as again:
            # the next process then knows no trainer, and refuses whoever comes with a session of before
            _log.warning("%s: %s", self.path, again)

    def try_again(self, nbytes: int) -> bool:
        """Begin another journal if it is time and there is room for so many bytes; return whether it did."""
        if self._clock() < self._retry_at:
            return False
        self._retry_at = self._clock() + _RETRY_S
        if shutil.disk_usage(self.path).free < nbytes:
            return False
        self.journal = Journal(self.path)
        return True

    def close(self) -> None:
        """Close files; what is there stays."""
        if self.journal is not None:
            self.journal.close()
