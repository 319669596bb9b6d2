# SPDX-License-Identifier: Apache-2.0
"""Records which cached files were verified since the machine started, so that they are not read again.

A file counts as unchanged while its inode, size, mtime and ctime are the same. A file is settled if it was unchanged
when all processes that could write to it had exited. Removing its name from the job's directory changes its ctime, but
it still counts as unchanged. A restart of the machine invalidates the record, because after a crash the disk may differ
from what was in memory.
"""

from __future__ import annotations

import contextlib
import os
from typing import Dict

from paddle_node.linux import proc

_FORM = "verified-1"
_SETTLED = " settled"


class Verified:
    """The record of one cache; `save` stores it for the next job.

    Args:
        path: a file in a folder that only this user can write to.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._head = ""
        self._marks: Dict[str, str] = {}
        self._changed = False

    def load(self) -> None:
        """Load the record of earlier jobs; a record that is unreadable or from an earlier boot counts as empty."""
        self._head = "%s %s" % (_FORM, proc.boot_id())
        self._marks, self._changed = {}, False
        with contextlib.suppress(OSError, ValueError):
            with open(self._path, encoding="ascii") as file:
                head, *lines = file.read().splitlines()
            if head == self._head and " " in head.strip():
                self._marks = dict(line.split(" ", 1) for line in lines)

    def holds(self, digest: str, status: os.stat_result) -> bool:
        """Return whether this file was verified and has not changed since."""
        known, now = self._marks.get(digest, ""), _mark(status)
        if not self.is_settled(digest):
            return known == now
        known = known[: -len(_SETTLED)]
        # its ctime, the last item, changed with the number of its links
        return known == now or (status.st_nlink == 1 and known.rpartition(" ")[0] == now.rpartition(" ")[0])

    def is_settled(self, digest: str) -> bool:
        """Return whether this file was unchanged when all processes that could write to it had exited."""
        return self._marks.get(digest, "").endswith(_SETTLED)

    def note(self, digest: str, status: os.stat_result, settled: bool = False) -> None:
        """Record that this file matches this digest."""
        self._marks[digest] = _mark(status) + (_SETTLED if settled else "")
        self._changed = True

    def forget(self, digest: str) -> None:
        """Remove the record of a removed file."""
        if self._marks.pop(digest, None) is not None:
            self._changed = True

    def save(self) -> None:
        """Save the record; a failure only slows down the next job."""
        if not self._changed:
            return
        aside = "%s.%s" % (self._path, os.urandom(8).hex())
        with contextlib.suppress(OSError):
            fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(fd, "w", encoding="ascii") as file:
                    file.write(self._head + "\n")
                    file.writelines("%s %s\n" % item for item in self._marks.items())
                os.rename(aside, self._path)
            except OSError:
                os.unlink(aside)
        self._changed = False


def _mark(status: os.stat_result) -> str:
    return "%d %d %d %d" % (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
