# SPDX-License-Identifier: Apache-2.0
"""A byte stream to a command on a node, over a TLS connection: one that the node made, or one to a resident agent."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable

from paddle_cluster.connection.bootstrap import Bootstrap

TURN_S = 0.05  # what a write waits for a node that takes nothing
PIECE = 1 << 16
MOST_LINE = 4096


class TlsStream:
    """Bytes to and from a node; one thread at a time reads, one writes, any closes.

    Args:
        connection: made just now; owned from now on.
        context: of a server, or of a client.

    Attributes:
        bootstrap: what the command waits for on its standard input, once there is one.
    """

    bootstrap: Bootstrap

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, server_side: bool = True
    ) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._lock = threading.Lock()  # the library's object is used by one thread at a time
        self._unsent = b""  # of the thread that writes
        self._left = b""  # of the thread that reads
        self._closing = threading.Event()
        self._is_over = False
        self._said_goodbye = False
        self._why: Callable[[], str] = str

    def greet(self, deadline: float) -> bytes:
        """Shake hands and read one line, which nothing follows.

        Raises:
            OSError: the other side does something else, or is too slow.
        """
        self._shake_hands(deadline)
        line = b""
        while not line.endswith(b"\n"):
            try:
                line += self._tls.read(MOST_LINE)
            except ssl.SSLWantReadError:
                self._exchange(deadline)
            if len(line) >= MOST_LINE:
                raise ConnectionError("it sent no greeting")
        self._exchange(deadline, reads=False)
        self._socket.setblocking(False)
        return line

    def call(self, certificate: bytes, request: bytes, deadline: float) -> None:
        """Shake hands with who presents this certificate (DER), ask for something, and wait until an answer begins.

        Raises:
            OSError: the other side refuses, or is too slow.
            ValueError: it is somebody else.
        """
        self._shake_hands(deadline)
        if self._tls.getpeercert(binary_form=True) != certificate:
            raise ValueError("its certificate is a different one")
        self._tls.write(request)
        while not self._left:  # until then it may still refuse our certificate
            self._exchange(deadline)
            with contextlib.suppress(ssl.SSLWantReadError):
                self._left = self._tls.read(PIECE)
        self._socket.setblocking(False)

    def _shake_hands(self, deadline: float) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._exchange(deadline)

    def _exchange(self, deadline: float, reads: bool = True) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:  # though it says something all the time, byte by byte
            raise TimeoutError("it takes too long")
        self._socket.settimeout(left_s)
        self._socket.sendall(self._outgoing.read())
        if reads:
            data = self._socket.recv(PIECE)
            if not data:
                raise ConnectionError("it ended")
            self._incoming.write(data)

    def begin(self, bootstrap: Bootstrap, why: Callable[[], str]) -> None:
        """Become the stream of a command.

        Args:
            why: says what else is known of an end, or nothing.
        """
        self.bootstrap = bootstrap
        self._why = why

    def fileno(self) -> int:
        """Readable while `read` has data or the end of the stream."""
        return self._socket.fileno()

    @property
    def may_live_on(self) -> bool:
        """Whether the connection alone may be lost."""
        return not self._said_goodbye and not self._why()

    def may_block(self) -> bool:
        """Always false: reading sends nothing to the node."""
        return False

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end of the stream, or None if none are available now.

        With a limit below 2 * PIECE some may be left, of which no descriptor tells: read again.

        Raises:
            OSError: what came is no TLS.
        """
        if not self._left and not self._is_over:
            try:  # with what is there of one more record it must not become more than the limit
                data = self._socket.recv(max(PIECE, limit - PIECE))
            except BlockingIOError:
                return None
            with self._lock:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
                self._left = self._decrypted()
        taken, self._left = self._left[:limit], self._left[limit:]
        return taken or (b"" if self._is_over else None)

    def _decrypted(self) -> bytes:
        """All that has come: nothing stays in the library, where no descriptor would tell of it."""
        pieces = []
        try:
            while piece := self._tls.read(PIECE):
                pieces.append(piece)
            self._is_over = self._said_goodbye = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLEOFError:
            self._is_over = True
        return b"".join(pieces)

    def write(self, data: bytes) -> int:
        """How much of `data` the node took, all or nothing, within about TURN_S.

        Raises:
            OSError: the node is gone, or `close` was called.
        """
        if self._closing.is_set():
            raise ConnectionError("the stream was closed")
        self._send(TURN_S)
        if self._unsent:
            return 0
        with self._lock:
            self._tls.write(data)
            self._unsent = self._outgoing.read()
        self._send(0)
        return len(data)

    def _send(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except BlockingIOError:
                left_s = deadline - time.monotonic()
                poll = select.poll()
                poll.register(self._socket, select.POLLOUT)
                if left_s <= 0 or not poll.poll(left_s * 1000):
                    return

    def close(self) -> None:
        """Close both directions; the descriptor remains open for the thread that polls it."""
        self._closing.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> str:
        """Why the stream ended; closes it."""
        self.close()
        self._socket.close()
        return self._why() or ("the node agent ended" if self._said_goodbye else "the connection ended")
