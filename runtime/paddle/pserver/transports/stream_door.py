# SPDX-License-Identifier: Apache-2.0
"""A server's third entrance, where the wire is plain: connections that carry large messages without ZeroMQ between.

A trainer asks for one on its ZeroMQ connection and is given a port and a word that is good once. The stream lives no
longer than the connection that asked for it: who is gone there is gone here.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import socket

import numpy as np

from paddle.pserver.transports.stream_wire import TOKEN_BYTES, WORD, StreamReader, StreamWriter, prepare
from paddle.pserver.wire.message import Frame, Message, Section
from paddle.pserver.wire.verbs import Invited

_log = logging.getLogger(__name__)

_BACKLOG = 64
_MAX_GUESTS = 1024


class Guest:
    """One connection. `host` is the ZeroMQ address that asked for it, None until it said its word."""

    def __init__(self, sock: socket.socket, address: bytes) -> None:
        self.sock, self.address = sock, address
        self.host: bytes | None = None
        self.reader, self.writer = StreamReader(sock), StreamWriter(sock)


class StreamDoor:
    """The entrance beside one port. Belongs to the port's thread."""

    def __init__(self, address: str) -> None:
        """Listen on a free port of the same address.

        Raises:
            OSError: that cannot be done.
        """
        host = "" if address == "*" else address
        is_6 = ":" in host or (not host and socket.has_dualstack_ipv6())
        family = socket.AF_INET6 if is_6 else socket.AF_INET
        self.listener = socket.create_server(
            (host, 0), family=family, backlog=_BACKLOG, dualstack_ipv6=is_6 and not host
        )
        self.listener.setblocking(False)
        self._words: dict[bytes, bytes] = {}
        self._guests: dict[bytes, Guest] = {}
        self._count = 0

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer a trainer's question for a stream: where, and the word to say. `port` is the one it asked at."""
        word = secrets.token_bytes(TOKEN_BYTES)
        if len(self._words) >= _MAX_GUESTS:
            self._words.clear()
        self._words[word] = host
        section = Section(WORD, np.frombuffer(word, np.uint8))
        where = int(self.listener.getsockname()[1])
        return message._replace(record=Invited(where, port), sections=(section,))

    def accept(self) -> Guest | None:
        """Let the next one in, if there is one.

        Raises:
            OSError: there can be no more now; descriptors are short, for one.
        """
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sock, _ = self.listener.accept()
            if len(self._guests) >= _MAX_GUESTS:
                sock.close()
                return None
            prepare(sock)
            self._count += 1
            guest = Guest(sock, b"\0stream-%d" % self._count)
            self._guests[guest.address] = guest
            return guest
        return None

    def receive(self, guest: Guest) -> list[Frame] | None:
        """Return the frames of the next message, or None.

        Raises:
            ConnectionError: it is gone, or did not say the word.
            WireError: it does not speak our language.
        """
        if guest.host is None:
            word = guest.reader.take(TOKEN_BYTES)
            if word is None:
                return None
            guest.host = self._words.pop(word, None)
            if guest.host is None:
                raise ConnectionRefusedError("not the word that was given")
        return guest.reader.read()

    def of_host(self, host: bytes) -> list[Guest]:
        """Return the streams that a ZeroMQ address asked for."""
        return [guest for guest in self._guests.values() if guest.host == host]

    def find(self, address: bytes) -> Guest | None:
        """Return the stream of that address."""
        return self._guests.get(address)

    def dismiss(self, guest: Guest) -> None:
        """Close a connection."""
        self._guests.pop(guest.address, None)
        guest.sock.close()

    def close(self) -> None:
        """Close all."""
        for guest in list(self._guests.values()):
            self.dismiss(guest)
        self.listener.close()


def open_stream_door(address: str) -> StreamDoor | None:
    """Return the entrance beside a port, or None where there can be none: trainers then use the port."""
    try:
        return StreamDoor(address)
    except OSError as error:
        _log.info("no streams beside the port: %s", error)
        return None
