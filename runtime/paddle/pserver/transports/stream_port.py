# SPDX-License-Identifier: Apache-2.0
"""Serves the streams beside a port, in that port's thread."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from paddle.errors import WireError
from paddle.pserver.transports.entrance import Entrance
from paddle.pserver.transports.stream_door import Guest, StreamDoor
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import Doorbells

_log = logging.getLogger(__name__)

_BATCH = 64
_WORD_WITHIN_S = 5.0
_MOST_STRANGERS = 128


class StreamPort:
    """Guests of a door. `handle` takes a message's frames, `lose` hears of addresses that are gone."""

    def __init__(
        self,
        door: StreamDoor,
        bells: Doorbells,
        handle: Callable[[bytes, list[Frame], Findings | None], None],
        lose: Callable[[bytes], None],
    ) -> None:
        self._door, self._bells, self._handle, self._lose = door, bells, handle, lose
        self._guests: dict[int, Guest] = {}
        self._strangers: dict[int, float] = {}  # descriptor -> when it came, the oldest first
        self._entrance = Entrance(bells, door.listener.fileno(), door.accept)

    def serve(self) -> None:
        """Do what there is to do; does not wait."""
        guest = self._entrance.admit()
        if guest is not None:
            self._make_room()
            self._guests[guest.sock.fileno()] = guest
            self._strangers[guest.sock.fileno()] = time.monotonic()
            self._bells.add_descriptor(guest.sock.fileno())
        ready = [each for each in self._guests.items() if self._bells.is_ready(each[0])]
        # One message of each at a time: chunks of several trainers are summed while they are in the caches.
        for _ in range(_BATCH):
            ready = [(descriptor, guest) for descriptor, guest in ready if self._hear(descriptor, guest)]
            if not ready:
                return
        for descriptor, _ in ready:
            if descriptor in self._guests:
                self._bells.ring(descriptor)  # whole messages may lie in its buffer

    def invite(self, address: bytes, message: Message, port: int) -> Message:
        """See `StreamDoor.invite`."""
        return self._door.invite(address, message, port)

    def send(self, address: bytes, message: Message) -> bool | None:
        """Send; return False if that cannot be done here and now, None if the address is not one of a stream."""
        guest = self._door.find(address)
        if guest is None:
            return None
        try:
            done = guest.writer.put(message)
        except OSError:
            return False  # it is read next that it is gone
        self._bells.expect_room(guest.sock.fileno(), not guest.writer.is_empty)
        return done

    def lose_host(self, host: bytes) -> None:
        """End the streams that a ZeroMQ address asked for: its connection broke."""
        for guest in self._door.of_host(host):
            self._dismiss(guest.sock.fileno(), guest)

    def tick(self) -> None:
        """Close connections that have not said their word for too long; look for new ones again."""
        for descriptor, since in list(self._strangers.items()):
            if time.monotonic() - since > _WORD_WITHIN_S:
                self._dismiss(descriptor, self._guests[descriptor])
        self._entrance.tick()

    def close(self) -> None:
        """Close the door."""
        self._door.close()

    def _hear(self, descriptor: int, guest: Guest) -> bool:
        """Take one message; return whether there may be more."""
        if descriptor not in self._guests:
            return False
        try:
            if not guest.writer.is_empty:
                guest.writer.flush()
                self._bells.expect_room(descriptor, not guest.writer.is_empty)
            frames = self._door.receive(guest)
        except (OSError, WireError, MemoryError) as error:
            _log.debug("a stream ends: %s", error)
            self._dismiss(descriptor, guest)
            return False
        if guest.host is not None:
            self._strangers.pop(descriptor, None)
        if frames is None:
            return False
        try:
            self._handle(guest.address, frames, guest.reader.found)
        except MemoryError as error:
            _log.warning("a stream ends: no memory for what it asks (%s)", error)
            self._dismiss(descriptor, guest)
        return True

    def _make_room(self) -> None:
        if len(self._strangers) >= _MOST_STRANGERS:
            oldest = next(iter(self._strangers))
            self._dismiss(oldest, self._guests[oldest])

    def _dismiss(self, descriptor: int, guest: Guest) -> None:
        self._bells.remove_descriptor(descriptor)
        del self._guests[descriptor]
        self._strangers.pop(descriptor, None)
        self._door.dismiss(guest)
        if guest.host is not None:
            self._lose(guest.address)
