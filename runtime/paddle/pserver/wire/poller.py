# SPDX-License-Identifier: Apache-2.0
"""A poller for the sockets of one thread, and the options that both ends of a ZeroMQ connection share.

Waiting uses the sockets' descriptors: one system call, where zmq_poll makes several per socket. A descriptor reports an
event only once, so a socket stays ready until a `take` finds it empty. Sending can consume a report, and therefore
marks the socket ready again.

Waking up a process takes longer than processing most small messages. A thread that has repeatedly got quick answers
therefore polls briefly before it sleeps: see `AdaptiveWait`.
"""

from __future__ import annotations

import math
import os
import select
import struct
import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import zmq

from paddle.pserver.wire.message import MAX_FRAME_BYTES
from paddle_node.contract.classes import NamedTuple

LINGER_MS = 500
_HANDSHAKE_MS = 5000
_QUEUE = 64
_EVENT = struct.Struct("=hi")  # zmq_socket_monitor(3); zmq.utils.monitor would import all of asyncio

SPIN_S = 400e-6
"""The polling time. Waking a thread on the other side and being woken by it takes about half as long."""

_FEWEST, _MOST = 8, 64  # consecutive short waits after which polling is tried again, having failed
_TAKEN_S = 20e-6  # two polls are a few microseconds apart, unless another thread had the core in between


class Poll(Protocol):
    """The interface of `select.poll` objects."""

    def poll(self, timeout_ms: int, /) -> list[tuple[int, int]]:
        """Wait for events for at most `timeout_ms` milliseconds; return (descriptor, events) pairs."""


class AdaptiveWait:
    """A wait for descriptors that polls briefly before it sleeps, if recent events came quickly.

    Polling uses only an idle core. It starts after several short waits in a row, takes no longer than a wake-up would,
    yields the core between polls, and ends as soon as another thread has used the core. A thread whose polling
    repeatedly fails almost stops polling. Not thread-safe.
    """

    def __init__(self, spin_s: float | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """Start in the sleeping state.

        Args:
            spin_s: how long to poll before sleeping; 0 means never; None: `SPIN_S` if there is more than one core.
            clock: monotonic clock in seconds.
        """
        if spin_s is None:
            spin_s = SPIN_S if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._spin_s, self._clock = spin_s, clock
        self._short_waits = 0  # in a row
        self._needed = _FEWEST

    def wait(self, poll: Poll, timeout_s: float) -> list[tuple[int, int]]:
        """Return the events of a poll object after at most `timeout_s` seconds; may be empty."""
        if not self._spin_s or timeout_s <= 0:
            return poll.poll(math.ceil(timeout_s * 1000))
        begun = self._clock()
        if self._short_waits >= self._needed:
            if news := self._spin(poll, begun, min(timeout_s, self._spin_s)):
                self._needed = _FEWEST
                return news
            self._short_waits = 0
        news = poll.poll(math.ceil(timeout_s * 1000))
        is_short = bool(news) and self._clock() - begun <= self._spin_s
        self._short_waits = self._short_waits + 1 if is_short else 0
        return news

    def _spin(self, poll: Poll, begun: float, spin_s: float) -> list[tuple[int, int]]:
        now = begun
        while now - begun < spin_s:
            if news := poll.poll(0):
                return news
            os.sched_yield()
            before, now = now, self._clock()
            if now - before > _TAKEN_S:
                return poll.poll(0)
        self._needed = min(2 * self._needed, _MOST)
        return []


class Poller:
    """The sockets and descriptors that one thread polls, with a record of which may have input. Not thread-safe.

    Attributes:
        ready: the sockets that may have input; `take` and `take_ready` remove them.
    """

    def __init__(self, adaptive_wait: AdaptiveWait | None = None) -> None:
        """Create a poller without sockets.

        Args:
            adaptive_wait: how to wait; None means depends on the number of cores.
        """
        self._adaptive_wait = AdaptiveWait() if adaptive_wait is None else adaptive_wait
        self._poll = select.poll()
        self._sockets: dict[int, Any] = {}
        self.ready: set[Any] = set()
        self._full: set[int] = set()

    def add(self, sock: Any) -> None:
        """Start polling a ZeroMQ socket. It counts as ready at first, because it can already have messages."""
        descriptor = sock.getsockopt(zmq.FD)
        self._poll.register(descriptor, select.POLLIN)
        self._sockets[descriptor] = sock
        self.ready.add(sock)

    def add_descriptor(self, descriptor: int) -> None:
        """Start polling a descriptor, which stays ready as long as it is readable; see `take_ready`."""
        self._poll.register(descriptor, select.POLLIN)
        self._sockets[descriptor] = descriptor

    def remove_descriptor(self, descriptor: int) -> None:
        """Stop polling a descriptor. Call this before the descriptor is closed."""
        self._poll.unregister(descriptor)
        del self._sockets[descriptor]
        self.ready.discard(descriptor)
        self._full.discard(descriptor)

    def expect_room(self, descriptor: int, wanted: bool) -> None:
        """Start or stop polling a descriptor for writability as well."""
        if wanted != (descriptor in self._full):
            self._poll.modify(descriptor, select.POLLIN | (select.POLLOUT if wanted else 0))
            (self._full.add if wanted else self._full.discard)(descriptor)

    def take_ready(self, descriptor: int) -> bool:
        """Return whether a descriptor is ready, and clear the flag; the caller must then read the descriptor."""
        if descriptor not in self.ready:
            return False
        self.ready.discard(descriptor)
        return True

    def remove(self, sock: Any) -> None:
        """Stop polling a socket. Call this before the socket is closed."""
        descriptor = sock.getsockopt(zmq.FD)
        self._poll.unregister(descriptor)
        del self._sockets[descriptor]
        self.ready.discard(sock)

    def mark_ready(self, sock: Any) -> None:
        """Make the next `take` or `take_ready` treat this socket as ready, regardless of its descriptor."""
        self.ready.add(sock)

    def wait(self, timeout_s: float, only: Collection[Any] = ()) -> None:
        """Wait at most `timeout_s` seconds until a socket may have input; with `only`, ignore all other sockets."""
        if not (self.ready.intersection(only) if only else self.ready):
            for descriptor, _ in self._adaptive_wait.wait(self._poll, timeout_s):
                self.ready.add(self._sockets[descriptor])

    def take(self, sock: Any) -> list[zmq.Frame] | None:
        """Return the next message from a socket, not copied, or None; does not wait."""
        if sock not in self.ready:
            return None
        try:
            parts: list[zmq.Frame] = sock.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.ready.discard(sock)
            return None
        return parts


class MonitorEvent(NamedTuple):
    """An event of zmq_socket_monitor: `zmq.EVENT_*`, and its value."""

    event: int
    value: int


def monitor_event(parts: Sequence[zmq.Frame]) -> MonitorEvent:
    """Parse a message from a socket's monitor."""
    return MonitorEvent(*_EVENT.unpack(parts[0].bytes))


def prepare(sock: Any) -> None:
    """Set the options that both ends of a ZeroMQ connection share: limits, keepalives, and all address families."""
    sock.setsockopt(zmq.IPV6, 1)
    sock.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    sock.setsockopt(zmq.SNDHWM, _QUEUE)
    sock.setsockopt(zmq.RCVHWM, _QUEUE)
    sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
