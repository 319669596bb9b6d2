# SPDX-License-Identifier: Apache-2.0
"""The event loop that owns a job's state: handles events, renews leases, detects silent nodes.

Links and the connector post events from their threads; no other code changes the roster. A handler that raises ends the
wait: errors propagate to the job, which decides what to stop. Nodes are not trusted: `unread` handles a message that
exceeds its limits, or that refers to something that the job did not request (a handler raises ValueError).
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from paddle_cluster.connection.link import MessageEvent, Unreadable, is_full
from paddle_cluster.connection.reconnect import ping_s
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import Roster
from paddle_node.contract.classes import dataclass, field

TICK_S = 0.25
ALARM_S = 10.0  # a node that is silent this long is reported
SPARING = 9  # multiples of the time that a check of a phase's end takes: the pause until the next check
DEAF_S = 2.0  # between two checks: this process was suspended, for example by Ctrl+Z, and received nothing


@dataclass(frozen=True)
class Handlers:
    """The table of functions that handle each kind of event and message.

    Attributes:
        events: event type -> handler.
        messages: kind -> handler of a message's record.
        with_body: kind -> handler of a message's record and body.
        silence: called when a node has been silent for ALARM_S.
        back: called when a silent node sends again.
        lease: called when a node has been silent for a whole lease, plus the spare time.
        doubt: called repeatedly while a node has not answered two pings, or its connection has ended.
        unread: called with a node and a kind when a message is invalid.
    """

    events: Mapping[type, Callable[[Any], None]]
    messages: Mapping[str, Callable[[NodeRecord, Any], None]]
    silence: Callable[[NodeRecord], None]
    back: Callable[[NodeRecord], None]
    lease: Callable[[NodeRecord], None]
    unread: Callable[[NodeRecord, str, Exception], None]
    doubt: Callable[[NodeRecord], None] = lambda record: None
    with_body: Mapping[str, Callable[[NodeRecord, Any, bytes], None]] = field(default_factory=dict)


class Loop:
    """The event loop of a job, which dispatches events to handlers until a condition holds or a timeout passes.

    Attributes:
        listens_since: monotonic time before which messages may have arrived that are still unread.
    """

    def __init__(
        self, events: queue.SimpleQueue[Any], roster: Roster, lease_s: float, handlers: Handlers
    ) -> None:
        self._events = events
        self._roster = roster
        self._lease_s = lease_s
        self._ping_s = ping_s(lease_s)
        self._handlers = handlers
        self._next_ping = 0.0
        self._next_look = 0.0
        self._looked_at = 0.0
        self.listens_since = 0.0
        self._seq = 0

    def until(self, done: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Handle events until `done()` is true; return False if `timeout_s` passes first.

        Calls of `done` take at most a tenth of the time, so that a check of thousands of processes does not run after
        every event. Lines and files of a node cannot end a wait: they cause a call only every TICK_S seconds.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        asked_at, ask_at, is_due = 0.0, 0.0, True
        while True:
            now = time.monotonic()
            self._beat(now)
            if is_due and now >= ask_at:
                if done():
                    return True
                asked_at, now, is_due = now, time.monotonic(), False
                ask_at = now + SPARING * (now - asked_at)
            if deadline is not None and now >= deadline:
                return False
            wait = min(TICK_S, ask_at - now) if is_due else TICK_S
            if deadline is not None:
                wait = min(wait, deadline - now)
            is_due = is_due or now - asked_at >= TICK_S
            try:
                event = self._events.get(timeout=max(wait, 0.001))
            except queue.Empty:
                is_due = True
                continue
            is_due = self._handle(event) or is_due

    def ping(self) -> None:
        """Ping all live nodes now."""
        self._seq += 1
        for record in self._roster.live():
            record.ping(self._seq)

    def _handle(self, event: Any) -> bool:
        """Handle an event; return whether it can end a wait."""
        if not isinstance(event, MessageEvent | Unreadable):
            self._handlers.events[type(event)](event)
            return True
        record = self._roster.nodes[event.node_id]
        if record.contact.hear():
            self._handlers.back(record)
        try:
            if isinstance(event, Unreadable):
                raise event.error
            if event.kind in self._handlers.messages:
                self._handlers.messages[event.kind](record, event.message)
            elif event.kind in self._handlers.with_body:
                self._handlers.with_body[event.kind](record, event.message, event.body)
                return False
        except ValueError as error:
            self._handlers.unread(record, event.kind, error)
        return True

    def _beat(self, now: float) -> None:
        if now >= self._next_ping:
            self._next_ping = now + self._ping_s
            self.ping()
        if now < self._next_look:
            return
        if now - self._looked_at >= DEAF_S or is_full(
            self._events
        ):  # messages that arrived meanwhile are still unread
            self.listens_since = now
        self._looked_at = now
        self._next_look = now + TICK_S
        for record in self._roster.live():
            quiet_s = now - max(record.contact.quiet_since(), self.listens_since)
            if quiet_s >= self._lease_s + record.spare_s:
                self._handlers.lease(record)
                continue
            if quiet_s >= ALARM_S and not record.contact.is_silent:
                record.contact.fall_silent()
                self._handlers.silence(record)
            if quiet_s >= 2 * self._ping_s or record.is_broken:
                self._handlers.doubt(record)
