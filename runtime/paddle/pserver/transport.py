# SPDX-License-Identifier: Apache-2.0
"""Moves messages over ZeroMQ: `Router` on a server's port, `Links` from a client. The only import of zmq.

With a job key, frames are encrypted and both sides proved to know the key (CURVE; both key pairs are
derived from it, and a server admits that one client key only). Without, they are plain. A
broken connection is noticed within moments when the other process died, and within about ten seconds when
the network went silent; short cuts heal.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import parse_monitor_message
from zmq.utils.z85 import decode as unz85
from zmq.utils.z85 import encode as z85

from paddle.errors import ConfigError, PortBusy, WireError
from paddle.pserver.liveness import Liveness
from paddle.pserver.message import MAX_FRAME_BYTES, DamagedError, Frame, Message, decode, encode

_log = logging.getLogger(__name__)

_HEARTBEAT_MS = 1000
_HEARTBEAT_TIMEOUT_MS = 4000
_HANDSHAKE_MS = 5000
_RECONNECT_MS = 100
_RENEW_S = 0.1
_LINGER_MS = 500
_QUEUE = 64
_ZAP_ENDPOINT = "inproc://zeromq.zap.01"
# Failures by protocol error are not asked for: telling of one makes ZeroMQ 4.3.5 forget that it is one, and the
# broken connection stays as it is.
_CLIENT_EVENTS = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH


@dataclass(frozen=True, slots=True, repr=False)
class KeyPair:
    """A CURVE key pair, in ZeroMQ's own text form."""

    public: bytes
    secret: bytes


@dataclass(frozen=True, slots=True, repr=False)
class WireKeys:
    """The two key pairs of a job: one for all servers, one for all trainers."""

    server: KeyPair
    client: KeyPair

    @classmethod
    def of(cls, job_key: str) -> WireKeys:
        """Derive both from the job key."""
        return cls(_key_pair(job_key, b"server"), _key_pair(job_key, b"client"))


def _key_pair(job_key: str, person: bytes) -> KeyPair:
    secret = z85(hashlib.blake2b(job_key.encode(), digest_size=32, person=person).digest())
    return KeyPair(zmq.curve_public(secret), secret)


class Incoming(NamedTuple):
    """What `Links.receive` found: a message of a server, or None when a request must be sent to it again."""

    server: int
    message: Message | None


class Context:
    """The ZeroMQ context of a process's servers, and who may speak to them."""

    def __init__(self, keys: WireKeys | None, io_threads: int = 1) -> None:
        self.keys = keys
        self.zmq: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads)
        self._door: threading.Thread | None = None
        if keys is not None:
            handler = self.zmq.socket(zmq.REP)
            handler.setsockopt(zmq.LINGER, 0)
            handler.bind(_ZAP_ENDPOINT)
            self._door = threading.Thread(
                target=_guard_door, args=(handler, keys.client.public), name="pserver-keys", daemon=True
            )
            self._door.start()

    def close(self) -> None:
        """Close; all sockets of the context must be closed before. Waits for its thread."""
        self.zmq.term()
        if self._door is not None:
            self._door.join()


def _guard_door(handler: zmq.Socket[bytes], admitted: bytes) -> None:
    """Answer ZeroMQ's question about each new peer (RFC 27): only the job's client key may come in."""
    expected = unz85(admitted)
    while True:
        try:
            version, request_id, _domain, _address, _identity, mechanism, *credentials = (
                handler.recv_multipart()
            )
            ok = mechanism == b"CURVE" and credentials == [expected]
            status = (b"200", b"OK") if ok else (b"400", b"this key is not of this job")
            handler.send_multipart([version, request_id, *status, b"trainer", b""])
        except zmq.ContextTerminated:
            handler.close()
            return


class Router:
    """The server's end of one port. Used by one thread, except `wake`."""

    def __init__(self, context: Context, address: str, port: int) -> None:
        """Bind; port 0 takes a free one.

        Args:
            context: shared by the servers of a process.
            address: IPv4 or IPv6 address, or "*" for all.
            port: TCP port.

        Raises:
            PortBusy: another process has the port.
            ConfigError: the address is not of this machine, or the port not ours to use.
        """
        self._socket = context.zmq.socket(zmq.ROUTER)
        _prepare(self._socket)
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
            text = f"cannot listen on {host}:{port}: {error.strerror}"
            if error.errno == errno.EADDRINUSE:
                raise PortBusy(text, f"{host}:{port}") from error
            raise ConfigError(f"{text}; give an address of this machine as --bind, or --nics") from error
        self.port = int(self._socket.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2])
        self._monitor = self._socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        self._peers: dict[int, bytes] = {}  # descriptor of the connection -> address
        self.strangers = 0
        wake_at = f"inproc://wake-{id(self)}"
        self._wake_in = context.zmq.socket(zmq.PAIR)
        self._wake_in.bind(wake_at)
        self._wake_out = context.zmq.socket(zmq.PAIR)
        self._wake_out.connect(wake_at)
        self._poller = zmq.Poller()
        for each in (self._socket, self._monitor, self._wake_in):
            self._poller.register(each, zmq.POLLIN)

    def wake(self) -> None:
        """End the wait of `wait` in another thread; call it once."""
        with contextlib.suppress(zmq.ZMQError):  # that thread ended by itself and closed the port
            self._wake_out.send(b"")

    def wait(self, timeout_s: float) -> bool:
        """Wait for something to receive; return False once `wake` was called."""
        ready = dict(self._poller.poll(int(timeout_s * 1000)))
        return self._wake_in not in ready

    def receive(self) -> tuple[bytes, list[Frame]] | None:
        """Return the next message as (address, frames), or None; does not wait. Frames are not copied."""
        try:
            parts = self._socket.recv_multipart(zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return None
        address = parts[0].bytes
        with contextlib.suppress(zmq.ZMQError):  # a peer that is gone already has no descriptor
            self._peers[int(parts[0].get(zmq.SRCFD))] = address
        return address, [part.buffer for part in parts[1:]]

    def read(self, frames: Sequence[Frame]) -> Message:
        """Decode frames of this wire.

        Raises:
            WireError: they are no message.
        """
        return decode(frames)

    def lost(self) -> list[bytes]:
        """Return the addresses whose connections broke since the last call; count those that never spoke."""
        lost = []
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())
            address = self._peers.pop(int(event["value"]), None)
            if address is None:
                self.strangers += 1
            else:
                lost.append(address)
        return lost

    def send(self, address: bytes, message: Message) -> bool:
        """Send; return False if the peer is gone or does not take its messages."""
        try:
            frames = encode(message)
            self._socket.send_multipart([address, *frames], zmq.NOBLOCK, copy=False)
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
        self._socket.close(linger=_LINGER_MS)


class Links:
    """A client's connections to its servers, by index. Not thread-safe."""

    def __init__(self, endpoints: Sequence[str], keys: WireKeys | None) -> None:
        """Begin to connect to each "ip:port"; nobody need listen there yet.

        Raises:
            WireError: an endpoint cannot be read.
        """
        self.endpoints = tuple(endpoints)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(1)
        self._poller = zmq.Poller()
        self._links: list[_Link] = []
        try:
            for endpoint in endpoints:
                self._links.append(_Link(self._context, self._poller, endpoint, keys))
        except zmq.ZMQError as error:
            self.close()
            raise WireError(
                f"pserver endpoint {endpoint!r}: {error.strerror}; expected ip:port", endpoint
            ) from error

    def send(self, index: int, message: Message) -> None:
        """Queue a message; its arrays must not change before the reply is there.

        What cannot be queued is as good as lost on the way: the connection broke and is made anew.
        """
        with contextlib.suppress(zmq.Again):
            self._links[index].send(message)

    def receive(self, timeout_s: float) -> Incoming | None:
        """Wait for the next message or healed connection; None when the time is over.

        Raises:
            PserverLost: a server's connection broke and did not come back; `endpoint` says whose.
            WireError: a server refused our key, or speaks another wire version.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            for index, link in enumerate(self._links):
                if link.watch():
                    return Incoming(index, None)
                frames = link.take()
                if frames is not None:
                    return Incoming(index, self._read(frames))
            rest_s = deadline - time.monotonic()
            if rest_s <= 0:
                return None
            # A broken link is looked at again soon; whole ones wake us by themselves.
            any_down = any(link.needs_care for link in self._links)
            self._poller.poll(int(min(rest_s, _RENEW_S if any_down else rest_s) * 1000) + 1)

    def _read(self, frames: Sequence[Frame]) -> Message | None:
        try:
            return decode(frames)
        except DamagedError as error:
            _log.warning("%s; asking again", error)
            return None

    def hint(self, index: int) -> str:
        """Return what may be the matter with a server that does not answer."""
        return self._links[index].liveness.hint

    def close(self) -> None:
        """Close all connections; messages on their way get half a second."""
        for link in self._links:
            link.close(_LINGER_MS)
        self._context.term()


class _Link:
    """One connection and what its monitor said.

    ZeroMQ gives a connection up after a protocol error, which is what damage looks like to the cipher. So
    every broken connection gets a new socket; what was lost with the old one is asked for again.
    """

    def __init__(self, context: Any, poller: zmq.Poller, endpoint: str, keys: WireKeys | None) -> None:
        self.endpoint = endpoint
        self.liveness = Liveness(endpoint)
        self._context, self._poller, self._keys = context, poller, keys
        self._renew_at: float | None = None
        self._is_new_socket = False  # and not the first one: what was queued before is gone
        self._connect()

    def send(self, message: Message) -> None:
        self._socket.send_multipart(encode(message), zmq.NOBLOCK, copy=False)

    def take(self) -> list[Frame] | None:
        try:
            return [part.buffer for part in self._socket.recv_multipart(zmq.NOBLOCK, copy=False)]
        except zmq.Again:
            return None

    def watch(self) -> bool:
        """Read the monitor; return True if what was sent before may be lost, and can be sent again."""
        came_back = False
        while self._monitor.poll(0):
            event = parse_monitor_message(self._monitor.recv_multipart())["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                came_back = self.liveness.came_up() or self._is_new_socket
                self._renew_at, self._is_new_socket = None, False
            elif event == zmq.EVENT_DISCONNECTED:
                came_back = False
                self.liveness.went_down()
                self._renew_at = time.monotonic() + _RENEW_S
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
        for each in (self._socket, self._monitor):
            self._poller.unregister(each)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=linger_ms)

    def _connect(self) -> None:
        self._socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        _prepare(self._socket)
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
            self._poller.register(each, zmq.POLLIN)
        try:
            self._socket.connect(f"tcp://{self.endpoint}")
        except zmq.ZMQError:
            self.close()
            raise


def _prepare(sock: Any) -> None:
    """Set what both ends have in common: limits, no address family left out."""
    sock.setsockopt(zmq.IPV6, 1)
    sock.setsockopt(zmq.HANDSHAKE_IVL, _HANDSHAKE_MS)
    sock.setsockopt(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
    sock.setsockopt(zmq.SNDHWM, _QUEUE)
    sock.setsockopt(zmq.RCVHWM, _QUEUE)
    sock.setsockopt(zmq.TCP_KEEPALIVE, 1)
