# SPDX-License-Identifier: Apache-2.0
"""screen.log: what a job shows, as a stream for a console that writes into a file of bounded size.

A full or lost disk costs the lines that do not fit and nothing else.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

LIMIT = 4 << 20  # bytes before screen.log becomes screen.log.1


class ScreenFile(io.TextIOBase):
    """Text that goes to the end of a file.

    Attributes:
        lost: characters that could not be written.
    """

    encoding = "utf-8"

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self.lost = 0

    def write(self, text: str) -> int:
        """Append; never fails."""
        try:
            self._append(text.encode("utf-8", "backslashreplace"))
        except OSError:
            self.lost += len(text)
        return len(text)

    def isatty(self) -> bool:
        """It is none."""
        return False

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, data)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size >= self._limit:
            os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))


def tail(path: Path, lines: int) -> list[str]:
    """The last lines of a screen file, from the one before it too."""
    found: list[str] = []
    for part in (path, path.with_name(f"{path.name}.1")):
        if not part.is_file():  # a pipe would be waited for
            continue
        try:
            with part.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LIMIT))
                text = file.read(LIMIT).decode("utf-8", "replace")
        except OSError:
            continue
        found = text.splitlines() + found
        if len(found) >= lines:
            break
    return found[-lines:] if lines > 0 else []
