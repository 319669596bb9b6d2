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
from paddle.pserver.server.local_port import LocalPort
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.transports.local_door import LocalDoor
from paddle.pserver.transports.stream_door import StreamDoor
from paddle.pserver.transports.stream_port import StreamPort
from paddle.pserver.transports.zmq_door import Router
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import DamagedError, Frame, Message, error_message
from paddle.pserver.wire.reader_protocol import READER, peer_name
from paddle.pserver.wire.verbs import WHOLE, Chunk, Error, OpenStream, Repeat

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_TELL_EVERY_S = 60.0
_BATCH = 64
_MAX_PEERS = 256


class Port:
    """One engine on one socket; everything but `stop` belongs to the thread that calls `serve`.

    Attributes:
        push_counts: the engine's as they were less than two seconds ago; any thread may read them.
    """

    def __init__(
        self,
        router: Router,
        engine: Engine,
        door: LocalDoor | None = None,
        streams: StreamDoor | None = None,
    ) -> None:
        self._router, self._engine = router, engine
        self.push_counts: tuple[PushCount, ...] = ()
        self._streams: StreamPort | None = None
        if streams is not None:
            self._streams = StreamPort(streams, router.bells, self._handle, engine.lose)
        self._local = LocalPort(door, engine, router.bells, self._deliver) if door is not None else None
        self._complained: set[bytes] = set()
        self._refused = 0
        self._told = 0
        self._told_at = 0.0

    def stop(self) -> None:
        """End `serve` in another thread."""
        self._router.wake()

    def serve(self) -> None:
        """Work until `stop`, then close the socket."""
        next_tick = time.monotonic() + _TICK_S
        try:
            while self._router.wait(max(min(next_tick - time.monotonic(), self._engine.background()), 0.0)):
                if self._router.has_news:
                    self._receive()
                if self._local is not None:
                    self._local.serve()
                if self._streams is not None:
                    self._streams.serve()
                if time.monotonic() >= next_tick:
                    next_tick = time.monotonic() + _TICK_S
                    self._deliver(self._engine.tick())
                    self._tell_strangers()
                    self.push_counts = self._engine.push_counts()
                    for entrance in (self._local, self._streams):
                        if entrance is not None:
                            entrance.tick()
        finally:
            self.push_counts = self._engine.push_counts()
            if self._streams is not None:
                self._streams.close()
            if self._local is not None:
                self._local.close()
            self._router.close()

    def _receive(self) -> None:
        for _ in range(_BATCH):
            received = self._router.receive()
            # Before the message: its connection may have taken over the descriptor of a broken one.
            for address in self._router.lost():
                if self._streams is not None:
                    self._streams.lose_host(address)
                self._engine.lose(address)
            if received is None:
                return
            self._handle(*received)

    def _handle(self, address: bytes, frames: list[Frame], found: Findings | None = None) -> None:
        try:
            message = self._router.read(frames, found)
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
            if (
                isinstance(message.record, OpenStream)
                and self._streams is not None
                and message.trainer != READER
            ):
                self._router.send(address, self._streams.invite(address, message, self._router.port))
            else:
                self._deliver(self._engine.handle(address, message))

    def _deliver(self, replies: Sequence[Reply]) -> None:
        for address, message in replies:
            if isinstance(message.record, Error):
                self._complain(
                    address, f"refused {peer_name(message.trainer)}: {message.section('').as_text()}"
                )
            if not self._send(address, message):
                _log.debug("a reply to %s found nobody; it is kept", peer_name(message.trainer))

    def _send(self, address: bytes, message: Message) -> bool:
        if self._local is not None and self._local.has(address):
            return self._local.send(address, message)
        sent = self._streams.send(address, message) if self._streams is not None else None
        return self._router.send(address, message) if sent is None else sent

    def _complain(self, address: bytes, text: str) -> None:
        if address not in self._complained and len(self._complained) < _MAX_PEERS:
            self._complained.add(address)
            _log.warning("%s", text)
        else:
            self._refused += 1

    def _tell_strangers(self) -> None:
        total = self._refused + self._router.strangers
        if total > self._told and time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._told, self._told_at = total, time.monotonic()
            _log.warning(
                "port %d: %d connections that never spoke our language and %d more wrong messages so far",
                self._router.port,
                self._router.strangers,
                self._refused,
            )
