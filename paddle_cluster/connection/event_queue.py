# SPDX-License-Identifier: Apache-2.0
"""The queue of a job's events, bounded by number and by bytes: who reads from nodes stops while it is full.

Nothing is ever refused or dropped: `is_full` is a request to those who could wait. Signal handlers may put too.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

MOST_EVENTS = 1024
MOST_BYTES = 8 << 20


class EventQueue(queue.SimpleQueue[Any]):
    """Events in the order in which they came; one that came from a node says its `size` in bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._bytes = 0

    @property
    def waiting_bytes(self) -> int:
        """Bytes of all events that nobody has taken yet."""
        return self._bytes

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add an event; never blocks."""
        self._count(item, 1)
        super().put(item)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Take the oldest event.

        Raises:
            queue.Empty: there is none within the time.
        """
        item = super().get(block, timeout)
        self._count(item, -1)
        return item

    def _count(self, item: Any, sign: int) -> None:
        size = getattr(item, "size", 0)
        if size:  # a signal's event has none: its handler may have interrupted the owner of the lock
            with self._lock:
                self._bytes += sign * size


def is_full(events: queue.SimpleQueue[Any]) -> bool:
    """Whether those who could wait should."""
    if events.qsize() > MOST_EVENTS:
        return True
    return isinstance(events, EventQueue) and events.waiting_bytes > MOST_BYTES
