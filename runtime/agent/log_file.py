# SPDX-License-Identifier: Apache-2.0
"""A log file that takes whatever comes: a full disk costs bytes, counted and told, and never the job.

When somebody removes or renames the file, writing goes on in a new one of the same name.
"""

from __future__ import annotations

import os
import time
from typing import Callable, Optional

CHECK_S = 1.0
TELL_S = 10.0


class LogFile:
    """Appends to one file.

    Args:
        path: where it is; made if it is not there.
        name: what the user calls it.
        tell: takes a sentence for the user.
        written: called after every write.
    """

    def __init__(
        self, path: str, name: str, tell: Callable[[str], None], written: Callable[[], None]
    ) -> None:
        self._path = path
        self._name = name
        self._tell = tell
        self._written = written
        self._lost = 0
        self._told_at = 0.0
        self._checked_at = time.monotonic()
        self._fd: Optional[int] = self._open()

    def write(self, data: bytes) -> None:
        """Append; what does not fit is lost and counted."""
        self._reopen_if_moved()
        view = memoryview(data)
        try:
            while view and self._fd is not None:
                view = view[os.write(self._fd, view) :]
            problem = "it cannot be opened"
        except OSError as error:
            problem = error.strerror or str(error)
        if view:
            self._lost += len(view)
            self._complain(problem)
        self._written()

    def close(self) -> None:
        """Close it and tell the sum of what was lost."""
        if self._lost:
            self._tell("%d bytes of output are missing in %s" % (self._lost, self._name))
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self) -> Optional[int]:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK  # no named pipe
            return os.open(self._path, flags, 0o644)
        except OSError as error:
            self._complain(error.strerror or str(error))
            return None

    def _reopen_if_moved(self) -> None:
        now = time.monotonic()
        if now - self._checked_at < CHECK_S:
            return
        self._checked_at = now
        if self._fd is not None:
            mine = os.fstat(self._fd)
            try:
                there = os.stat(self._path, follow_symlinks=False)
                if (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino):
                    return
            except OSError:
                pass
            os.close(self._fd)
            self._tell("%s was removed or replaced; a new one was begun" % self._name)
        self._fd = self._open()

    def _complain(self, problem: str) -> None:
        now = time.monotonic()
        if self._told_at == 0.0 or now - self._told_at > TELL_S:
            self._told_at = now
            self._tell(
                "%s: %s; %d bytes of output lost so far, the job goes on" % (self._name, problem, self._lost)
            )
