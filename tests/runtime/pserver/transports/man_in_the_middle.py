# SPDX-License-Identifier: Apache-2.0
"""A sealed connection with a man in the middle, who has every byte of both directions."""

from __future__ import annotations

import fcntl
import select
import socket
import sys
import termios
from collections.abc import Callable
from typing import NamedTuple

from paddle.pserver.transports.byte_stream import StreamReader, StreamWriter, prepare
from paddle.sealed_stream import Handshake
from paddle.sealing import CALLED, CALLER, GREETING_BYTES, HEADER_BYTES, OVERHEAD, piece_of

JOB, OTHER_JOB = b"5a" * 32, b"6b" * 32
WORD, OTHER_WORD = bytes(range(16)), bytes(range(16, 32))
ANSWER_S = 60.0
SHORT = 4096  # what a handshake reads at once must be there as a whole


def connection() -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        near = socket.create_connection(listener.getsockname(), ANSWER_S)
        far, _ = listener.accept()
    for each in (near, far):
        prepare(each)
        if sys.platform == "linux":  # a test may read nothing for long
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)
    return near, far


class End(NamedTuple):
    """One side: its socket, and the handshake that it begins with."""

    sock: socket.socket
    handshake: Handshake

    def reader(self, home: memoryview | None = None) -> StreamReader:
        return StreamReader(self.handshake.source, lambda header: home)

    def writer(self) -> StreamWriter:
        return StreamWriter(self.handshake.sink)


class Middle:
    """A trainer, a server, and somebody between them who has every byte."""

    def __init__(self, trainers_key: bytes = JOB, servers_key: bytes = JOB, word: bytes = WORD) -> None:
        near, self.to_trainer = connection()
        self.to_server, far = connection()
        self.trainer = End(near, Handshake(near, trainers_key, word))
        self.server = End(far, Handshake(far, servers_key, admits=lambda lane: lane == word))

    def close(self) -> None:
        for each in (self.trainer.sock, self.server.sock, self.to_trainer, self.to_server):
            each.close()

    def sent(self, by: int, count: int) -> bytes:
        """Take so many bytes that a side sends."""
        sock = self.to_trainer if by == CALLER else self.to_server
        sock.setblocking(True)
        sock.settimeout(ANSWER_S)
        found = b""
        while len(found) < count:
            data = sock.recv(count - len(found))
            assert data, "the connection ended"
            found += data
        return found

    def give(self, to: int, data: bytes) -> None:
        sock = self.to_trainer if to == CALLER else self.to_server
        sock.settimeout(ANSWER_S)
        sock.sendall(data)
        receiver = (self.trainer if to == CALLER else self.server).sock
        while len(data) < SHORT and waiting(receiver) < len(data):
            assert select.select([receiver], [], [], ANSWER_S)[0], "it did not arrive"

    def pieces(self, by: int, count: int) -> list[bytes]:
        """Take so many pieces that a side sends."""
        found = []
        for _ in range(count):
            header = self.sent(by, HEADER_BYTES)
            length, _ = piece_of(memoryview(header), 0)
            found.append(header + self.sent(by, length + OVERHEAD - HEADER_BYTES))
        return found

    def greet(
        self,
        at_server: Callable[[bytes], bytes] = lambda greeting: greeting,
        at_trainer: Callable[[bytes], bytes] = lambda greeting: greeting,
    ) -> None:
        """Let both make their handshake; what is said in the clear may be changed on the way."""
        self.give(CALLED, at_server(self.sent(CALLER, GREETING_BYTES)))
        went_on(self.server.handshake)
        self.give(CALLER, at_trainer(self.sent(CALLED, GREETING_BYTES)) + self.sent(CALLED, OVERHEAD))
        assert went_on(self.trainer.handshake)
        self.give(CALLED, self.sent(CALLER, OVERHEAD))
        assert went_on(self.server.handshake)


def waiting(sock: socket.socket) -> int:
    """Return how many bytes a socket has received that nobody took."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def went_on(handshake: Handshake) -> bool:
    """Go on with what was sent: twice, since a greeting and the piece behind it are read one after the other."""
    return handshake.advance() or handshake.advance()
