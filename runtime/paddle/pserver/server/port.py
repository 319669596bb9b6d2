# SPDX-License-Identifier: Apache-2.0
"""The thread behind one port: takes messages off the socket, asks the engine, sends what it answers.

What a peer does wrong is logged once for each peer and counted after that, so that nobody can fill the log;
so are all after the first 256 peers.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from paddle.errors import WireError
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.transports.local_door import LocalDoor
from paddle.pserver.transports.stream_door import StreamDoor
from paddle.pserver.transports.transport import Listener
from paddle.pserver.transports.zmq_door import Router
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.chunk_wire import read_message
from paddle.pserver.wire.message import DamagedError, Frame, Message, error_message
from paddle.pserver.wire.reader_protocol import READER, peer_name
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import WHOLE, Chunk, Error, OpenStream, Repeat
from paddle_node.contract.facts import Queue

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_TELL_EVERY_S = 60.0
_MAX_PEERS = 256


class Port:
    """One engine on one socket; everything but `stop` belongs to the thread that calls `serve`.

    Attributes:
        bells: see `Counter.bells`.
        push_counts, queue: the engine's as they were less than two seconds ago; any thread may read them.
    """

    def __init__(
        self,
        router: Router,
        engine: Engine,
        local: LocalDoor | None = None,
        streams: StreamDoor | None = None,
    ) -> None:
        self._router, self._engine, self._streams = router, engine, streams
        self.bells = router.bells
        self.push_counts: tuple[PushCount, ...] = ()
        self.queue = Queue()
        self._listeners: list[Listener] = [each for each in (router, local, streams) if each is not None]
        for each in self._listeners:
            each.open(self)
        self._complained: set[bytes] = set()
        self._refused = 0
        self._told = 0
        self._told_at = 0.0

    def stop(self) -> None:
        """End `serve` in another thread."""
        self._router.wake()

    def serve(self) -> None:
        """Work until `stop`, then close all entrances."""
        now = time.monotonic()
        next_tick = now + _TICK_S
        try:
            while self._router.wait(max(min(next_tick - now, self._engine.background()), 0.0)):
                for listener in self._listeners:
                    listener.serve()
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + _TICK_S
                    self._deliver(self._engine.tick())
                    self._tell_strangers()
                    self.push_counts = self._engine.push_counts()
                    self.queue = self._engine.queue()
                    for listener in self._listeners:
                        listener.tick()
        finally:
            self.push_counts = self._engine.push_counts()
            for listener in reversed(self._listeners):
                listener.close()

    # -- for listeners

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """See `Counter.read`; what is damaged is asked for again."""
        try:
            message = read_message(frames, found)
        except DamagedError as error:
            self._complain(address, f"{error}; asking for it again")
            damaged = error.message
            record = None if damaged is None else damaged.record
            which = record.number if isinstance(record, Chunk) else WHOLE
            request = damaged.request if damaged is not None else 0
            self._deliver([Reply(address, Message(Repeat(which), request=request))])
        except WireError as error:
            self._deliver([Reply(address, error_message(str(error)))])
        else:
            asks_for_stream = isinstance(message.record, OpenStream) and message.trainer != READER
            if asks_for_stream and self._streams is not None:
                self._send(address, self._streams.invite(address, message, self._router.port))
            else:
                self.handle(address, message)

    def handle(self, address: bytes, message: Message) -> None:
        """See `Counter.handle`."""
        self._deliver(self._engine.handle(address, message))

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """See `Counter.shared_slabs`."""
        return self._engine.shared_slabs(message)

    def lose(self, address: bytes) -> None:
        """See `Counter.lose`."""
        for listener in self._listeners:
            listener.lose_host(address)
        self._engine.lose(address)

    def _deliver(self, replies: Sequence[Reply]) -> None:
        for address, message in replies:
            if isinstance(message.record, Error):
                self._complain(
                    address, f"refused {peer_name(message.trainer)}: {message.section('').as_text()}"
                )
            if not self._send(address, message):
                _log.debug("a reply to %s found nobody; it is kept", peer_name(message.trainer))

    def _send(self, address: bytes, message: Message) -> bool:
        for listener in reversed(self._listeners):  # the router takes any address
            sent = listener.send(address, message)
            if sent is not None:
                return sent
        return False

    def _complain(self, address: bytes, text: str) -> None:
        if address not in self._complained and len(self._complained) < _MAX_PEERS:
            self._complained.add(address)
            _log.warning("%s", text)
        else:
            self._refused += 1

    def _tell_strangers(self) -> None:
        strangers = self._router.strangers + (self._streams.strangers if self._streams is not None else 0)
        total = self._refused + strangers
        if total > self._told and time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._told, self._told_at = total, time.monotonic()
            _log.warning(
                "port %d: %d connections that never spoke our language and %d more wrong messages so far",
                self._router.port,
                strangers,
                self._refused,
            )
