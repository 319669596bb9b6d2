# SPDX-License-Identifier: Apache-2.0
"""One connection of a trainer to a server, and what its monitor said: made anew when it broke.

A broken connection is noticed within moments when the other process died, and within about ten seconds when
the network went silent; short cuts heal.
"""

from __future__ import annotations

import time
from typing import Any

import zmq

from paddle.errors import WireError
from paddle.pserver.transports.liveness import Liveness
from paddle.pserver.transports.transport import Transport
from paddle.pserver.wire.chunk_wire import read_message
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, encode
from paddle.pserver.wire.poller import Doorbells, monitor_event, prepare

RENEW_S = 0.1
_HEARTBEAT_MS = 1000
_HEARTBEAT_TIMEOUT_MS = 4000
_RECONNECT_MS = 100
# Failures by protocol error are not asked for: telling of one makes ZeroMQ 4.3.5 forget that it is one, and the
# broken connection stays as it is.
_CLIENT_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH


class ZmqLink(Transport):
    """One connection and what its monitor said.

    ZeroMQ gives a connection up after a protocol error, which is what damage looks like to the cipher. So
    every broken connection gets a new socket; what was lost with the old one is asked for again.
    """

    def __init__(
        self, context: Any, bells: Doorbells, endpoint: str, keys: WireKeys | None, patience_s: float
    ) -> None:
        self.endpoint = endpoint
        self.liveness = Liveness(endpoint, patience_s)
        self._context, self._bells, self._keys = context, bells, keys
        self._renew_at: float | None = None
        self._is_new_socket = False  # and not the first one: what was queued before is gone
        self._connect()

    @property
    def sockets(self) -> tuple[Any, Any]:
        """What a wait for this server alone looks at."""
        return self._socket, self._monitor

    def send(self, message: Message) -> bool:
        """See `Transport.send`; False if the queue is full."""
        try:
            self._socket.send_multipart(encode(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self._bells.ring(self._socket)
        return True

    def take(self) -> Message | None:
        """See `Transport.take`."""
        parts = self._bells.take(self._socket)
        return None if parts is None else read_message([part.buffer for part in parts])

    def watch(self) -> bool:
        """Read the monitor; return True if what was sent before may be lost, and can be sent again."""
        if self._monitor not in self._bells.rung and not self.needs_care:
            return False
        came_back = False
        while (parts := self._bells.take(self._monitor)) is not None:
            event = monitor_event(parts).event
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                came_back = self.liveness.came_up() or self._is_new_socket
                self._renew_at, self._is_new_socket = None, False
            elif event == zmq.EVENT_DISCONNECTED:
                came_back = False
                self.liveness.went_down()
                self._renew_at = time.monotonic() + RENEW_S
            else:
                raise WireError(f"pserver {self.endpoint} knows another job's key than ours", self.endpoint)
        self.liveness.check()
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._renew_at = None
            self.close()
            self._connect()
            self._is_new_socket = True
        return came_back

    @property
    def needs_care(self) -> bool:
        """Whether `watch` must be called soon, whatever arrives."""
        return self.liveness.is_down or self._renew_at is not None

    def close(self, linger_ms: int = 0) -> None:
        """Close the connection."""
        for each in (self._socket, self._monitor):
            self._bells.remove(each)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)

    def _connect(self) -> None:
        self.bell = self._socket = self._context.socket(zmq.DEALER)
        prepare(self._socket)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        # Heartbeats go out from here alone. ZeroMQ 4.3.5 aborts the process when one falls due on a connection
        # that broke while its queue was full, and a server's queue is for others to fill.
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TTL, _HEARTBEAT_TIMEOUT_MS)
        if self._keys is not None:
            self._socket.curve_serverkey = self._keys.server.public
            self._socket.curve_secretkey = self._keys.client.secret
            self._socket.curve_publickey = self._keys.client.public
        self._monitor = self._socket.get_monitor_socket(_CLIENT_EVENTS)
        for each in (self._socket, self._monitor):
            self._bells.add(each)
        try:
            self._socket.connect(f"tcp://{self.endpoint}")
        except zmq.ZMQError:
            self.close()
            raise
