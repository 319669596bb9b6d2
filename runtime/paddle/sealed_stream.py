# SPDX-License-Identifier: Apache-2.0
"""Encrypted byte streams over sockets, in jobs with a key: the handshake, then pieces in the format of `sealing`.

Neither end blocks: a transfer that has to wait continues when the socket is ready. A piece is sealed when there is room
to send it, into the one buffer that is sent next, and opened when it is complete, directly into its destination. Its
claimed length is checked against the buffer, which is allocated before any data arrives.
"""

from __future__ import annotations

import contextlib
import secrets
import socket
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from paddle.sealing import (
    CALLED,
    CALLER,
    CONFIRMS,
    GREETING_BYTES,
    HEADER_BYTES,
    LAST,
    MORE,
    NONCE_BYTES,
    OVERHEAD,
    PIECE,
    TOKEN_BYTES,
    Greeting,
    Opener,
    Sealer,
    SealError,
    keys_of,
    piece_of,
)

Bytes = bytes | memoryview

_BESIDE = 16 << 10  # bytes of small pieces, in addition to whole large ones
# Bytes per system call; each connection has two such buffers. Smaller ones cost calls, larger ones leave the caches.
_BUFFER = 2 * (PIECE + OVERHEAD) + _BESIDE
_JOINED = _BESIDE - OVERHEAD  # parts up to this length share pieces


class SealedSource:
    """A source of the decrypted bytes that a socket receives. Not thread-safe."""

    descriptor = None

    def __init__(self, sock: socket.socket, opener: Opener) -> None:
        self._sock, self._opener = sock, opener
        self._buffer = np.empty(_BUFFER, np.uint8).data
        self._start = self._stop = 0  # of received bytes that were not opened yet
        self._plain = memoryview(b"")  # opened, and not taken
        self._is_within = False  # a message
        self._awaited = 1

    def confirm(self) -> bool:
        """Return whether the piece that ends the handshake has arrived and is valid; call this until it returns True.

        Raises:
            ConnectionError: the connection is closed.
            SealError: the other side does not know the job's key.
        """
        try:
            piece, length, kind = self._next()
        except BlockingIOError:
            return False
        if kind != CONFIRMS or length:
            raise SealError(
                f"received a piece of {length} bytes of kind {kind} before the end of the handshake"
            )
        self._opener.open(piece, memoryview(bytearray()))
        return True

    @property
    def has_more(self) -> bool:
        """Return whether there may be bytes that polling does not report: already read, or fewer than it waits for."""
        is_deaf = self._awaited > HEADER_BYTES
        return is_deaf or self._stop - self._start >= HEADER_BYTES or bool(self._plain)

    def wake_for(self, count: int) -> None:
        """Do nothing; `_receive` sets the number of bytes that the socket waits for, by the length of a piece."""

    def receive(self, into: memoryview) -> int:
        """Decrypt available bytes, at most a piece, into `into`; return their number, 0 if none are available now.

        Raises:
            ConnectionError: the connection is closed.
            SealError: the bytes were changed in transit.
        """
        if not self._plain:
            try:
                piece, length, kind = self._next()
            except BlockingIOError:
                return 0
            if kind == CONFIRMS or not length:
                raise SealError(f"expected a nonempty piece of a message, got {length} bytes of kind {kind}")
            fits = length <= len(into)
            target = into[:length] if fits else memoryview(bytearray(length))
            self._opener.open(piece, target)
            self._is_within = kind == MORE
            if fits:
                return length
            self._plain = target
        count = min(len(self._plain), len(into))
        into[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _next(self) -> tuple[memoryview, int, int]:
        """Return the next piece, with its claimed length and kind."""
        while True:
            here = self._stop - self._start
            missing = HEADER_BYTES - here
            if missing <= 0:
                length, kind = piece_of(self._buffer, self._start)
                missing = length + OVERHEAD - here
                if missing <= 0:
                    at = self._start
                    self._start += length + OVERHEAD
                    return self._buffer[at : self._start], length, kind
            if self._stop + missing > _BUFFER or not here:
                self._buffer[:here] = bytes(self._buffer[self._start : self._stop])
                self._start, self._stop = 0, here
            self._receive(missing)

    def _receive(self, missing: int) -> None:
        """Receive the available bytes; `missing`: number of bytes needed to continue."""
        try:
            count = self._sock.recv_into(self._buffer[self._stop :])
        except BlockingIOError:
            if missing != self._awaited:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, missing)
                self._awaited = missing
            raise
        if not count:
            cut = self._is_within or self._stop > self._start
            raise ConnectionResetError(
                "the connection was closed in the middle of a message" if cut else "closed"
            )
        self._stop += count


class SealedSink:
    """A sink that encrypts bytes and sends them when the socket has room. Not thread-safe."""

    def __init__(self, sock: socket.socket, sealer: Sealer) -> None:
        self._sock, self._sealer = sock, sealer
        self._parts: deque[tuple[memoryview, int]] = (
            deque()
        )  # plaintext, and the kind of the piece that ends it
        self._buffer = np.empty(_BUFFER, np.uint8).data
        self._start = self._stop = 0  # of sealed bytes that were not sent yet

    def __len__(self) -> int:
        """Return the number of parts that are not sent completely."""
        return len(self._parts) + (self._start < self._stop)

    def put(self, parts: Sequence[Bytes]) -> bool:
        """Send a message, or as much as the socket accepts; its parts must not change until all are sent.

        Returns:
            Whether everything was sent.

        Raises:
            OSError: the connection is closed.
        """
        joined = sum(map(len, parts))
        if (
            joined <= _JOINED and not self._parts and self._start == self._stop
        ):  # the most common kind of step
            plain = parts[0] if len(parts) == 1 else b"".join(parts)
            self._start, self._stop = 0, self._sealer.seal(plain, LAST, self._buffer)
            try:
                self._start = self._sock.send(self._buffer[: self._stop])
            except BlockingIOError:
                self._start = 0
            return self._start == self._stop
        small: list[Bytes] = []
        joined = 0
        for part in parts:
            joined += len(part)
            if joined > _JOINED:
                self._join(small)
                small, joined = [], len(part)
            if len(part) > _JOINED:
                self._parts.append((memoryview(part), MORE))
                joined = 0
            else:
                small.append(part)
        self._join(small)
        self._parts[-1] = (self._parts[-1][0], LAST)
        self.flush()
        return not len(self)

    def flush(self) -> None:
        """Send as much as the socket accepts.

        Raises:
            OSError: the connection is closed.
        """
        with contextlib.suppress(BlockingIOError):
            while self._start < self._stop or self._seal():
                self._start += self._sock.send(self._buffer[self._start : self._stop])

    def confirm(self) -> None:
        """Send the piece that ends the handshake.

        Raises:
            OSError: the connection is closed.
        """
        self._parts.append((memoryview(b""), CONFIRMS))
        self.flush()

    def _join(self, small: Sequence[Bytes]) -> None:
        if small:
            self._parts.append((memoryview(b"".join(small)), MORE))

    def _seal(self) -> bool:
        """Seal as much as one system call sends; return whether there was anything."""
        stop = 0
        while self._parts:
            part, kind = self._parts[0]
            count = min(len(part), PIECE)
            if stop + count + OVERHEAD > _BUFFER:
                break
            if count < len(part):
                stop += self._sealer.seal(part[:count], MORE, self._buffer[stop:])
                self._parts[0] = (part[count:], kind)
            else:
                stop += self._sealer.seal(part, kind, self._buffer[stop:])
                self._parts.popleft()
        self._start, self._stop = 0, stop
        return stop > 0


class Handshake:
    """One side of a handshake in progress, in which both sides prove that they know the job's key. Not thread-safe.

    Attributes:
        token: the connection's token; on the called side, empty until it is received.
        source, sink: for messages, after `is_over`.
    """

    source: SealedSource
    sink: SealedSink

    def __init__(
        self,
        sock: socket.socket,
        key: bytes,
        token: bytes = b"",
        admits: Callable[[bytes], bool] = lambda token: True,
    ) -> None:
        """Begin, on a non-blocking socket.

        Args:
            sock: a socket on which nothing was sent or received.
            key: the key that both sides must know.
            token: the caller's token; empty on the called side, which receives it.
            admits: on the called side, returns whether a received token is valid.

        Raises:
            OSError: the connection is closed.
        """
        self._sock, self._key, self._admits = sock, key, admits
        self.token = token
        self._us, self._them = (CALLER, CALLED) if token else (CALLED, CALLER)
        self._ours = Greeting(self._us, token or bytes(TOKEN_BYTES), secrets.token_bytes(NONCE_BYTES))
        self.heard = b""
        self._has_keys = False
        if token:
            self._send(self._ours.to_bytes())

    def advance(self) -> bool:
        """Continue as far as possible now; return whether the other side has proved that it knows the job's key.

        Raises:
            ConnectionError: the connection is closed.
            SealError: the other side does not know it, uses another protocol, or sends a token that was not offered.
        """
        if not self._has_keys and not self._read_greeting():
            return False
        if not self.source.confirm():
            return False
        if self._us == CALLER:
            self.sink.confirm()
        return True

    def _read_greeting(self) -> bool:
        """Read the other side's greeting; return whether it has arrived."""
        try:
            data = self._sock.recv(GREETING_BYTES - len(self.heard))
        except BlockingIOError:
            return False
        if not data:
            raise ConnectionResetError("the connection was closed during the handshake")
        self.heard += data
        theirs = Greeting.read(self.heard, self._them)
        if theirs is None:
            return False
        if self._us == CALLED:
            if not self._admits(theirs.token):
                raise SealError("the peer's token does not match")
            self.token = theirs.token
            self._ours = self._ours._replace(token=theirs.token)
        both = (self._ours, theirs) if self._us == CALLER else (theirs, self._ours)
        keys = keys_of(self._key, *both)
        self.source = SealedSource(self._sock, Opener(keys[self._them], self._them, self.token))
        self.sink = SealedSink(self._sock, Sealer(keys[self._us], self._us, self.token))
        self._has_keys = True
        if self._us == CALLED:
            self._send(self._ours.to_bytes())
            self.sink.confirm()
        return True

    def _send(self, data: bytes) -> None:
        if self._sock.send(data) != len(data):  # so little always fits, first of all
            raise ConnectionAbortedError("not enough memory for a greeting")
