# SPDX-License-Identifier: Apache-2.0
"""A server's third entrance: connections that carry large messages without ZeroMQ between.

A trainer asks for one on its ZeroMQ connection and is given a port and a word that is good once. The stream lives no
longer than the connection that asked for it: who is gone there is gone here. Where the job has a key the word alone
opens nothing: both sides prove that they know the key, and what follows is sealed (see `sealing`).
"""

from __future__ import annotations

import logging
import secrets
import socket
import time

import numpy as np

from paddle.pserver.transports.socket_door import Guest, SocketDoor
from paddle.pserver.transports.stream_wire import (
    TOKEN_BYTES,
    WORD,
    PlainSink,
    PlainSource,
    StreamReader,
    StreamWriter,
    prepare,
)
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Invited
from paddle.sealed_stream import Handshake
from paddle.sealing import SealError, is_possible

_log = logging.getLogger(__name__)

_BACKLOG = 64
_MAX_GUESTS = 1024
_WORD_WITHIN_S = 5.0
_MOST_STRANGERS = 128


class Stream(Guest):
    """One connection.

    Attributes:
        host: the ZeroMQ address that asked for it, None until it said its word, and where there is a key knows that.
        reader, writer: for messages; sealed ones only once there is a host.
        handshake: until there is a host; None where the wire is plain.
    """

    reader: StreamReader
    writer: StreamWriter

    def __init__(self, sock: socket.socket, address: bytes, handshake: Handshake | None) -> None:
        super().__init__(sock, address)
        self.host: bytes | None = None
        self.handshake = handshake
        if handshake is None:
            self.reader, self.writer = StreamReader(PlainSource(sock)), StreamWriter(PlainSink(sock))


class StreamDoor(SocketDoor[Stream]):
    """The entrance beside one port for large messages.

    Attributes:
        strangers: how many connections ended that said something wrong, or nothing at all; not those that only looked
            whether somebody listens, and went.
    """

    _KIND = b"stream"

    def __init__(self, address: str, keys: WireKeys | None = None, within_s: float = _WORD_WITHIN_S) -> None:
        """Listen on a free port of the same address.

        Args:
            address: see `Router`.
            keys: of the job; None: the wire is plain.
            within_s: how long a connection may take to say its word, and to show that it knows the key.

        Raises:
            OSError: that cannot be done.
        """
        host = "" if address == "*" else address
        is_6 = ":" in host or (not host and socket.has_dualstack_ipv6())
        family = socket.AF_INET6 if is_6 else socket.AF_INET
        listener = socket.create_server(
            (host, 0), family=family, backlog=_BACKLOG, dualstack_ipv6=is_6 and not host
        )
        listener.setblocking(False)
        super().__init__(listener)
        self._words: dict[bytes, bytes] = {}  # -> the ZeroMQ address that it was given to
        self._strangers: dict[bytes, float] = {}  # address -> when it came, the oldest first
        self._keys, self._within_s = keys, within_s
        self.strangers = 0

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer a trainer's question for a stream: where, and the word to say. `port` is the one it asked at."""
        word = secrets.token_bytes(TOKEN_BYTES)
        if len(self._words) >= _MAX_GUESTS:
            self._words.clear()
        self._words[word] = host
        section = Section(WORD, np.frombuffer(word, np.uint8))
        where = int(self._listener.getsockname()[1])
        return message._replace(record=Invited(where, port), sections=(section,))

    def send(self, address: bytes, message: Message) -> bool | None:
        """See `Listener.send`."""
        stream = self._by_address.get(address)
        if stream is None or stream.host is None:
            return None
        try:
            done = stream.writer.put(message)
        except (OSError, SealError):
            return False  # it is read next that it is gone, or its trainer sends again what has no answer
        self._port.bells.expect_room(stream.descriptor, not stream.writer.is_empty)
        return done

    def lose_host(self, host: bytes) -> None:
        """See `Listener.lose_host`."""
        for stream in [each for each in self._guests.values() if each.host == host]:
            self._dismiss(stream)

    def tick(self) -> None:
        """Close connections that have not said their word for too long; look for new ones again."""
        for address, since in list(self._strangers.items()):
            if time.monotonic() - since > self._within_s:
                self._dismiss(self._by_address[address])
        super().tick()

    def _welcome(self, sock: socket.socket, address: bytes) -> Stream | None:
        if len(self._strangers) >= _MOST_STRANGERS:
            self._dismiss(self._by_address[next(iter(self._strangers))])
        if len(self._guests) >= _MAX_GUESTS:
            return None
        prepare(sock)
        handshake = (
            None if self._keys is None else Handshake(sock, self._keys.job, admits=self._words.__contains__)
        )
        self._strangers[address] = time.monotonic()
        return Stream(sock, address, handshake)

    def _hear(self, stream: Stream) -> bool:
        if stream.host is None and not self._knows(stream):
            return False
        if not stream.writer.is_empty:
            stream.writer.flush()
            self._port.bells.expect_room(stream.descriptor, not stream.writer.is_empty)
        frames = stream.reader.read()
        if frames is None:
            return False
        self._port.read(stream.address, frames, stream.reader.found)
        return stream.reader.has_more

    def _knows(self, stream: Stream) -> bool:
        """Return whether a stream has said its word, which is good once, and knows the key if there is one.

        Raises:
            ConnectionError: it is gone, or said or knows another one.
        """
        try:
            word = self._said(stream)
        except ConnectionResetError:  # whoever only looks is none that we count
            del self._strangers[stream.address]
            raise
        if word is None:
            return False
        stream.host = self._words.pop(word, None)
        if stream.host is None:
            raise ConnectionRefusedError("not the word that was given")
        stream.handshake = None
        del self._strangers[stream.address]
        return True

    def _said(self, stream: Stream) -> bytes | None:
        handshake = stream.handshake
        if handshake is None:
            return stream.reader.take(TOKEN_BYTES)
        try:
            if not handshake.go_on():
                return None
        except SealError as error:
            raise ConnectionRefusedError(str(error)) from error
        stream.reader, stream.writer = StreamReader(handshake.source), StreamWriter(handshake.sink)
        return handshake.lane

    def _dismiss(self, guest: Stream) -> None:
        if self._strangers.pop(guest.address, None) is not None:
            self.strangers += 1
        super()._dismiss(guest)


def open_stream_door(address: str, keys: WireKeys | None) -> StreamDoor | None:
    """Return the entrance beside a port, or None where there can be none: trainers then use the port."""
    if keys is not None and not is_possible():
        _log.info("no streams beside the port: this Python has no cryptography 47 or newer to seal them with")
        return None
    try:
        return StreamDoor(address, keys)
    except OSError as error:
        _log.info("no streams beside the port: %s", error)
        return None
