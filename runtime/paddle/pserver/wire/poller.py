# SPDX-License-Identifier: Apache-2.0
"""What both ends of the wire have in common: the limits of their sockets, and waiting for several of them.

Waiting goes by the sockets' descriptors: one system call, where zmq_poll makes some for each socket. A
descriptor tells of news once. Whoever hears of them must take until nothing is left, and look again after
sending, since that may swallow them; so a socket stays rung until a `take` finds it empty.

Waking a process takes longer than most small messages do. So whoever was answered within moments again and again
looks for the next answer for moments before going to sleep: see `AdaptiveWait`.
"""

from __future__ import annotations

import select
import struct
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import zmq

from paddle.pserver.wire.adaptive_wait import AdaptiveWait
from paddle.pserver.wire.message import MAX_FRAME_BYTES

LINGER_MS = 500
_HANDSHAKE_MS = 5000
_QUEUE = 64
_EVENT = struct.Struct("=hi")  # zmq_socket_monitor(3); zmq.utils.monitor brings all of asyncio along


class Doorbells:
    """Sockets of one thread, and which of them may have something to take. Not thread-safe.

    Attributes:
        rung: sockets and descriptors that may have something; `take` and `is_ready` forget them.
    """

    def __init__(self, patience: AdaptiveWait | None = None) -> None:
        """Begin without any.

        Args:
            patience: decides when to look again and again; None: as it is best for the cores that there are.
        """
        self._patience = AdaptiveWait() if patience is None else patience
        self._poll = select.poll()
        self._sockets: dict[int, Any] = {}
        self.rung: set[Any] = set()
        self._full: set[int] = set()

    def add(self, sock: Any) -> None:
        """Listen for a socket; it counts as rung."""
        descriptor = sock.getsockopt(zmq.FD)
        self._poll.register(descriptor, select.POLLIN)
        self._sockets[descriptor] = sock
        self.rung.add(sock)

    def add_descriptor(self, descriptor: int) -> None:
        """Listen for a descriptor that tells of news for as long as there are any; `is_ready` answers for it."""
        self._poll.register(descriptor, select.POLLIN)
        self._sockets[descriptor] = descriptor

    def remove_descriptor(self, descriptor: int) -> None:
        """Forget a descriptor; call it before that is closed."""
        self._poll.unregister(descriptor)
        del self._sockets[descriptor]
        self.rung.discard(descriptor)
        self._full.discard(descriptor)

    def expect_room(self, descriptor: int, wanted: bool) -> None:
        """Listen, or not any more, for a descriptor that can be written to as well."""
        if wanted != (descriptor in self._full):
            self._poll.modify(descriptor, select.POLLIN | (select.POLLOUT if wanted else 0))
            (self._full.add if wanted else self._full.discard)(descriptor)

    def is_ready(self, descriptor: int) -> bool:
        """Return whether there are news behind a descriptor; look at them then, this tells of them once."""
        if descriptor not in self.rung:
            return False
        self.rung.discard(descriptor)
        return True

    def remove(self, sock: Any) -> None:
        """Forget a socket; call it before that is closed."""
        descriptor = sock.getsockopt(zmq.FD)
        self._poll.unregister(descriptor)
        del self._sockets[descriptor]
        self.rung.discard(sock)

    def ring(self, sock: Any) -> None:
        """Have the next `take` look at a socket, whatever its descriptor says."""
        self.rung.add(sock)

    def wait(self, timeout_s: float, only: Collection[Any] = ()) -> None:
        """Wait until a socket may have something to take, at most `timeout_s`; `only`: whatever others may have."""
        if not (self.rung.intersection(only) if only else self.rung):
            for descriptor, _ in self._patience.wait(self._poll, timeout_s):
                self.rung.add(self._sockets[descriptor])

    def take(self, sock: Any) -> list[zmq.Frame] | None:
        """Return the next message of a socket, not copied, or None; does not wait."""
        if sock not in self.rung:
            return None
        try:
            parts: list[zmq.Frame] = sock.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            self.rung.discard(sock)
            return None
        return parts


class MonitorEvent(NamedTuple):
    """What became of a connection, as zmq_socket_monitor tells it: `zmq.EVENT_*`, and what that says more."""

    event: int
    value: int


def monitor_event(parts: Sequence[zmq.Frame]) -> MonitorEvent:
    """Read a message of a monitor."""
    return MonitorEvent(*_EVENT.unpack(parts[0].bytes))


def prepare(sock: Any) -> None:
    """Set what both ends have in common: limits, no address family left out."""
    sock.setsockopt(zmq.IPV6, 1)
    sock.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    sock.setsockopt(zmq.SNDHWM, _QUEUE)
    sock.setsockopt(zmq.RCVHWM, _QUEUE)
    sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
