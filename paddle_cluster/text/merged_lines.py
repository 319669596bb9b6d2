# SPDX-License-Identifier: Apache-2.0
"""Puts what many processes wrote into the order of time.

Everything is held back for HOLD_S, for what another node wrote at the same moment may still be on its way; what comes
later than that follows when it comes. Blocks of one source never change their order.
"""

from __future__ import annotations

import heapq

HOLD_S = 1.0


class MergedLines:
    """Blocks of whole lines that wait for their turn. Not thread-safe."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, str, bytes]] = []
        self._latest: dict[str, float] = {}
        self._count = 0

    def add(self, at: float, source: str, lines: bytes) -> None:
        """Take a block.

        Args:
            at: when it was written, in seconds.
            source: who wrote it.
        """
        at = self._latest[source] = max(at, self._latest.get(source, at))
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, source, lines))

    def ready(self, until: float) -> list[tuple[float, str, bytes]]:
        """(at, source, lines) of what was written before `until`, in order."""
        found = []
        while self._heap and self._heap[0][0] <= until:
            at, _, source, lines = heapq.heappop(self._heap)
            found.append((at, source, lines))
        return found
