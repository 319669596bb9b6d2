# SPDX-License-Identifier: Apache-2.0
"""A bar on standard error while a file arrives: drawn on a terminal, and at the end how much it was."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TextIO

WIDTH = 50


class Progress:
    """Counts bytes and shows how many of `total` have come; total 0 means unknown."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self.done = 0
        self._total = total
        self._stream = stream or sys.stderr
        self._drawn = -1

    def __enter__(self) -> Progress:
        return self

    def add(self, count: int) -> None:
        """Counts `count` more bytes."""
        self.done += count
        if self._total and self._stream.isatty():
            self._draw(min(WIDTH, WIDTH * self.done // self._total))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn >= 0:
            self._stream.write("\n")
        self._stream.write(f"{self.done} bytes received\n")
        self._stream.flush()

    def _draw(self, filled: int) -> None:
        if filled != self._drawn:
            self._drawn = filled
            self._stream.write(f"\r[{'=' * filled}{' ' * (WIDTH - filled)}]")
            self._stream.flush()
