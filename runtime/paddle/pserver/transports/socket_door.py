# SPDX-License-Identifier: Apache-2.0
"""An entrance beside a port that is a listening socket: who comes in, who is heard, who is sent away."""

from __future__ import annotations

import contextlib
import logging
import socket
from abc import abstractmethod
from typing import ClassVar, Generic, TypeVar

from paddle.errors import WireError
from paddle.pserver.transports.transport import Counter, Listener

_log = logging.getLogger(__name__)

_BATCH = 64  # messages of each before others than these are looked at


class Guest:
    """One connection."""

    def __init__(self, sock: socket.socket, address: bytes) -> None:
        self.sock, self.address = sock, address
        self.descriptor = sock.fileno()


_Guest = TypeVar("_Guest", bound=Guest)


class SocketDoor(Listener, Generic[_Guest]):
    """A listening socket and its guests.

    Where no more can be let in, since descriptors are short, it rests until the next tick: who waits would ring again
    at once.
    """

    _KIND: ClassVar[bytes]

    def __init__(self, listener: socket.socket) -> None:
        self._listener, self._listens_at = listener, listener.fileno()
        self._guests: dict[int, _Guest] = {}  # by descriptor
        self._by_address: dict[bytes, _Guest] = {}
        self._count = 0
        self._rests = False
        self._port: Counter

    @abstractmethod
    def _welcome(self, sock: socket.socket, address: bytes) -> _Guest | None:
        """Make a guest of a connection that does not wait, or none of one that may not come in."""

    @abstractmethod
    def _hear(self, guest: _Guest) -> bool:
        """Take one message; return whether there may be more.

        Raises:
            OSError, WireError, MemoryError: the connection is over.
        """

    def open(self, port: Counter) -> None:
        """See `Listener.open`."""
        self._port = port
        port.bells.add_descriptor(self._listens_at)

    def serve(self) -> None:
        """See `Listener.serve`."""
        bells = self._port.bells
        if bells.rung.isdisjoint(self._guests) and self._listens_at not in bells.rung:
            return
        if bells.is_ready(self._listens_at):
            self._admit()
        ready = [self._guests[descriptor] for descriptor in bells.rung.intersection(self._guests)]
        bells.rung.difference_update(self._guests)
        # One message of each at a time: chunks of several trainers are summed while they are in the caches.
        for _ in range(_BATCH):
            ready = [guest for guest in ready if self._heard(guest)]
            if not ready:
                return
        for guest in ready:
            if guest.address in self._by_address:
                bells.ring(guest.descriptor)  # whole messages may lie in its buffer

    def tick(self) -> None:
        """See `Listener.tick`."""
        if self._rests:
            self._port.bells.add_descriptor(self._listens_at)
            self._rests = False

    def close(self) -> None:
        """See `Listener.close`."""
        for guest in self._guests.values():
            guest.sock.close()
        self._listener.close()

    def _dismiss(self, guest: _Guest) -> None:
        """Close a connection."""
        self._port.bells.remove_descriptor(guest.descriptor)
        del self._guests[guest.descriptor], self._by_address[guest.address]
        guest.sock.close()
        self._port.lose(guest.address)

    def _admit(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError as error:
            _log.debug("nobody more can be let in for now: %s", error)
            self._port.bells.remove_descriptor(self._listens_at)
            self._rests = True
            return
        sock.setblocking(False)
        self._count += 1
        guest = None
        with contextlib.suppress(OSError):  # it has gone already
            guest = self._welcome(sock, b"\0%s-%d" % (self._KIND, self._count))
        if guest is None:
            sock.close()
            return
        self._guests[guest.descriptor] = self._by_address[guest.address] = guest
        self._port.bells.add_descriptor(guest.descriptor)

    def _heard(self, guest: _Guest) -> bool:
        if guest.address not in self._by_address:
            return False
        try:
            return self._hear(guest)
        except (OSError, WireError, MemoryError) as error:
            level = logging.DEBUG if isinstance(error, OSError) else logging.WARNING
            _log.log(
                level, "a %s connection ends: %s", self._KIND.decode(), error or "no memory for what it asks"
            )
            if guest.address in self._by_address:
                self._dismiss(guest)
            return False
