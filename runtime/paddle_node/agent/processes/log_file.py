# SPDX-License-Identifier: Apache-2.0
"""A log file that survives a full disk: lost bytes are counted and reported, and the job continues.

If the file is removed or renamed, writing continues in a new file of the same name. A file that exceeds its limit is
renamed to NAME.1, the previous one to NAME.2, and the former NAME.2 is removed, counted and reported. Lines are not
split, unless they are longer than LINE_ROOM. Several writers can append to one file: each follows the others'
rotations. New content can be captured for a while, in bounded memory.
"""

from __future__ import annotations

import os
import time
from typing import Callable, List, Optional

CHECK_S = 1.0
TELL_S = 10.0
KEPT = 2
LINE_ROOM = 1 << 20


class LogFile:
    """A log file in append mode, which is rotated at a size limit and counts the bytes that cannot be written.

    Args:
        path: the path of the file; created if it does not exist.
        name: the name that users know the file by.
        report: function that is called with a message for the user; lose: with a message about lost output.
        written: function that is called after every write, and before and after files are renamed.
        limit: the size in bytes at which the file is rotated; 0 means never.
    """

    def __init__(
        self,
        path: str,
        name: str,
        report: Callable[[str], None],
        lose: Callable[[str], None],
        written: Callable[[bool], None],
        limit: int = 0,
    ) -> None:
        self._path = path
        self._name = name
        self._report = report
        self._lose = lose
        self._written = written
        self._limit = limit
        self._lost = 0
        self._dropped = 0
        self._reported_at = 0.0
        self._checked_at = time.monotonic()
        self._taps: List[Tap] = []
        self._fd: Optional[int] = self._open()

    def tap(self, limit: int) -> Tap:
        """Capture the data written until `Tap.close`; at most `limit` bytes are saved."""
        tap = Tap(limit, self._taps.remove)
        self._taps.append(tap)
        return tap

    def write(self, data: bytes) -> None:
        """Append data, and pass it to the taps; bytes that cannot be written are dropped and counted."""
        for tap in self._taps:
            tap.take(data)
        self._reopen_if_moved()
        if self._limit and self._fd is not None:
            room = self._limit - os.fstat(self._fd).st_size
            if len(data) > room:
                end = data.rfind(b"\n", 0, max(0, room)) + 1 or data.find(b"\n") + 1
                if end or room < -LINE_ROOM:
                    self._append(data[:end])
                    self._rotate()
                    data = data[end:]
        self._append(data)
        self._written(False)

    def close(self) -> None:
        """Close the file and report the total number of lost bytes."""
        if self._lost:
            self._lose("%d bytes of output are missing in %s" % (self._lost, self._name))
        if self._dropped:
            self._report(
                "the oldest %d bytes of %s were dropped; its last parts are %s.%d to %s"
                % (self._dropped, self._name, self._name, KEPT, self._name)
            )
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _append(self, data: bytes) -> None:
        view = memoryview(data)
        problem = "cannot open it"
        try:
            while view and self._fd is not None:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            problem = error.strerror or str(error)
        if view:
            self._lost += len(view)
            self._complain(problem)

    def _rotate(self) -> None:
        """Start a new file and rename the older ones, unless another writer has already done so."""
        if self._fd is None or not self._is_mine(self._fd):
            self._checked_at = 0.0
            self._reopen_if_moved()
            return
        self._written(True)
        last = "%s.%d" % (self._path, KEPT)
        try:
            size = os.stat(last, follow_symlinks=False).st_size
        except OSError:
            size = 0
        try:
            for number in range(KEPT - 1, 0, -1):
                if os.path.lexists("%s.%d" % (self._path, number)):
                    os.replace("%s.%d" % (self._path, number), "%s.%d" % (self._path, number + 1))
            os.replace(self._path, self._path + ".1")
        except OSError as error:
            self._complain("cannot rotate it: %s" % (error.strerror or error))
            return
        if size and not self._dropped:
            self._report("%s keeps growing; the oldest of its %d parts was dropped" % (self._name, KEPT + 1))
        self._dropped += size
        os.close(self._fd)
        self._fd = self._open()
        self._written(True)

    def _open(self) -> Optional[int]:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK  # not a named pipe
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
            if self._is_mine(self._fd):
                return
            if not self._is_mine(self._fd, ".1"):
                self._report("%s was removed or replaced; created a new one" % self._name)
            os.close(self._fd)
        self._fd = self._open()

    def _is_mine(self, fd: int, suffix: str = "") -> bool:
        """Return whether the file of this name is the open one."""
        mine = os.fstat(fd)
        try:
            there = os.stat(self._path + suffix, follow_symlinks=False)
        except OSError:
            return False
        return (there.st_dev, there.st_ino) == (mine.st_dev, mine.st_ino)

    def _complain(self, problem: str) -> None:
        now = time.monotonic()
        if self._reported_at == 0.0 or now - self._reported_at > TELL_S:
            self._reported_at = now
            self._report(
                "%s: %s; %d bytes of output lost so far, the job continues"
                % (self._name, problem, self._lost)
            )


class Tap:
    """A capture of the data that is written to a log, up to a limit, until it is closed."""

    def __init__(self, limit: int, remove: Callable[[Tap], None]) -> None:
        self.data = b""
        self._limit = limit
        self._remove = remove

    def take(self, data: bytes) -> None:
        """Capture data, up to the limit."""
        self.data += data[: self._limit - len(self.data)]

    def close(self) -> bytes:
        """Stop capturing, and return the captured data."""
        self._remove(self)
        return self.data
