# SPDX-License-Identifier: Apache-2.0
"""A trainer's connections to its servers: a ZeroMQ base connection to each, and the fastest other transport."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from paddle.endpoints import check_endpoints
from paddle.errors import WireError
from paddle.pserver.client.reachability import Reaching
from paddle.pserver.client.request import Incoming, Request
from paddle.pserver.transports import table
from paddle.pserver.transports.table import BaseConnection, BaseConnections
from paddle.pserver.transports.transport import Connection, Offer, SharedSlabs
from paddle.pserver.wire.codec import peek
from paddle.pserver.wire.configuration import PortRange
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import DamagedError, Message
from paddle.pserver.wire.poller import Poller
from paddle.pserver.wire.verbs import Configured, Leave, Repeat, Values

_log = logging.getLogger(__name__)

_ANSWER_S = 10.0  # seconds for the answer to a transport's request
_LOOK_S = 0.1  # seconds between checks while a base connection has problems
_BATCH = 64  # messages of one connection before others are served


class Links:
    """A client's connections to its servers, by index. Not thread-safe."""

    def __init__(
        self,
        endpoints: Sequence[str],
        keys: WireKeys | None,
        patience_s: float = 0.0,
        within_node: bool = True,
        first_answer_s: float | None = None,
        ports: PortRange | None = None,
    ) -> None:
        """Begin to connect to each "ip:port"; the servers need not listen yet.

        Args:
            keys: the keys for encryption; None means connections are not encrypted.
            patience_s: time in seconds for which a known server can be unreachable before it is considered lost.
            within_node: whether memory can be shared with servers of this node.
            first_answer_s: maximum time in seconds for each server's first answer; meanwhile, `receive` reports
                possible causes of a delay. None means nothing is reported.
            ports: the number of ports that each server should have, if that is to be checked.

        Raises:
            ConfigError: an endpoint is malformed, or is given twice.
        """
        check_endpoints(endpoints, "pserver endpoint")
        self.endpoints = tuple(endpoints)
        self._keys = keys
        self._transports = [each for each in table.TRANSPORTS if within_node or not each.is_within_node]
        self._beside: dict[int, Connection] = {}  # transports that are faster than a server's base connection
        self._beside_at: dict[Any, int] = {}  # its handle -> the server
        self._needs_care = False  # a base connection must be watched soon; healthy ones wake us by themselves
        self._due: dict[int, Request] = {}  # whose values are due, by server
        self._interrupted: set[int] = set()  # messages in a pipe when it ended must be sent again
        self._poller = Poller()
        self._base = BaseConnections(endpoints, keys, self._poller, patience_s)
        self._reaching: Reaching | None = None
        if first_answer_s is not None:
            self._reaching = Reaching(
                self.endpoints,
                [each.liveness for each in self._base],
                is_encrypted=keys is not None,
                timeout_s=first_answer_s,
                ports=ports,
            )

    def send(self, index: int, message: Message) -> None:
        """Queue a message; its arrays must not change before the reply has arrived.

        A message that cannot be queued is considered lost, because its connection broke and is being reopened.
        """
        if isinstance(message.record, Leave):
            self._base[index].liveness.is_leaving = True
        beside = self._beside.get(index)
        if beside is not None:
            is_sent = beside.send(message)
            if is_sent:
                self._poller.expect_room(beside.handle, beside.is_sending)
                return
            if is_sent is not None:
                self._end(index, beside)
                if beside.is_pipe:
                    self._interrupted.add(index)
        self._base[index].send(message)

    def expect(self, index: int, request: Request | None) -> None:
        """Set the request whose values a server sends next, replacing the earlier one; None means no values are due."""
        if request is None:
            self._due.pop(index, None)
        else:
            self._due[index] = request

    def attach(self, index: int, hello: Message, size: int | None) -> SharedSlabs | None:
        """Open the fastest transport to a server besides the base connection; return the memory it shares, if any.

        Args:
            hello: carries the trainer's session.
            size: see `Offer`.
        """
        offer = Offer(
            self.endpoints[index],
            self._keys,
            hello,
            size,
            ask=lambda message: self._ask(index, message),
            place=lambda header: self._place(index, header),
        )
        for transport in self._transports:
            try:
                connection = transport.client(offer)
            except (OSError, WireError, MemoryError) as error:
                if isinstance(error, TimeoutError):  # a firewall: detecting that takes long
                    self._transports = [each for each in self._transports if each is not transport]
                log = _log.debug if transport.is_within_node else _log.info
                log("no %s connection to pserver %s (%s)", transport.name, self.endpoints[index], error)
                continue
            if connection is not None:
                self._stand_beside(index, connection)
                return connection.slabs
        return None

    def _ask(self, index: int, message: Message) -> Message:
        """Send a request over the base connection, and return the answer.

        The CONFIGURE request before it has the same number; if it was sent twice, it has two replies.

        Raises:
            WireError: no answer arrived in time, or the connection broke.
        """
        base: BaseConnection = self._base[index]
        deadline = time.monotonic() + _ANSWER_S
        try:
            base.send(message)
            while True:
                while (answer := base.take()) is not None:
                    if answer.request == message.request and not isinstance(answer.record, Configured):
                        return answer
                rest_s = deadline - time.monotonic()
                self._poller.wait(min(rest_s, _LOOK_S) if base.needs_care else rest_s, base.sockets)
                if base.watch() or time.monotonic() >= deadline:
                    raise WireError("the server does not answer")
        finally:
            self._note_care()

    def _stand_beside(self, index: int, connection: Connection) -> None:
        if (before := self._beside.get(index)) is not None:
            self._end(index, before)
        self._beside[index] = connection
        self._beside_at[connection.handle] = index
        self._poller.add_descriptor(connection.handle)

    def _end(self, index: int, beside: Connection) -> None:
        if self._beside.get(index) is beside:
            del self._beside[index], self._beside_at[beside.handle]
            self._poller.remove_descriptor(beside.handle)
            beside.close()

    def _place(self, index: int, header: bytes) -> memoryview | None:
        request = self._due.get(index)
        return None if request is None else request.place(peek(header))

    def is_attached(self, index: int) -> bool:
        """Return whether memory is still shared with a server."""
        beside = self._beside.get(index)
        return beside is not None and beside.slabs is not None

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or restored connection; None after the timeout.

        Raises:
            PserverLost: a server's connection broke and was not restored; `endpoint` names the server.
            WireError: a server refused the key, has a different wire version, or is not a server.
            ConfigError: a server has different ports from those that the user specified.
        """
        deadline, rest_s = time.monotonic() + timeout_s, timeout_s
        while True:
            if self._reaching is not None:
                self._reaching.probe_missing()
            if self._interrupted:
                return Incoming(self._interrupted.pop(), None)
            if self._needs_care or self._poller.ready:
                if (incoming := self._poll()) is not None:
                    return incoming
                rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return None
            is_short = self._needs_care or self._reaching is not None
            self._poller.wait(min(rest_s, _LOOK_S) if is_short else rest_s)
            if not self._poller.ready:
                rest_s = deadline - time.monotonic()

    def _poll(self) -> Incoming | None:
        ready = self._poller.ready
        if not self._needs_care and ready <= self._beside_at.keys():
            for handle in tuple(ready):
                index = self._beside_at[handle]
                beside = self._beside.get(index)
                if beside is not None and (incoming := self._hear_beside(index, beside)) is not None:
                    return incoming
            return None
        try:
            return self._look_at_all()
        finally:
            self._note_care()

    def _note_care(self) -> None:
        self._needs_care = any(each.needs_care for each in self._base)

    def _look_at_all(self) -> Incoming | None:
        for index, base in enumerate(self._base):
            if base.watch():
                return Incoming(index, None)
            beside = self._beside.get(index)
            if beside is not None and beside.needs_base and base.needs_care:
                self._end(index, beside)
            elif beside is not None and (incoming := self._hear_beside(index, beside)) is not None:
                return incoming
            if (incoming := self._take_message(index, base)) is not None:
                if self._reaching is not None and incoming.message is not None:
                    self._meet(self._reaching, index, incoming.message)
                return incoming
        return None

    def _meet(self, reaching: Reaching, index: int, message: Message) -> None:
        reaching.met(index, message)
        if reaching.is_over:
            reaching.close()
            self._reaching = None

    def _hear_beside(self, index: int, beside: Connection) -> Incoming | None:
        if not self._poller.take_ready(beside.handle):
            return None
        try:
            incoming = self._take_message(index, beside)
        except (OSError, WireError, MemoryError) as error:
            _log.info(
                "the direct connection to pserver %s ended (%s); it is no longer used",
                self.endpoints[index],
                error,
            )
            self._end(index, beside)
            return Incoming(index, None)
        if self._beside.get(index) is beside:
            self._poller.expect_room(beside.handle, beside.is_sending)
            if incoming is not None and beside.has_more:
                self._poller.mark_ready(beside.handle)
        return incoming

    def _take_message(self, index: int, connection: Connection) -> Incoming | None:
        """Process the values of the request that is due, while they arrive; return any other message."""
        request = self._due.get(index)
        for _ in range(_BATCH):
            try:
                message = connection.take()
            except DamagedError as error:
                _log.warning("%s; requesting the message again", error)
                return Incoming(index, _question_for(error.message))
            if message is None:
                return None
            if request is None or not request.leads(message):
                return Incoming(index, message)
            for each in request.take(message):
                self.send(index, each)
            if request.is_over:
                return Incoming(index, message)
        self._poller.mark_ready(connection.handle)
        return None

    def hint(self, index: int) -> str:
        """Return a possible reason why a server does not answer."""
        return "check that it is running" if self._reaching is None else self._reaching.hint(index)

    def close(self) -> None:
        """Close all connections, after waiting up to half a second for messages in transit."""
        if self._reaching is not None:
            self._reaching.close()
        for index, beside in list(self._beside.items()):
            self._end(index, beside)
        self._base.close()


def _question_for(damaged: Message | None) -> Message | None:
    """Return a request to repeat the values of a damaged message, or None if everything must be requested."""
    if damaged is None or not isinstance(damaged.record, Values):
        return None
    return damaged._replace(record=Repeat(damaged.record.number), sections=())
