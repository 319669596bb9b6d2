# SPDX-License-Identifier: Apache-2.0
"""A trainer's connections to all its servers: ZeroMQ, and what is faster beside it. `inproc` is the twin of it."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence

import zmq

from paddle.endpoints import check_endpoints
from paddle.errors import ConfigError, WireError
from paddle.pserver.client.conversation import Incoming
from paddle.pserver.client.reachability import Reaching
from paddle.pserver.client.transfer import Lane
from paddle.pserver.transports.local_link import LocalLink
from paddle.pserver.transports.stream_link import StreamLink
from paddle.pserver.transports.zmq_link import RENEW_S, Link
from paddle.pserver.wire import arrival
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.chunk_wire import read_message
from paddle.pserver.wire.heap import keep_message_memory
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import DamagedError, Frame, Message, peek
from paddle.pserver.wire.poller import LINGER_MS, Doorbells
from paddle.pserver.wire.port_range import PortRange
from paddle.pserver.wire.verbs import Configured, OpenStream, Repeat, Values

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
        self._local: dict[int, LocalLink] = {}
        self._streams: dict[int, StreamLink] = {}
        self._lanes: dict[int, Lane] = {}
        self._interrupted: set[int] = set()  # what was on a stream when it ended must be sent again
        self._is_walled = False
        self._reaching: Reaching | None = None
        keep_message_memory()
        # Encryption is most of the work of an I/O thread: one for each server, as far as there are cores for both ends.
        cores = len(os.sched_getaffinity(0))
        threads = min(len(endpoints), _MAX_IO_THREADS, cores // 2) if keys is not None else 1
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(max(threads, 1))
        self._bells = Doorbells()
        self._links: list[Link] = []
        try:
            for endpoint in endpoints:
                self._links.append(Link(self._context, self._bells, endpoint, keys, patience_s))
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
        local = self._local.get(index)
        if local is not None and local.carries(message):
            if local.send(message):
                return
            self._detach(index)
        stream = self._streams.get(index)
        if stream is not None:
            if stream.send(message):
                self._bells.expect_room(stream.sock.fileno(), stream.is_sending)
                return
            self._end_stream(index)
            self._interrupted.add(index)
        with contextlib.suppress(zmq.Again):
            self._links[index].send(message)

    def expect(self, index: int, lane: Lane | None) -> None:
        """Tell what values are due from a server, instead of whatever was told before; None: none are."""
        if lane is None:
            self._lanes.pop(index, None)
        else:
            self._lanes[index] = lane

    def attach(self, index: int, hello: Message, size: int) -> LocalLink | None:
        """Share memory with a server, if it is of this node and lets us; pushes of that memory then stay in it.

        Else, where the wire is plain, open a stream to it, if it can be reached.

        Args:
            hello: carries the trainer's session.
            size: elements of the server's slab; 0 for a server that has none.
        """
        local = self._share(index, hello, size) if self._within_node else None
        if local is None and size and self._keys is None and not self._is_walled:
            self._open_stream(index, hello, size)
        return local

    def _share(self, index: int, hello: Message, size: int) -> LocalLink | None:
        try:
            local = LocalLink(self.endpoints[index], self._keys, hello, size)
        except (OSError, WireError, MemoryError) as error:
            _log.debug("no shared memory with pserver %s: %s", self.endpoints[index], error)
            return None
        self._detach(index)
        self._local[index] = local
        self._bells.add_descriptor(local.sock.fileno())
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
                self._bells.wait(deadline - time.monotonic(), link.sockets)
                if link.watch() or time.monotonic() >= deadline:
                    _log.info(
                        "no stream to pserver %s (it does not answer); on without", self.endpoints[index]
                    )
                    return
            stream = StreamLink(self.endpoints[index], invitation, lambda head: self._place(index, head))
        except (OSError, WireError, zmq.Again) as error:
            self._is_walled = isinstance(error, TimeoutError)
            _log.info("no stream to pserver %s (%s); on without", self.endpoints[index], error)
            return
        arrival.prepare(4 * size)
        self._streams[index] = stream
        self._bells.add_descriptor(stream.sock.fileno())

    def _invited(self, link: Link, asked: Message) -> Message | None:
        """Return the answer to a question for a stream, if it is here.

        The CONFIGURE before has the same number, and where it was asked for twice its reply comes twice.
        """
        while (frames := link.take()) is not None:
            answer = self._read(frames)
            if answer is None or answer.request != asked.request:
                continue
            if not isinstance(answer.record, Configured):
                return answer
        return None

    def _end_stream(self, index: int) -> None:
        stream = self._streams.pop(index, None)
        if stream is not None:
            self._bells.remove_descriptor(stream.sock.fileno())
            stream.close()

    def _place(self, index: int, header: bytes) -> memoryview | None:
        lane = self._lanes.get(index)
        return None if lane is None else lane.place(peek(header))

    def is_attached(self, index: int) -> bool:
        """Return whether memory is still shared with a server."""
        return index in self._local

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over.

        Raises:
            PserverLost: a server's connection broke and did not come back; `endpoint` says whose.
            WireError: a server refused our key, or speaks another wire version, or is no server.
            ConfigError: a server has other ports than the user says.
        """
        deadline = time.monotonic() + timeout_s
        # A broken link is looked at again soon; whole ones wake us by themselves.
        any_down = any(link.needs_care for link in self._links)
        while True:
            if self._reaching is not None:
                self._reaching.go_on()
            if self._interrupted:
                return Incoming(self._interrupted.pop(), None)
            if any_down or self._bells.has_news:
                if (incoming := self._look()) is not None:
                    return incoming
                any_down = any(link.needs_care for link in self._links)
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return None
            is_short = any_down or self._reaching is not None
            self._bells.wait(min(rest_s, RENEW_S) if is_short else rest_s)

    def _look(self) -> Incoming | None:
        for index, link in enumerate(self._links):
            if link.watch():
                return Incoming(index, None)
            if link.needs_care:
                self._end_stream(index)
            if (incoming := self._hear_locally(index) or self._hear_stream(index)) is not None:
                return incoming
            frames = link.take()
            if frames is not None:
                message = self._read(frames)
                if self._reaching is not None and message is not None:
                    self._meet(self._reaching, index, message)
                return Incoming(index, message)
        return None

    def _meet(self, reaching: Reaching, index: int, message: Message) -> None:
        reaching.met(index, message)
        if reaching.is_over:
            reaching.close()
            self._reaching = None

    def _read(self, frames: Sequence[Frame], found: Findings | None = None) -> Message | None:
        try:
            return read_message(frames, found)
        except DamagedError as error:
            _log.warning("%s; asking again", error)
            damaged = error.message
            if damaged is None or not isinstance(damaged.record, Values):
                return None
            return damaged._replace(record=Repeat(damaged.record.number), sections=())

    def _hear_locally(self, index: int) -> Incoming | None:
        local = self._local.get(index)
        if local is None or not self._bells.is_ready(local.sock.fileno()):
            return None
        try:
            message = local.take()
        except (OSError, WireError):
            self._detach(index)
            return Incoming(index, None)
        return None if message is None else Incoming(index, message)

    def _hear_stream(self, index: int) -> Incoming | None:
        stream = self._streams.get(index)
        if stream is None or not self._bells.is_ready(stream.sock.fileno()):
            return None
        lane = self._lanes.get(index)
        try:
            for _ in range(_BATCH):
                frames = stream.take()
                if frames is None:
                    return None
                message = self._read(frames, stream.found)
                if lane is not None and message is not None and lane.leads(message):
                    if not all(map(stream.send, lane.go_on(message))):
                        raise ConnectionResetError("it takes no more")
                    if not lane.transfer.is_over:
                        continue
                self._bells.ring(stream.sock.fileno())  # more messages may lie in its buffer
                return Incoming(index, message)
            self._bells.ring(stream.sock.fileno())
            return None
        except (OSError, WireError, MemoryError) as error:
            _log.info("the stream to pserver %s ended (%s); on without", self.endpoints[index], error)
            self._end_stream(index)
            return Incoming(index, None)
        finally:
            if index in self._streams:
                self._bells.expect_room(stream.sock.fileno(), stream.is_sending)

    def _detach(self, index: int) -> None:
        local = self._local.pop(index, None)
        if local is not None:
            self._bells.remove_descriptor(local.sock.fileno())
            local.close()

    def hint(self, index: int) -> str:
        """Return what may be the matter with a server that does not answer."""
        return "does it run?" if self._reaching is None else self._reaching.hint(index)

    def close(self) -> None:
        """Close all connections; messages on their way get half a second."""
        if self._reaching is not None:
            self._reaching.close()
        for index in list(self._local):
            self._detach(index)
        for index in list(self._streams):
            self._end_stream(index)
        for link in self._links:
            link.close(LINGER_MS)
        self._context.term()
