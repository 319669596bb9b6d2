# SPDX-License-Identifier: Apache-2.0
"""A trainer's connections to all its servers: ZeroMQ, and what is faster beside it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

import zmq

from paddle.endpoints import check_endpoints
from paddle.errors import ConfigError, WireError
from paddle.pserver.client.conversation import Incoming
from paddle.pserver.client.reachability import Reaching
from paddle.pserver.client.transfer import Lane
from paddle.pserver.transports.local_link import LocalLink
from paddle.pserver.transports.stream_link import StreamLink
from paddle.pserver.transports.transport import Transport
from paddle.pserver.transports.zmq_link import RENEW_S, ZmqLink
from paddle.pserver.wire import arrival
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import DamagedError, Message, peek
from paddle.pserver.wire.poller import LINGER_MS, Doorbells
from paddle.pserver.wire.port_range import PortRange
from paddle.pserver.wire.verbs import Configured, Leave, OpenStream, Repeat, Values
from paddle.sealing import is_possible

_log = logging.getLogger(__name__)

_INVITED_WITHIN_S = 10.0
_MAX_IO_THREADS = 4
_BATCH = 64  # messages of one stream before others are looked at


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
        """Begin to connect to each "ip:port"; nobody need listen there yet.

        Args:
            endpoints: "ip:port" of each server.
            keys: None: the wire is plain.
            patience_s: how long a server that was there may be gone before it is lost.
            within_node: whether memory may be shared with servers of this node.
            first_answer_s: how long the client waits for each server's first answer; meanwhile `receive` tells what is
                the matter. None: nobody is to be told.
            ports: what the user says that each server has, if that is to be compared.

        Raises:
            ConfigError: an endpoint cannot be read, or is there twice.
        """
        check_endpoints(endpoints, "pserver endpoint")
        self.endpoints = tuple(endpoints)
        self._keys, self._within_node = keys, within_node
        self._beside: dict[int, Transport] = {}  # what is faster than a server's ZeroMQ connection
        self._beside_at: dict[Any, int] = {}  # its bell -> the server
        self._needs_care = (
            False  # a ZeroMQ connection is to be looked at soon; whole ones wake us by themselves
        )
        self._lanes: dict[int, Lane] = {}
        self._interrupted: set[int] = set()  # what was on a pipe when it ended must be sent again
        self._is_walled = False
        self._reaching: Reaching | None = None
        # Encryption is most of the work of an I/O thread: one for each server, as far as there are cores for both ends.
        cores = len(os.sched_getaffinity(0))
        threads = min(len(endpoints), _MAX_IO_THREADS, cores // 2) if keys is not None else 1
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(max(threads, 1))
        self._bells = Doorbells()
        self._links: list[ZmqLink] = []
        try:
            for endpoint in endpoints:
                self._links.append(ZmqLink(self._context, self._bells, endpoint, keys, patience_s))
        except zmq.ZMQError as error:
            self.close()
            raise ConfigError(
                f"pserver endpoint {endpoint!r}: {error.strerror}; expected 'ip:port'"
            ) from error
        if first_answer_s is not None:
            self._reaching = Reaching(
                self.endpoints,
                [link.liveness for link in self._links],
                is_encrypted=keys is not None,
                timeout_s=first_answer_s,
                ports=ports,
            )

    def send(self, index: int, message: Message) -> None:
        """Queue a message; its arrays must not change before the reply is there.

        What cannot be queued is as good as lost on the way: the connection broke and is made anew.
        """
        if isinstance(message.record, Leave):
            self._links[index].liveness.is_leaving = True
        beside = self._beside.get(index)
        if beside is not None and beside.carries(message):
            if beside.send(message):
                self._bells.expect_room(beside.bell, beside.is_sending)
                return
            self._end(index, beside)
            if beside.is_pipe:
                self._interrupted.add(index)
        self._links[index].send(message)

    def expect(self, index: int, lane: Lane | None) -> None:
        """Tell what values are due from a server, instead of whatever was told before; None: none are."""
        if lane is None:
            self._lanes.pop(index, None)
        else:
            self._lanes[index] = lane

    def attach(self, index: int, hello: Message, size: int) -> LocalLink | None:
        """Share memory with a server, if it is of this node and lets us; pushes of that memory then stay in it.

        Else open a stream to it, if it can be reached, and where there is a key, if it can be sealed.

        Args:
            hello: carries the trainer's session.
            size: elements of the server's slab; 0 for a server that has none.
        """
        local = self._share(index, hello, size) if self._within_node else None
        if local is None and size and (self._keys is None or is_possible()) and not self._is_walled:
            try:
                self._open_stream(index, hello, size)
            finally:
                self._note_care()
        return local

    def _share(self, index: int, hello: Message, size: int) -> LocalLink | None:
        try:
            local = LocalLink(self.endpoints[index], self._keys, hello, size)
        except (OSError, WireError, MemoryError) as error:
            _log.debug("no shared memory with pserver %s: %s", self.endpoints[index], error)
            return None
        self._stand_beside(index, local)
        _log.info(
            "pserver %s is on this node: gradients and values stay in shared memory", self.endpoints[index]
        )
        return local

    def _open_stream(self, index: int, hello: Message, size: int) -> None:
        link = self._links[index]
        asked = hello._replace(record=OpenStream())
        deadline = time.monotonic() + _INVITED_WITHIN_S
        try:
            link.send(asked)
            while (invitation := self._invited(link, asked)) is None:
                rest_s = deadline - time.monotonic()
                self._bells.wait(min(rest_s, RENEW_S) if link.needs_care else rest_s, link.sockets)
                if link.watch() or time.monotonic() >= deadline:
                    _log.info(
                        "no stream to pserver %s (it does not answer); on without", self.endpoints[index]
                    )
                    return
            stream = StreamLink(
                self.endpoints[index], invitation, lambda head: self._place(index, head), self._keys
            )
        except (OSError, WireError) as error:
            self._is_walled = isinstance(error, TimeoutError)
            _log.info("no stream to pserver %s (%s); on without", self.endpoints[index], error)
            return
        arrival.prepare(4 * size)
        self._stand_beside(index, stream)

    @staticmethod
    def _invited(link: ZmqLink, asked: Message) -> Message | None:
        """Return the answer to a question for a stream, if it is here.

        The CONFIGURE before has the same number, and where it was asked for twice its reply comes twice.
        """
        while (answer := link.take()) is not None:
            if answer.request == asked.request and not isinstance(answer.record, Configured):
                return answer
        return None

    def _stand_beside(self, index: int, transport: Transport) -> None:
        if (before := self._beside.get(index)) is not None:
            self._end(index, before)
        self._beside[index] = transport
        self._beside_at[transport.bell] = index
        self._bells.add_descriptor(transport.bell)

    def _end(self, index: int, beside: Transport) -> None:
        if self._beside.get(index) is beside:
            del self._beside[index], self._beside_at[beside.bell]
            self._bells.remove_descriptor(beside.bell)
            beside.close()

    def _place(self, index: int, header: bytes) -> memoryview | None:
        lane = self._lanes.get(index)
        return None if lane is None else lane.place(peek(header))

    def is_attached(self, index: int) -> bool:
        """Return whether memory is still shared with a server."""
        return isinstance(self._beside.get(index), LocalLink)

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over.

        Raises:
            PserverLost: a server's connection broke and did not come back; `endpoint` says whose.
            WireError: a server refused our key, or speaks another wire version, or is no server.
            ConfigError: a server has other ports than the user says.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self._reaching is not None:
                self._reaching.go_on()
            if self._interrupted:
                return Incoming(self._interrupted.pop(), None)
            if (self._needs_care or self._bells.rung) and (incoming := self._look()) is not None:
                return incoming
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return None
            is_short = self._needs_care or self._reaching is not None
            self._bells.wait(min(rest_s, RENEW_S) if is_short else rest_s)

    def _look(self) -> Incoming | None:
        rung = self._bells.rung
        if not self._needs_care and rung <= self._beside_at.keys():
            for index in [self._beside_at[bell] for bell in rung]:
                beside = self._beside.get(index)
                if beside is not None and (incoming := self._hear_beside(index, beside)) is not None:
                    return incoming
            return None
        try:
            return self._look_at_all()
        finally:
            self._note_care()

    def _note_care(self) -> None:
        self._needs_care = any(link.needs_care for link in self._links)

    def _look_at_all(self) -> Incoming | None:
        for index, link in enumerate(self._links):
            if link.watch():
                return Incoming(index, None)
            beside = self._beside.get(index)
            if beside is not None and beside.needs_connection and link.needs_care:
                self._end(index, beside)
            elif beside is not None and (incoming := self._hear_beside(index, beside)) is not None:
                return incoming
            if (incoming := self._hear(index, link)) is not None:
                if self._reaching is not None and incoming.message is not None:
                    self._meet(self._reaching, index, incoming.message)
                return incoming
        return None

    def _meet(self, reaching: Reaching, index: int, message: Message) -> None:
        reaching.met(index, message)
        if reaching.is_over:
            reaching.close()
            self._reaching = None

    def _hear_beside(self, index: int, beside: Transport) -> Incoming | None:
        if not self._bells.is_ready(beside.bell):
            return None
        try:
            incoming = self._hear(index, beside)
        except (OSError, WireError, MemoryError) as error:
            _log.info("what was beside pserver %s ended (%s); on without", self.endpoints[index], error)
            self._end(index, beside)
            return Incoming(index, None)
        if self._beside.get(index) is beside:
            self._bells.expect_room(beside.bell, beside.is_sending)
            if incoming is not None and beside.has_more:
                self._bells.ring(beside.bell)
        return incoming

    def _hear(self, index: int, transport: Transport) -> Incoming | None:
        """Go on with the transfer that is due, as long as its values arrive; return what else there is."""
        lane = self._lanes.get(index)
        for _ in range(_BATCH):
            try:
                message = transport.take()
            except DamagedError as error:
                _log.warning("%s; asking again", error)
                return Incoming(index, _question_for(error.message))
            if message is None:
                return None
            if lane is None or not lane.leads(message):
                return Incoming(index, message)
            for each in lane.go_on(message):
                self.send(index, each)
            if lane.transfer.is_over:
                return Incoming(index, message)
        self._bells.ring(transport.bell)
        return None

    def hint(self, index: int) -> str:
        """Return what may be the matter with a server that does not answer."""
        return "does it run?" if self._reaching is None else self._reaching.hint(index)

    def close(self) -> None:
        """Close all connections; messages on their way get half a second."""
        if self._reaching is not None:
            self._reaching.close()
        for index, beside in list(self._beside.items()):
            self._end(index, beside)
        for link in self._links:
            link.close(LINGER_MS)
        self._context.term()


def _question_for(damaged: Message | None) -> Message | None:
    """Return what a server would say to have the values of a message asked for again; None: all must be."""
    if damaged is None or not isinstance(damaged.record, Values):
        return None
    return damaged._replace(record=Repeat(damaged.record.number), sections=())
