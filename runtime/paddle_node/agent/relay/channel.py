# SPDX-License-Identifier: Apache-2.0
"""A TLS connection between two nodes of a job, driven by the loop, in bounded memory.

No request or data is sent before the peer has presented the job's certificate.
"""

from __future__ import annotations

import socket
import ssl
from typing import Any, Callable

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.relay.tls import Identity

READ_SIZE = 1 << 18  # bytes per turn, at most
HANDSHAKE_S = 5.0

# On a link that is slower than this machine, every packet would wake us up. While a peer sends much, a short read is
# followed by a pause, so that more data arrives.
MUCH = 1 << 18
LITTLE = 1 << 16
REST_S = 0.005


class Channel:
    """A TLS connection to another node of the job, which owns its socket.

    Args:
        peer: a connected or connecting, non-blocking socket.
        opened: called when the peer has been authenticated.
        received: called with received data, which stays unchanged until the call returns.
        room: called while `wants_room` is set and no data is waiting to be sent.
        closed: called once, with the reason, unless `close` was called first.

    Attributes:
        known: whether the peer has presented the job's certificate.
    """

    def __init__(
        self,
        loop: Loop,
        peer: socket.socket,
        identity: Identity,
        *,
        is_server: bool,
        opened: Callable[[], None],
        received: Callable[[memoryview], None],
        room: Callable[[], None],
        closed: Callable[[str], None],
    ) -> None:
        self.known = False
        self.is_open = True
        self._loop = loop
        self._peer = peer
        self._fd = peer.fileno()
        self._certificate = identity.certificate
        self._opened, self._received, self._room, self._closed = opened, received, room, closed
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._sealed, self._plain = memoryview(b""), memoryview(b"")  # buffers, allocated on first use
        context = identity.server if is_server else identity.client
        self._tls = context.wrap_bio(self._in, self._out, server_side=is_server)
        self._unsent = memoryview(b"")
        self._wants_room = False
        self._came = 0
        self._is_resting = False
        self._connecting = not is_server
        self._deadline = loop.after(
            HANDSHAKE_S, lambda: self._end("no handshake within %.0f s" % HANDSHAKE_S)
        )
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._connecting:
            loop.on_writable(self._fd, self._writable)
        else:
            self._listen()

    def send(self, data: bytes) -> None:
        """Send all of `data` as fast as the peer accepts it; call only from `opened`, `received` and `room`."""
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        self._flush()

    def want_room(self, wanted: bool) -> None:
        """Set whether to call `room` when more bytes can be sent."""
        if wanted != self._wants_room:
            self._wants_room = wanted
            self._watch()

    def close(self) -> None:
        """Close the connection without notifying the peer."""
        if self.is_open:
            self.is_open = False
            self._deadline.cancel()
            self._loop.on_readable(self._fd, None)
            self._loop.on_writable(self._fd, None)
            self._peer.close()

    def _end(self, reason: str) -> None:
        if self.is_open:
            self.close()
            self._closed(reason)

    def _readable(self) -> None:
        if not self._sealed:
            self._sealed = memoryview(bytearray(READ_SIZE))
        try:
            size = self._peer.recv_into(self._sealed)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        if not size:
            self._end("the peer closed the connection")
            return
        self._came += size
        self._in.write(self._sealed[:size])
        if self._came > MUCH and size < LITTLE:
            self._is_resting = True
            self._loop.after(REST_S, self._rested)
        self._advance()
        if self._is_resting:
            self._listen()

    def _rested(self) -> None:
        self._is_resting = False
        self._listen()

    def _listen(self) -> None:
        if self.is_open and not self._connecting:
            self._loop.on_readable(self._fd, None if self._is_resting else self._readable)

    def _advance(self) -> None:
        """Process the received data."""
        try:
            if not self.known and not self._shake():
                return
            if not self._plain:
                self._plain = memoryview(bytearray(READ_SIZE))
            more = True
            while more and self.is_open:
                size, more = self._decrypt()
                if size:
                    self._received(self._plain[:size])
        except ssl.SSLError as error:
            self._end("TLS: %s" % (error.reason or error))
        except OSError as error:
            self._end(error.strerror or str(error))

    def _decrypt(self) -> "tuple[int, bool]":
        """Fill the buffer; return the number of bytes, and whether there are more."""
        size = 0
        while size < READ_SIZE:
            try:
                got: Any = self._tls.read(READ_SIZE - size, self._plain[size:])  # into a buffer: a count
            except ssl.SSLWantReadError:
                return size, False
            if not got:
                raise ConnectionError("the peer closed the connection")
            size += got
        return size, True

    def _shake(self) -> bool:
        """Continue the handshake; return True once the peer is authenticated."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        finally:
            self._flush()
        if self._tls.getpeercert(binary_form=True) != self._certificate:
            self._end("the peer's certificate does not match")
            return False
        self.known = True
        self._deadline.cancel()
        self._opened()
        return self.is_open

    def _writable(self) -> None:
        if self._connecting:
            code = self._peer.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                self._end(OSError(code, "").strerror or "error %d" % code)
                return
            self._connecting = False
            self._listen()
            self._advance()
            self._watch()
            return
        self._flush()
        if self._wants_room and not self._unsent and self.is_open:
            self._room()

    def _flush(self) -> None:
        """Write as much as the system accepts."""
        if not self.is_open:
            return
        try:
            while True:
                if not self._unsent:
                    self._unsent = memoryview(self._out.read())
                    if not self._unsent:
                        break
                self._unsent = self._unsent[self._peer.send(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._end(error.strerror or str(error))
            return
        self._watch()

    def _watch(self) -> None:
        if self.is_open and not self._connecting:
            wanted = bool(self._unsent) or self._wants_room
            self._loop.on_writable(self._fd, self._writable if wanted else None)
