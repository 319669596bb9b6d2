# SPDX-License-Identifier: Apache-2.0
"""The base class of listeners with a listening socket: accepts peers, reads them in turn, and closes invalid ones."""

from __future__ import annotations

import contextlib
import logging
import socket
from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from paddle.errors import WireError
from paddle.pserver.transports.transport import Dispatcher, Listener

_log = logging.getLogger(__name__)

_BATCH = 64  # messages of each peer before other listeners are served


class Peer:
    """A connection that a listener accepted."""

    def __init__(self, sock: socket.socket, address: bytes) -> None:
        self.sock, self.address = sock, address
        self.descriptor = sock.fileno()


_Peer = TypeVar("_Peer", bound=Peer)


class SocketListener(Listener, Generic[_Peer]):
    """A listening socket, and the peers that have connected to it.

    If the process runs out of descriptors, it stops accepting connections until the next tick, because a pending
    connection would keep the poller busy.
    """

    _KIND: ClassVar[bytes]

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._listens_at = listener, listener.fileno()
        self.handles = {self._listens_at}
        self._peers: dict[int, _Peer] = {}  # by descriptor
        self._by_address: dict[bytes, _Peer] = {}
        self._count = 0
        self._is_paused = False
        self._port: Dispatcher

    @abstractmethod
    def _accept(self, sock: socket.socket, address: bytes) -> _Peer | None:
        """Create a peer for a non-blocking connection, or return None to reject it."""

    @abstractmethod
    def _read_message(self, peer: _Peer) -> bool:
        """Read one message; return whether there may be more.

        Raises:
            OSError, WireError, MemoryError: the connection must be closed.
        """

    def open(self, port: Dispatcher) -> None:
        """Start accepting connections in the port's poller; called once."""
        self._port = port
        port.poller.add_descriptor(self._listens_at)

    def serve(self) -> None:
        """Handle the events of the listener's handles; see `Listener.serve`."""
        poller = self._port.poller
        if self._listens_at in poller.ready and poller.take_ready(self._listens_at):
            self._admit()
        ready = list(map(self._peers.__getitem__, poller.ready.intersection(self._peers)))
        poller.ready.difference_update(self._peers)
        # One message of each at a time: chunks of several trainers are summed while they are in the caches.
        for _ in range(_BATCH):
            ready = list(filter(self._read_or_dismiss, ready))
            if not ready:
                return
        for peer in ready:
            if peer.address in self._by_address:
                poller.mark_ready(peer.descriptor)  # its buffer may hold whole messages

    def tick(self) -> None:
        """Accept connections again after a pause; called about once a second."""
        if self._is_paused:
            self._port.poller.add_descriptor(self._listens_at)
            self._is_paused = False

    def close(self) -> None:
        """Close the listener and all connections that it accepted."""
        for peer in self._peers.values():
            peer.sock.close()
        self._listener.close()

    def _dismiss(self, peer: _Peer) -> None:
        """Close a connection."""
        self._port.poller.remove_descriptor(peer.descriptor)
        self.handles.discard(peer.descriptor)
        del self._peers[peer.descriptor], self._by_address[peer.address]
        peer.sock.close()
        self._port.lose(peer.address)

    def _admit(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            _log.debug("no further connections are accepted for now: %s", error)
            self._port.poller.remove_descriptor(self._listens_at)
            self._is_paused = True
            return
        sock.setblocking(False)
        self._count += 1
        peer = None
        with contextlib.suppress(OSError):  # it is closed already
            peer = self._accept(sock, b"\0%s-%d" % (self._KIND, self._count))
        if peer is None:
            sock.close()
            return
        self._peers[peer.descriptor] = self._by_address[peer.address] = peer
        self.handles.add(peer.descriptor)
        self._port.poller.add_descriptor(peer.descriptor)

    def _read_or_dismiss(self, peer: _Peer) -> bool:
        if peer.address not in self._by_address:
            return False
        try:
            return self._read_message(peer)
        except (OSError, WireError, MemoryError) as error:
            level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
            why = error or "not enough memory for its request"
            _log.log(level, "a %s connection was closed: %s", self._KIND.decode(), why)
            if peer.address in self._by_address:
                self._dismiss(peer)
            return False
