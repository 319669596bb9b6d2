# SPDX-License-Identifier: Apache-2.0
"""Follows files that grow, by name as `tail -F` does: a file may come later, be cut, rotated or replaced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHUNK = 1 << 20


@dataclass
class Followed:
    """One file and how far it was read.

    Attributes:
        label: goes before each of its lines; empty for none.
    """

    path: Path
    label: str
    offset: int = 0
    inode: tuple[int, int] | None = None
    rest: bytes = b""

    def seek_tail(self, lines: int) -> None:
        """Begin so many lines before the end; a file that is not there begins at its start."""
        with contextlib.suppress(OSError), _opened(self.path) as descriptor:
            status = os.fstat(descriptor)
            self.inode = (status.st_dev, status.st_ino)
            self.offset = _tail_offset(descriptor, status.st_size, lines)

    def read(self) -> list[str]:
        """The whole lines that came since the last call, with the label."""
        data = self._rest_of_rotated() or self._next()
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [self._shown(line) for line in whole]

    def _next(self) -> bytes:
        with contextlib.suppress(OSError), _opened(self.path) as descriptor:
            status = os.fstat(descriptor)
            inode = (status.st_dev, status.st_ino)
            if inode != self.inode or status.st_size < self.offset:
                self.inode, self.offset, self.rest = inode, 0, b""
            return os.pread(descriptor, CHUNK, self.offset)
        return b""

    def _rest_of_rotated(self) -> bytes:
        """What came into the file after the last look, if it was renamed to NAME.1 meanwhile."""
        with contextlib.suppress(OSError), _opened(Path(f"{self.path}.1")) as descriptor:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == self.inode:
                return os.pread(descriptor, CHUNK, self.offset)
        return b""

    def finish(self) -> list[str]:
        """The last line, when it has no end."""
        rest, self.rest = self.rest, b""
        return [self._shown(rest)] if rest else []

    def _shown(self, line: bytes) -> str:
        text = line.decode("utf-8", "backslashreplace").rstrip("\r")
        return f"[{self.label}] {text}" if self.label else text


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """A descriptor of a file; a pipe in its place is not waited for, and cannot be read at an offset."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _tail_offset(descriptor: int, size: int, lines: int) -> int:
    """Where the last `lines` lines begin."""
    if lines <= 0 or not size:
        return size
    wanted = lines + (os.pread(descriptor, 1, size - 1) == b"\n")
    position = size
    while position > 0:
        step = min(CHUNK, position)
        position -= step
        data = os.pread(descriptor, step, position)
        at = len(data)
        while (at := data.rfind(b"\n", 0, at)) >= 0:
            wanted -= 1
            if not wanted:
                return position + at + 1
    return 0
