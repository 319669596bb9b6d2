# SPDX-License-Identifier: Apache-2.0
"""Follows a growing file by name, like `tail -F`; the file may be created later, truncated, rotated or replaced."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from paddle_cluster.system.rotated_file import KEPT
from paddle_node.contract.classes import dataclass

CHUNK = 1 << 20


@dataclass
class Followed:
    """A file that is read as it grows, with the position up to which it has been read."""

    path: Path
    offset: int = 0
    inode: tuple[int, int] | None = None
    rest: bytes = b""

    def backwards(self) -> Iterator[str]:
        """Yield the complete lines, including rotated parts, newest first; `read` continues after them."""
        seen: set[tuple[int, int]] = set()
        for part in (self.path, *(Path(f"{self.path}.{number}") for number in range(1, KEPT + 1))):
            with contextlib.suppress(OSError), _opened(part) as descriptor:
                status = os.fstat(descriptor)
                inode, end = (status.st_dev, status.st_ino), _whole_end(descriptor, status.st_size)
                if inode in seen:  # it was just rotated
                    continue
                if not seen:
                    self.inode, self.offset = inode, end
                seen.add(inode)
                yield from map(_shown, _lines_backwards(descriptor, end))

    def read(self) -> list[str]:
        """Return the complete lines that were added since the last call."""
        data = self._rest_of_rotated() or self._next()
        self.offset += len(data)
        *whole, self.rest = (self.rest + data).split(b"\n")
        return [_shown(line) for line in whole]

    def _next(self) -> bytes:
        with contextlib.suppress(OSError), _opened(self.path) as descriptor:
            status = os.fstat(descriptor)
            inode = (status.st_dev, status.st_ino)
            if inode != self.inode or status.st_size < self.offset:
                self.inode, self.offset, self.rest = inode, 0, b""
            return os.pread(descriptor, CHUNK, self.offset)
        return b""

    def _rest_of_rotated(self) -> bytes:
        """Return the bytes appended to the file after the last read, if it has been renamed to NAME.1."""
        with contextlib.suppress(OSError), _opened(Path(f"{self.path}.1")) as descriptor:
            status = os.fstat(descriptor)
            if (status.st_dev, status.st_ino) == self.inode:
                return os.pread(descriptor, CHUNK, self.offset)
        return b""

    def finish(self) -> list[str]:
        """Return the last line of the file if it is incomplete, as a list of at most one line."""
        rest, self.rest = self.rest, b""
        return [_shown(rest)] if rest else []


def whole_lines(path: Path) -> Iterator[str]:
    """Yield the complete lines that a file and its rotated parts have now, oldest first."""
    parts: dict[tuple[int, int], tuple[int, int]] = {}
    with contextlib.ExitStack() as opened:
        for part in (path, *(Path(f"{path}.{number}") for number in range(1, KEPT + 1))):
            with contextlib.suppress(OSError):
                descriptor = opened.enter_context(_opened(part))
                status = os.fstat(descriptor)
                key = status.st_dev, status.st_ino
                parts.setdefault(key, (descriptor, _whole_end(descriptor, status.st_size)))
        for descriptor, end in reversed(parts.values()):
            rest = b""
            for at in range(0, end, CHUNK):
                *lines, rest = (rest + os.pread(descriptor, min(CHUNK, end - at), at)).split(b"\n")
                yield from map(_shown, lines)


def _shown(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace").rstrip("\r")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file. If a pipe has replaced it, opening does not block, but reading at an offset fails."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _whole_end(descriptor: int, size: int) -> int:
    """Return the end of the last complete line."""
    start = max(0, size - CHUNK)
    return start + os.pread(descriptor, size - start, start).rfind(b"\n") + 1


def _lines_backwards(descriptor: int, end: int) -> Iterator[bytes]:
    """Yield the lines before the offset `end`, which is the end of a line, newest first."""
    if not end:
        return
    end, rest = end - 1, b""
    while end > 0:
        step = min(CHUNK, end)
        end -= step
        rest, *lines = (os.pread(descriptor, step, end) + rest).split(b"\n")
        yield from reversed(lines)
    yield rest
