# SPDX-License-Identifier: Apache-2.0
"""A server's end of the wire: messages over ZeroMQ on one port.

With the keys of a job, frames are encrypted and both sides proved to know them (see `keys`). Without, they
are plain. `links` is the trainer's end.
"""

from __future__ import annotations

import contextlib
import errno
import itertools

import zmq

from paddle.errors import ConfigError, PortBusy
from paddle.pserver.transports.transport import Counter, Listener
from paddle.pserver.wire.adaptive_wait import AdaptiveWait
from paddle.pserver.wire.keys import Context
from paddle.pserver.wire.message import Frame, Message, encode
from paddle.pserver.wire.poller import LINGER_MS, Doorbells, monitor_event, prepare

_NUMBERS = itertools.count()
_BATCH = 64  # messages before other entrances are looked at
_SERVER_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_LOOKED = (errno.EPIPE, errno.ECONNRESET)  # it went before it said anything wrong


class Router(Listener):
    """The server's end of one port. Used by one thread, except `wake`.

    Attributes:
        strangers: how many connections ended that said something wrong, or nothing at all; not those that only looked
            whether somebody listens, and went.
    """

    def __init__(
        self, context: Context, address: str, port: int, patience: AdaptiveWait | None = None
    ) -> None:
        """Bind; port 0 takes a free one.

        Args:
            context: shared by the servers of a process.
            address: IPv4 or IPv6 address, or "*" for all.
            port: TCP port.
            patience: how `wait` waits.

        Raises:
            PortBusy: another process has the port.
            ConfigError: the address is not of this machine, or the port not ours to use.
        """
        self._socket = context.zmq.socket(zmq.ROUTER)
        prepare(self._socket)
        self._socket.setsockopt(zmq.ROUTER_MANDATORY, 1)
        if context.keys is not None:
            self._socket.curve_server = True
            self._socket.curve_secretkey = context.keys.server.secret
            self._socket.curve_publickey = context.keys.server.public
        host = f"[{address}]" if ":" in address else address
        try:
            self._socket.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self._socket.close()
            text = f"cannot listen on {host}:{port}: {zmq.strerror(error.errno or 0)}"
            if error.errno == errno.EADDRINUSE:
                raise PortBusy(text, f"{host}:{port}") from error
            raise ConfigError(f"{text}; give an address of this machine as --bind, or --nics") from error
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._monitor = self._socket.get_monitor_socket(_SERVER_EVENTS)
        self._peers: dict[int, bytes] = {}  # descriptor of the connection -> address
        self._lost: list[bytes] = []
        self.strangers = 0
        self._port: Counter
        wake_at = f"inproc://wake-{next(_NUMBERS)}"  # of a socket that was closed it may be taken for a while
        self._wake_in = context.zmq.socket(zmq.PAIR)
        self._wake_in.bind(wake_at)
        self._wake_out = context.zmq.socket(zmq.PAIR)
        self._wake_out.connect(wake_at)
        self.bells = Doorbells(patience)
        for each in (self._socket, self._monitor, self._wake_in):
            self.bells.add(each)

    def wake(self) -> None:
        """End the wait of `wait` in another thread; call it once."""
        with contextlib.suppress(zmq.ZMQError):  # that thread ended by itself and closed the port
            self._wake_out.send(b"")

    def wait(self, timeout_s: float) -> bool:
        """Wait for something to receive; return False once `wake` was called."""
        self.bells.wait(timeout_s)
        return self._wake_in not in self.bells.rung or self.bells.take(self._wake_in) is None

    def open(self, port: Counter) -> None:
        """See `Listener.open`: whoever came before waits in the socket."""
        self._port = port

    def serve(self) -> None:
        """See `Listener.serve`."""
        if self._socket not in self.bells.rung and self._monitor not in self.bells.rung:
            return
        for _ in range(_BATCH):
            received = self.receive()
            # Before the message: its connection may have taken over the descriptor of a broken one.
            for address in self.lost():
                self._port.lose(address)
            if received is None:
                return
            self._port.read(*received)

    def receive(self) -> tuple[bytes, list[Frame]] | None:
        """Return the next message as (address, frames), or None; does not wait. Frames are not copied."""
        parts = self.bells.take(self._socket)
        if parts is None:
            return None
        address = parts[0].bytes
        with contextlib.suppress(zmq.ZMQError):  # a peer that is gone already has no descriptor
            descriptor = int(parts[0].get(zmq.SRCFD))
            if self._peers.get(descriptor) != address:
                # The descriptor may have been that of a connection that broke: first that one is lost.
                self.bells.ring(self._monitor)
                self._read_monitor()
                self._peers[descriptor] = address
        return address, [part.buffer for part in parts[1:]]

    def lost(self) -> list[bytes]:
        """Return the addresses whose connections broke since the last call; count those that never spoke."""
        self._read_monitor()
        lost, self._lost = self._lost, []
        return lost

    def send(self, address: bytes, message: Message) -> bool:
        """Send; return False if the peer is gone or does not take its messages."""
        try:
            frames = encode(message)
            self._socket.send_multipart([address, *frames], zmq.NOBLOCK, copy=False)
            self.bells.ring(self._socket)
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Close the port; replies on their way get half a second."""
        self._socket.disable_monitor()
        for each in (self._monitor, self._wake_in, self._wake_out):
            each.close(linger=0)
        self._socket.close(linger=LINGER_MS)

    def _read_monitor(self) -> None:
        while (parts := self.bells.take(self._monitor)) is not None:
            told = monitor_event(parts)
            if told.event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                # The same connection is told as DISCONNECTED next, and counted there.
                self.strangers -= told.value in _LOOKED
                continue
            address = self._peers.pop(told.value, None)
            if address is None:
                self.strangers += 1
            else:
                self._lost.append(address)
