# SPDX-License-Identifier: Apache-2.0
"""The base transport: ZeroMQ on one port. It carries all messages, and detects broken connections and lost servers.

With a job's keys, frames are encrypted and both ends prove that they know the keys (see `keys`); otherwise, frames are
plain. A broken connection is detected within moments if the other process has exited, and within about ten seconds if
the network is silent; short interruptions have no effect. A server whose process has exited refuses new connections:
this is reported immediately or, if the job restarts servers, after some time. A silent network is reported after
several seconds.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
import time
from collections.abc import Iterator, Sequence
from typing import Any

import zmq

from paddle.errors import ConfigError, PortBusy, PserverLost, WireError
from paddle.pserver.transports.transport import Connection, Dispatcher, Listener
from paddle.pserver.wire.codec import decode, encode
from paddle.pserver.wire.keys import Context, WireKeys
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import LINGER_MS, AdaptiveWait, Poller, monitor_event, prepare

_log = logging.getLogger(__name__)

_HEAL_S = 5.0
_PROBE_S = 0.5
RENEW_S = 0.1
_MAX_IO_THREADS = 4
_HEARTBEAT_MS = 1000
_HEARTBEAT_TIMEOUT_MS = 4000
_RECONNECT_MS = 100
# Events for protocol errors are not requested: after reporting one, ZeroMQ 4.3.5 no longer treats it as an error and
# leaves the broken connection open.
_CLIENT_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
_SERVER_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
_CLOSED = (errno.EPIPE, errno.ECONNRESET)  # the peer closed before it sent anything malformed
_BATCH = 64  # messages before other listeners are served


class Liveness:
    """The state of a trainer's connection to one endpoint, and how often it broke.

    Attributes:
        was_up: whether the connection was ever established.
        is_leaving: whether the client has sent its goodbye; the exit of the server is then not a loss.
        broken_off: number of times that the connection ended, before or after it was established.
    """

    def __init__(self, endpoint: str, patience_s: float = 0.0) -> None:
        """Start without a connection.

        Args:
            endpoint: "ip:port" of the server.
            patience_s: how long the server may be unreachable, because it is restarted at the same address.
        """
        self._endpoint, self._patience_s = endpoint, patience_s
        self.was_up = self.is_leaving = False
        self.broken_off = 0
        self._down_since: float | None = None

    @property
    def is_down(self) -> bool:
        """Return whether an established connection has broken and not been restored yet."""
        return self._down_since is not None

    def came_up(self) -> bool:
        """Record that a connection was established; return whether an earlier one had broken."""
        came_back = self.is_down
        if came_back and self._patience_s:
            _log.warning("pserver %s has reconnected", self._endpoint)
        self.was_up, self._down_since = True, None
        return came_back

    def went_down(self) -> None:
        """Record that the connection broke, or that an attempt to connect failed."""
        self.broken_off += 1
        if self.was_up and self._down_since is None and not self.is_leaving:
            self._down_since = time.monotonic()
            if self._patience_s:
                _log.warning(
                    "pserver %s is disconnected; waiting up to %.0f s", self._endpoint, self._patience_s
                )

    def check(self) -> None:
        """Check whether a broken connection is being restored in time.

        Raises:
            PserverLost: no process listens at the endpoint any more, or the connection was not restored in time.
        """
        if self._down_since is None or time.monotonic() - self._down_since < self._patience_s:
            return
        if _refuses(self._endpoint):
            raise PserverLost(
                f"pserver {self._endpoint} has exited: its connection broke and no process is listening there",
                self._endpoint,
            )
        down_s = time.monotonic() - self._down_since
        if down_s > _HEAL_S:
            raise PserverLost(
                f"pserver {self._endpoint} is lost: its connection broke and did not recover within {down_s:.0f} s",
                self._endpoint,
            )


def _refuses(endpoint: str) -> bool:
    """Return whether no process listens at an endpoint; a silent network is not a refusal."""
    host, _, port = endpoint.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _PROBE_S).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


class ZmqConnection(Connection):
    """A trainer's ZeroMQ connection to one server.

    ZeroMQ abandons a connection after a protocol error, such as damaged ciphertext. A broken connection therefore gets
    a new socket; messages that were lost with the old one are requested again.
    """

    def __init__(
        self, context: Any, poller: Poller, endpoint: str, keys: WireKeys | None, patience_s: float
    ) -> None:
        self.endpoint = endpoint
        self.liveness = Liveness(endpoint, patience_s)
        self._context, self._poller, self._keys = context, poller, keys
        self._renew_at: float | None = None
        self._is_new_socket = False  # and not the first one: messages queued before are lost
        self._connect()

    @property
    def sockets(self) -> tuple[Any, Any]:
        """The sockets to poll for a wait for this server only: for messages, and for monitor events."""
        return self._socket, self._monitor

    def send(self, message: Message) -> bool:
        """Queue a message; return False if the queue is full."""
        try:
            self._socket.send_multipart(encode(message), zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        self._poller.mark_ready(self._socket)
        return True

    def take(self) -> Message | None:
        """Return the next message, or None if none is available; see `Connection.take` for the errors."""
        parts = self._poller.take(self._socket)
        return None if parts is None else decode([part.buffer for part in parts])

    def watch(self) -> bool:
        """Process monitor events; return True if earlier messages may have been lost and can be sent again.

        Raises:
            WireError: the server has a different job key.
            PserverLost: see `Liveness.check`.
        """
        if self._monitor not in self._poller.ready and not self.needs_care:
            return False
        came_back = False
        while (parts := self._poller.take(self._monitor)) is not None:
            event = monitor_event(parts).event
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                came_back = self.liveness.came_up() or self._is_new_socket
                self._renew_at, self._is_new_socket = None, False
            elif event == zmq.EVENT_DISCONNECTED:
                came_back = False
                self.liveness.went_down()
                self._renew_at = time.monotonic() + RENEW_S
            else:
                raise WireError(
                    f"pserver {self.endpoint} has a different job key: set the same PADDLE_JOB_KEY for all processes",
                    self.endpoint,
                )
        self.liveness.check()
        if self._renew_at is not None and time.monotonic() >= self._renew_at:
            self._renew_at = None
            self.close()
            self._connect()
            self._is_new_socket = True
        return came_back

    @property
    def needs_care(self) -> bool:
        """Return whether `watch` must be called soon even if nothing arrives."""
        return self.liveness.is_down or self._renew_at is not None

    def close(self, linger_ms: int = 0) -> None:
        """Close the connection, after sending queued messages for at most `linger_ms` milliseconds."""
        for each in (self._socket, self._monitor):
            self._poller.remove(each)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)

    def _connect(self) -> None:
        self.handle = self._socket = self._context.socket(zmq.DEALER)
        prepare(self._socket)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
        # Only trainers send heartbeats. ZeroMQ 4.3.5 aborts the process when one falls due on a connection that broke
        # while its queue was full, and a server's queue is for others to fill.
        self._socket.setsockopt(zmq.HEARTBEAT_IVL, _HEARTBEAT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, _HEARTBEAT_TIMEOUT_MS)
        self._socket.setsockopt(zmq.HEARTBEAT_TTL, _HEARTBEAT_TIMEOUT_MS)
        if self._keys is not None:
            self._socket.curve_serverkey = self._keys.server.public
            self._socket.curve_secretkey = self._keys.client.secret
            self._socket.curve_publickey = self._keys.client.public
        self._monitor = self._socket.get_monitor_socket(_CLIENT_EVENTS)
        for each in (self._socket, self._monitor):
            self._poller.add(each)
        try:
            self._socket.connect(f"tcp://{self.endpoint}")
        except zmq.ZMQError:
            self.close()
            raise


class ZmqConnections(Sequence[ZmqConnection]):
    """A trainer's ZeroMQ connections to all its servers, by index."""

    def __init__(
        self, endpoints: Sequence[str], keys: WireKeys | None, poller: Poller, patience_s: float
    ) -> None:
        """Begin to connect to each "ip:port"; the servers do not have to listen yet.

        Raises:
            ConfigError: an endpoint cannot be parsed.
        """
        # Encryption is most of the work of an I/O thread: one for each server, as far as there are cores for both ends.
        cores = len(os.sched_getaffinity(0))
        threads = min(len(endpoints), _MAX_IO_THREADS, cores // 2) if keys is not None else 1
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(max(threads, 1))
        self._all: list[ZmqConnection] = []
        for endpoint in endpoints:
            try:
                self._all.append(ZmqConnection(self._context, poller, endpoint, keys, patience_s))
            except zmq.ZMQError as error:
                self.close()
                raise ConfigError(
                    f"pserver endpoint {endpoint!r}: {error.strerror}; expected 'ip:port'"
                ) from error

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __iter__(self) -> Iterator[ZmqConnection]:
        return iter(self._all)

    def close(self) -> None:
        """Close all connections, after waiting up to half a second for messages in transit."""
        for each in self._all:
            each.close(LINGER_MS)
        self._context.term()


class ZmqListener(Listener):
    """The ZeroMQ listener of one port. Used by one thread, except `wake`.

    Attributes:
        port: TCP port.
        poller: poller of all listeners of the port.
        wake_up: poller handle that `wake` makes ready.
    """

    def __init__(
        self, context: Context, address: str, port: int, adaptive_wait: AdaptiveWait | None = None
    ) -> None:
        """Bind the port; port 0 takes a free one.

        Args:
            context: shared by the servers of a process.
            address: IPv4 or IPv6 address, or "*" for all.
            port: TCP port.
            adaptive_wait: how the poller waits.

        Raises:
            PortBusy: another process has the port.
            ConfigError: the address is not of this machine, or the port needs other rights.
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
            raise ConfigError(
                f"{text}; set --bind to an address of this machine, or --nics to a network device"
            ) from error
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._monitor = self._socket.get_monitor_socket(_SERVER_EVENTS)
        self._peers: dict[int, bytes] = {}  # descriptor of the connection -> address
        self._lost: list[bytes] = []
        self._port: Dispatcher
        self._wakes, self._wake = socket.socketpair()
        self.wake_up, self.handles = self._wakes.fileno(), {self._socket, self._monitor}
        self.poller = Poller(adaptive_wait)
        self.poller.add_descriptor(self.wake_up)
        for each in (self._socket, self._monitor):
            self.poller.add(each)

    def wake(self) -> None:
        """Wake up the port's thread by making `wake_up` ready; any thread can call this."""
        with contextlib.suppress(OSError):  # the port's thread ended by itself and closed it
            self._wake.send(b"\0")

    def open(self, port: Dispatcher) -> None:
        """Accept connections from now on; earlier messages wait in the socket."""
        self._port = port

    def serve(self) -> None:
        """Handle the events of the listener's handles; see `Listener.serve`."""
        for _ in range(_BATCH):
            received = self.receive()
            # Before the message: its connection may have taken over the descriptor of a broken one.
            for address in self.lost():
                self._port.lose(address)
            if received is None:
                return
            self._port.read(*received)

    def receive(self) -> tuple[bytes, list[Frame]] | None:
        """Return the next message as (address, frames), or None; does not block. Frames are not copied."""
        parts = self.poller.take(self._socket)
        if parts is None:
            return None
        address = parts[0].bytes
        with contextlib.suppress(zmq.ZMQError):  # a peer that has exited already has no descriptor
            descriptor = int(parts[0].get(zmq.SRCFD))
            if self._peers.get(descriptor) != address:
                # The descriptor may have been that of a connection that broke: first that one is lost.
                self.poller.mark_ready(self._monitor)
                self._read_monitor()
                self._peers[descriptor] = address
        return address, [part.buffer for part in parts[1:]]

    def lost(self) -> list[bytes]:
        """Return addresses whose connections broke since the last call; count peers that never sent anything."""
        self._read_monitor()
        lost, self._lost = self._lost, []
        return lost

    def send(self, address: bytes, message: Message) -> bool:
        """Send a message; return False if the peer has exited or does not read its messages."""
        try:
            frames = encode(message)
            self._socket.send_multipart([address, *frames], zmq.NOBLOCK, copy=False)
            self.poller.mark_ready(self._socket)
        except zmq.ZMQError as error:
            if error.errno in (errno.EHOSTUNREACH, errno.EAGAIN):
                return False
            raise
        return True

    def close(self) -> None:
        """Close the port, after waiting up to half a second for replies in transit."""
        self._socket.disable_monitor()
        for each in (self._wakes, self._wake):
            each.close()
        self._monitor.close(linger=0)
        self._socket.close(linger=LINGER_MS)

    def _read_monitor(self) -> None:
        while (parts := self.poller.take(self._monitor)) is not None:
            event, value = monitor_event(parts)
            if event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL:
                # The same connection is reported as DISCONNECTED next, and counted there.
                self.rejected -= value in _CLOSED
                continue
            address = self._peers.pop(value, None)
            if address is None:
                self.rejected += 1
            else:
                self._lost.append(address)
