# SPDX-License-Identifier: Apache-2.0
"""The thread of one port: reads messages from the socket, passes them to the engine, and sends the replies.

Only the first error of each peer is logged, and only for the first 256 peers, so that no peer can fill the log. All
other errors are counted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from paddle.errors import PserverError, WireError
from paddle.pserver.server.engine import Engine, Reply
from paddle.pserver.server.long_work import Attended
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.transports import table
from paddle.pserver.transports.table import BaseListener
from paddle.pserver.transports.transport import Listener, Site
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.message import READER, DamagedError, Frame, Message, error_message, peer_name
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import WHOLE, Chunk, Error, Repeat
from paddle_node.contract.facts import Queue

_log = logging.getLogger(__name__)

_TICK_S = 1.0
_REPORT_EVERY_S = 60.0
_MAX_PEERS = 256


class Port:
    """Serves one engine through its listeners. All methods except `stop` belong to the thread that calls `serve`.

    Attributes:
        poller: the poller of the thread.
        push_counts, queue: copies of the engine's values, at most two seconds old; any thread may read them.
    """

    def __init__(
        self,
        base: BaseListener,
        engine: Engine | Attended,
        beside: Sequence[Listener] = (),
    ) -> None:
        self._base, self._engine = base, engine if isinstance(engine, Attended) else Attended(engine)
        self.poller = base.poller
        self.push_counts: tuple[PushCount, ...] = ()
        self.queue = Queue()
        self._listeners: Sequence[Listener] = (base, *beside)
        self._inviting = {each.invited_by: each for each in beside if each.invited_by is not None}
        for each in self._listeners:
            each.open(self)
        self._complained: set[bytes] = set()
        self._refused = 0
        self._reported = 0
        self._reported_at = 0.0

    def stop(self) -> None:
        """Make `serve` return, from another thread."""
        self._base.wake()

    def serve(self) -> None:
        """Process messages until `stop` is called, then close all listeners."""
        now = time.monotonic()
        next_tick = now + _TICK_S
        ready = self.poller.ready
        try:
            while True:
                self.poller.wait(max(min(next_tick - now, self._engine.background()), 0.0))
                if self._base.wake_up in ready:
                    return
                for listener in self._listeners:
                    if not ready.isdisjoint(listener.handles):
                        listener.serve()
                if self._engine.is_at_work:
                    self._deliver(self._engine.resume())
                now = time.monotonic()
                if now >= next_tick:
                    next_tick = now + _TICK_S
                    self._deliver(self._engine.tick())
                    self._report_rejected()
                    if not self._engine.is_at_work:
                        self.push_counts = self._engine.engine.push_counts()
                        self.queue = self._engine.engine.queue()
                    for listener in self._listeners:
                        listener.tick()
        finally:
            if not self._engine.is_at_work:
                self.push_counts = self._engine.engine.push_counts()
            for listener in reversed(self._listeners):
                listener.close()

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """Decode the received frames of a message and handle it; ask for a damaged message again."""
        try:
            message = decode(frames, found)
        except DamagedError as error:
            self._complain(address, f"{error}; requesting the message again")
            damaged = error.message
            record = None if damaged is None else damaged.record
            which = record.number if isinstance(record, Chunk) else WHOLE
            request = damaged.request if damaged is not None else 0
            self._deliver([Reply(address, Message(Repeat(which), request=request))])
        except WireError as error:
            self._deliver([Reply(address, error_message(str(error)))])
        else:
            inviting = self._inviting.get(type(message.record))
            if inviting is not None and message.trainer != READER:
                self._send(address, inviting.invite(address, message, self._base.port))
            else:
                self.handle(address, message)

    def handle(self, address: bytes, message: Message) -> None:
        """Execute a request and send the replies that are due; see `transport.Dispatcher`."""
        self._deliver(self._engine.handle(address, message))

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """Return the memory that the sender of a message may map; see `transport.Dispatcher`."""
        if self._engine.is_at_work:
            raise PserverError("cannot share memory now because the server is busy; retry")
        return self._engine.engine.shared_slabs(message)

    def lose(self, address: bytes) -> None:
        """Inform the listeners and the engine that the connection from this address ended."""
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
                _log.debug("a reply to %s could not be delivered; it is queued", peer_name(message.trainer))

    def _send(self, address: bytes, message: Message) -> bool:
        for listener in reversed(self._listeners):  # the base takes any address
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

    def _report_rejected(self) -> None:
        rejected = sum(each.rejected for each in self._listeners)
        total = self._refused + rejected
        if total > self._reported and time.monotonic() - self._reported_at > _REPORT_EVERY_S:
            self._reported, self._reported_at = total, time.monotonic()
            _log.warning(
                "port %d: %d connections used a different protocol, and %d more messages were malformed so far",
                self._base.port,
                rejected,
                self._refused,
            )


def open_listeners(site: Site, *, shares_memory: bool = True) -> list[Listener]:
    """Open the listeners of the available transports other than the base, to which connections can switch.

    Args:
        shares_memory: whether trainers on the same node may share memory with the server.
    """
    opened = [each.server(site) for each in table.TRANSPORTS if shares_memory or not each.is_within_node]
    return [each for each in opened if each is not None]
