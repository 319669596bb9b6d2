# SPDX-License-Identifier: Apache-2.0
"""The transport without sockets: clients in threads of one process talk to engines in the same process.

Messages are encoded and decoded as on the wire. One lock stands for the single thread of each server.
"""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Mapping, Sequence

from paddle.errors import PserverLost
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.wire.codec import decode, encode
from paddle.pserver.wire.message import Message


class InprocServers:
    """Engines by endpoint. Thread-safe."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.engines = dict(engines)
        # Guards the engines and the boxes: an engine is not thread-safe, and clients call from their own threads.
        # Replies go into queues under it, and nobody waits with it: so it cannot be waited for in a circle.
        self._lock = threading.Lock()
        self._boxes: dict[bytes, tuple[int, queue.SimpleQueue[Incoming]]] = {}
        self._numbers = itertools.count(1)

    def connect(self, endpoints: Sequence[str]) -> InprocLinks:
        """Return one client's links to these endpoints, in this order."""
        return InprocLinks(self, endpoints)

    def kill(self, endpoint: str) -> None:
        """End a server: from now on it is lost to everybody."""
        with self._lock:
            del self.engines[endpoint]

    def tick(self) -> None:
        """Let every engine look at its clock."""
        with self._lock:
            for engine in self.engines.values():
                self._deliver(engine.tick())

    def register(self, index: int, box: queue.SimpleQueue[Incoming]) -> bytes:
        """Return a new address; replies to it go to `box`, as from server `index`."""
        with self._lock:
            address = b"%d" % next(self._numbers)
            self._boxes[address] = (index, box)
        return address

    def unregister(self, endpoint: str, address: bytes) -> None:
        """Break the connection behind an address."""
        with self._lock:
            self._boxes.pop(address, None)
            if endpoint in self.engines:
                self.engines[endpoint].lose(address)

    def deliver(self, endpoint: str, address: bytes, message: Message) -> None:
        """Hand a message to an engine and its replies to their boxes.

        Raises:
            PserverLost: the server was killed.
        """
        with self._lock:
            if endpoint not in self.engines:
                raise PserverLost(f"pserver {endpoint} is gone", endpoint)
            self._deliver(self.engines[endpoint].handle(address, _copy(message)))

    def is_alive(self, endpoint: str) -> bool:
        """Return whether a server was not killed."""
        with self._lock:
            return endpoint in self.engines

    def _deliver(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            if reply.address in self._boxes:
                index, box = self._boxes[reply.address]
                box.put(Incoming(index, _copy(reply.message)))


class InprocLinks:
    """One client's connections; the twin of `links.Links`."""

    def __init__(self, servers: InprocServers, endpoints: Sequence[str]) -> None:
        self.endpoints = tuple(endpoints)
        self._servers = servers
        self._box: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self._addresses = [servers.register(index, self._box) for index in range(len(self.endpoints))]

    def send(self, index: int, message: Message) -> None:
        """See `Links.send`."""
        self._servers.deliver(self.endpoints[index], self._addresses[index], message)

    def receive(self, timeout_s: float) -> Incoming | None:
        """See `Links.receive`."""
        try:
            return self._box.get(timeout=timeout_s)
        except queue.Empty:
            for endpoint in self.endpoints:
                if not self._servers.is_alive(endpoint):
                    raise PserverLost(f"pserver {endpoint} is gone", endpoint) from None
            return None

    def reconnect(self, index: int) -> None:
        """Break one connection and make it anew, as after a short cut of the network."""
        self._servers.unregister(self.endpoints[index], self._addresses[index])
        self._addresses[index] = self._servers.register(index, self._box)
        self._box.put(Incoming(index, None))

    def expect(self, index: int, request: Request | None) -> None:
        """See `Links.expect`: everything is copied here."""

    def attach(self, index: int, hello: Message, size: int | None) -> None:
        """See `Links.attach`: here is nothing to share."""

    def is_attached(self, index: int) -> bool:
        """See `Links.is_attached`."""
        return False

    def hint(self, index: int) -> str:
        """See `Links.hint`."""
        return "check that it is running"

    def close(self) -> None:
        """See `Links.close`."""
        for endpoint, address in zip(self.endpoints, self._addresses, strict=True):
            self._servers.unregister(endpoint, address)


def _copy(message: Message) -> Message:
    return decode([bytes(frame) for frame in encode(message)])
