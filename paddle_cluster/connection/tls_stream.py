# SPDX-License-Identifier: Apache-2.0
"""A byte stream to a command on a node over TLS, on a connection that the node or the launcher opened."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable

from paddle_cluster.connection.bootstrap import Bootstrap

TURN_S = 0.05  # how long a write waits for a node that accepts no data
PIECE = 1 << 16
MOST_LINE = 4096


class TlsStream:
    """A byte stream over TLS to a command on a node. One thread may read and one may write; any thread may close it.

    Args:
        connection: a new connection; owned from now on.
        context: TLS context of a server or of a client.

    Attributes:
        bootstrap: the data that the command expects on its standard input, once the command is known.
    """

    bootstrap: Bootstrap

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, *, server_side: bool = True
    ) -> None:
        self._socket = connection
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._lock = threading.Lock()  # protects the library's object, which is not thread-safe
        self._unsent = b""  # of the writing thread
        self._left = b""  # of the reading thread
        self._closing = threading.Event()
        self._is_over = False
        self._said_goodbye = False
        self._why: Callable[[], str] = str

    def greet(self, deadline: float) -> bytes:
        """Complete the handshake and read one line; the peer then waits.

        Raises:
            OSError: the peer violates the protocol, or is too slow.
        """
        self._shake_hands(deadline)
        line = b""
        while not line.endswith(b"\n"):
            try:
                line += self._tls.read(MOST_LINE)
            except ssl.SSLWantReadError:
                self._exchange(deadline)
            if len(line) >= MOST_LINE:
                raise ConnectionError("the peer sent no greeting")
        self._exchange(deadline, reads=False)
        self._socket.setblocking(False)
        return line

    def call(self, certificate: bytes, request: bytes, deadline: float) -> None:
        """Complete the handshake with the peer that has this certificate (DER), and send a request.

        Raises:
            OSError: the peer refuses, or is too slow.
            ValueError: the peer has a different certificate.
        """
        self._shake_hands(deadline)
        if self._tls.getpeercert(binary_form=True) != certificate:
            raise ValueError("the peer's certificate does not match")
        self._tls.write(request)
        while not self._left:  # until then it can still refuse this certificate
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
        if left_s <= 0:  # even if it keeps sending data, byte by byte
            raise TimeoutError("the handshake timed out")
        self._socket.settimeout(left_s)
        self._socket.sendall(self._outgoing.read())
        if reads:
            data = self._socket.recv(PIECE)
            if not data:
                raise ConnectionError("it ended")
            self._incoming.write(data)

    def begin(self, bootstrap: Bootstrap, why: Callable[[], str]) -> None:
        """Start using the connection as the stream of the agent's command.

        Args:
            why: function that returns a known reason why the stream ended, or "".
        """
        self.bootstrap = bootstrap
        self._why = why

    def fileno(self) -> int:
        """Return a descriptor that is readable while `read` has data or the end of the stream."""
        return self._socket.fileno()

    @property
    def may_live_on(self) -> bool:
        """Return whether the agent may still be running, because only the connection was lost."""
        return not self._said_goodbye and not self._why()

    def report_to(self, arrived: Callable[[], None]) -> bool:
        """Return False, so that the reader polls `fileno`; `arrived` is never called."""
        return False

    def may_block(self) -> bool:
        """Return False, because `read` never waits for the node."""
        return False

    def read(self, limit: int) -> bytes | None:
        """Return up to `limit` available bytes, b"" at the end of the stream, or None if none are available now.

        If the limit is below 2 * PIECE, data can remain that the descriptor does not report: read again.

        Raises:
            OSError: the received data is not valid TLS.
        """
        if not self._left and not self._is_over:
            try:  # together with one more record, the buffered data must not exceed the limit
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
        """Decrypt all received data, because the descriptor does not report data that remains in the TLS library."""
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
        """Write all of `data` or nothing, within about TURN_S seconds; return the number of bytes written.

        Raises:
            OSError: the node is unreachable, or `close` was called.
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
        """Close the stream and return why it ended."""
        self.close()
        self._socket.close()
        return self._why() or ("the node agent exited" if self._said_goodbye else "the connection ended")
