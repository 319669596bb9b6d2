# SPDX-License-Identifier: Apache-2.0
"""Stores a job's last events and the nodes' current states, for terminals that attach later.

The console passes it every event. The job's threads write, and clients read at their own pace. No thread waits, and
memory is bounded: a client that reads too slowly receives the number of lines that it missed.
"""

from __future__ import annotations

import threading
from collections import deque
from itertools import islice

from paddle_cluster.text.output_events import (
    Event,
    NodesNamed,
    NodeState,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Tabled,
    Transferred,
    Used,
)
from paddle_node.contract.classes import dataclass

KEPT = 4000
KEPT_BYTES = 4 << 20
EVENT_BYTES = 200  # approximate size of an event without its text


@dataclass(frozen=True)
class ScrollbackPage:
    """The stored events after a position.

    Attributes:
        position: where to continue reading.
        missed: number of lines that were dropped before they were read.
    """

    events: tuple[Event, ...]
    position: int
    missed: int


class Scrollback:
    """The last events of a job and the current states of its nodes. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._bytes = 0
        self._first = 0  # position of the oldest stored event
        self._dropped: deque[tuple[int, int]] = deque(maxlen=KEPT)  # (position, lines) of dropped events
        self._now: dict[tuple[type[Event], object], tuple[int, Event]] = {}
        self._version = 0
        self._phase = PhaseEntered("")
        self._phase_at = 0
        self._preflight: Tabled | None = None

    @property
    def phase(self) -> str:
        """Return the current phase of the job."""
        return self._phase.name

    @property
    def preflight(self) -> Tabled | None:
        """Return the table of the preflight checks, or None before they have run."""
        return self._preflight

    def phase_before(self, position: int) -> list[Event]:
        """Return the current phase if it began before a position, for a client that starts to read there."""
        with self._lock:
            return [self._phase] if self._phase.name and self._phase_at < position else []

    def take(self, event: Event) -> None:
        """Store an event; used as a tap for `Console.watch`. States and progress replace their predecessors."""
        with self._lock:
            match event:
                case NodeState():
                    self._replace(event, event.node_id)
                case Transferred():
                    self._replace(event, event.node_id)
                case Progressed():
                    self._replace(event, event.process or event.node_id)
                case Used() | Plotted():
                    pass  # shown by the status and by TensorBoard respectively
                case NodesNamed():
                    self._replace(event, None)
                case PhaseEntered():
                    self._phase = event
                    self._phase_at = self._first + len(self._events)
                    self._add(event)
                case Tabled():
                    self._preflight = event
                    self._add(event)
                case _:
                    self._add(event)

    def state(self, node_id: int) -> str:
        """Return the current state of a node, as shown on the screen."""
        with self._lock:
            _, event = self._now.get((NodeState, node_id), (0, None))
        return event.state if isinstance(event, NodeState) else ""

    def changed(self, since: int) -> tuple[list[Event], int]:
        """Return states and progress that changed after a version, oldest first, and the version to continue from."""
        with self._lock:
            changed = [pair for pair in self._now.values() if pair[0] > since]
            return [event for _, event in sorted(changed, key=lambda pair: pair[0])], self._version

    def tail(self, lines: int) -> int:
        """Return the position after which about `lines` lines follow."""
        with self._lock:
            position = self._first + len(self._events)
            for event in reversed(self._events):
                lines -= _lines(event)
                if lines < 0:
                    break
                position -= 1
            return position

    def after(self, position: int, limit: int) -> ScrollbackPage:
        """Return at most `limit` events after a position."""
        with self._lock:
            missed = sum(lines for at, lines in self._dropped if at >= position)
            start = max(position, self._first)
            offset = start - self._first
            events = tuple(islice(self._events, offset, offset + limit))
        return ScrollbackPage(events, start + len(events), missed)

    def _replace(self, event: Event, key: object) -> None:
        self._version += 1
        self._now[type(event), key] = (self._version, event)

    def _add(self, event: Event) -> None:
        self._events.append(event)
        self._bytes += _size(event)
        while len(self._events) > KEPT or (self._bytes > KEPT_BYTES and len(self._events) > 1):
            oldest = self._events.popleft()
            self._bytes -= _size(oldest)
            self._dropped.append((self._first, _lines(oldest)))
            self._first += 1


def _size(event: Event) -> int:
    return EVENT_BYTES + (len(event.data) if isinstance(event, Printed) else 0)


def _lines(event: Event) -> int:
    return event.data.count(b"\n") + event.partial if isinstance(event, Printed) else 1
