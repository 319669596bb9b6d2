# SPDX-License-Identifier: Apache-2.0
"""A log file whose new content can be captured for a while, in bounded memory."""

from __future__ import annotations

from typing import Callable, List

from paddle_node.agent.processes.log_file import LogFile


class TappedLog(LogFile):
    """A process's log; a tap receives everything written after it was added."""

    def __init__(
        self,
        path: str,
        name: str,
        tell: Callable[[str], None],
        lose: Callable[[str], None],
        written: Callable[[bool], None],
        limit: int = 0,
    ) -> None:
        super().__init__(path, name, tell, lose, written, limit)
        self._taps: List[Tap] = []

    def write(self, data: bytes) -> None:
        """Append data, and pass it to the taps."""
        super().write(data)
        for tap in self._taps:
            tap.take(data)

    def tap(self, limit: int) -> Tap:
        """Capture the data written until `Tap.close`; at most `limit` bytes are saved."""
        tap = Tap(limit, self._taps.remove)
        self._taps.append(tap)
        return tap


class Tap:
    """Captures the data that is written to a log while the tap is open, up to a limit."""

    def __init__(self, limit: int, remove: Callable[[Tap], None]) -> None:
        self.data = b""
        self._limit = limit
        self._remove = remove

    def take(self, data: bytes) -> None:
        """Save as much of the data as the limit allows."""
        self.data += data[: self._limit - len(self.data)]

    def close(self) -> bytes:
        """Stop capturing, and return the captured data."""
        self._remove(self)
        return self.data
