# SPDX-License-Identifier: Apache-2.0
"""A rotated log file: NAME, NAME.1 and NAME.2, each of about `limit` bytes; older parts are removed.

Lines that do not fit on a full disk are counted, and the file reports them as soon as there is space again.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

KEPT = 2


class RotatedFile:
    """A log file with rotation, which is created anew; its earlier parts are removed. Not thread-safe.

    Attributes:
        lost: the number of lines that could not be written.
        problem: why the last of them could not be written.
        size: the size of the newest part in bytes.
    """

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._fd: int | None = None
        self._untold = 0
        self.lost = 0
        self.problem = ""
        self.size = 0
        for part in (path, *map(self._part, range(1, KEPT + 1))):
            with contextlib.suppress(OSError):
                part.unlink()

    def write(self, lines: bytes) -> None:
        """Append whole lines; never raises."""
        untold = self._untold
        if untold:
            lines = b"\n(%d lines are missing here: %s)\n" % (untold, self.problem.encode()) + lines
        rest = memoryview(lines)
        try:
            while rest:
                written = os.write(self._descriptor(), rest)
                rest = rest[written:]
                self.size += written
            self._untold = 0
        except OSError as error:
            self.problem = error.strerror or str(error)
            missing = bytes(rest).count(b"\n")
            if untold and len(rest) == len(lines):
                missing -= 2
            elif untold:
                self._untold = 0
            self.lost += missing
            self._untold += missing
        if self.size >= self._limit:
            self._rotate()

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            with contextlib.suppress(OSError):
                os.close(self._fd)
            self._fd = None

    def _descriptor(self) -> int:
        if self._fd is not None and self._is_gone(self._fd):
            self.close()  # another process removed it or moved its directory: create a new one
        if self._fd is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o644)
            self.size = os.fstat(self._fd).st_size
        return self._fd

    def _is_gone(self, fd: int) -> bool:
        """Return whether the file has no name, or the path no file; a file there may be that of another job."""
        try:
            os.stat(self._path)
            return not os.fstat(fd).st_nlink
        except FileNotFoundError:
            return True
        except OSError:  # it may still be possible to write to it
            return False

    def _rotate(self) -> None:
        self.close()
        self.size = 0
        with contextlib.suppress(OSError):  # if this fails, it continues in the same file
            for number in range(KEPT - 1, 0, -1):
                if self._part(number).exists():
                    os.replace(self._part(number), self._part(number + 1))
            os.replace(self._path, self._part(1))

    def _part(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
