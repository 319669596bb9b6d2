# SPDX-License-Identifier: Apache-2.0
"""Puts together lines that come in parts: prompts, progress bars, lines longer than a frame.

An open line is held until it ends, for at most HELD_S, and never more than HELD_SIZE bytes of it. So a bar that
draws over itself becomes a line every HELD_S instead of one for each step. Not thread-safe.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

HELD_S = 2.0
HELD_SIZE = 1 << 16


class OpenLines:
    """The unfinished last line of each process."""

    def __init__(self) -> None:
        self._open: dict[Hashable, tuple[bytes, float]] = {}

    def take(self, key: Hashable, data: bytes, partial: bool) -> bytes:
        """Bytes that a process wrote.

        Args:
            partial: they stop inside a line.

        Returns:
            What may be shown now: whole lines, or the beginning of one that is too long; may be empty.
        """
        before, since = self._open.pop(key, (b"", time.monotonic()))
        data = before + data
        if not partial:
            return data
        end = data.rfind(b"\n") + 1
        if end:
            since = time.monotonic()
        if len(data) - end > HELD_SIZE:
            return data
        self._open[key] = data[end:], since
        return data[:end]

    def overdue(self, everything: bool = False) -> list[tuple[Hashable, bytes]]:
        """Lines that stayed open for too long, by process; each is given out once."""
        if not self._open:
            return []
        until = time.monotonic() - (0.0 if everything else HELD_S)
        due = [(key, data) for key, (data, since) in self._open.items() if since <= until]
        for key, _ in due:
            del self._open[key]
        return due
