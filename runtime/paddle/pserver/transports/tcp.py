# SPDX-License-Identifier: Apache-2.0
"""The TCP transport, for large messages: additional connections to a port whose base is ZeroMQ.

A trainer requests such a connection over the base transport, and receives a port and a token that is valid once. The
stream lasts no longer than the base connection that requested it. If the job has a key, the token alone is not
sufficient: both ends prove that they know the key, and all later bytes are sealed (see `sealing`).
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import time

import numpy as np

from paddle.errors import WireError
from paddle.pserver.transports.byte_stream import (
    ByteSink,
    ByteSource,
    Place,
    PlainSink,
    PlainSource,
    StreamReader,
    StreamWriter,
    prepare,
)
from paddle.pserver.transports.socket_listener import Peer, SocketListener
from paddle.pserver.transports.transport import Connection, Offer, Site
from paddle.pserver.wire.codec import decode
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section
from paddle.pserver.wire.verbs import Invited, OpenStream
from paddle.sealed_stream import Handshake
from paddle.sealing import TOKEN_BYTES, SealError, is_possible

_log = logging.getLogger(__name__)

_SECTION = "word"  # of the invitation: the token
_BACKLOG = 64
_MAX_PEERS = 1024
_MAX_UNKNOWN = 128  # peers that have not shown a token
_TOKEN_WITHIN_S = 5.0
# If a firewall passes only known ports, detecting that takes this long, one time.
_CONNECT_S = 1.0
# The server may be busy, as when it was asked for the stream.
_HANDSHAKE_S = 5.0


class TcpConnection(Connection):
    """A trainer's TCP stream to one server. For `place`, see `byte_stream.Place`."""

    is_pipe = needs_base = True

    def __init__(
        self, endpoint: str, invitation: Message, place: Place, keys: WireKeys | None = None
    ) -> None:
        """Connect to the address in an answer to OPEN_STREAM; with the job's key the stream is sealed.

        Raises:
            OSError: the address cannot be reached.
            WireError: the answer is not an invitation to the server of `endpoint`, or the peer does not know the key.
        """
        host, _, port = endpoint.rpartition(":")
        offered = invitation.record
        if not isinstance(offered, Invited) or not 0 < offered.port < 1 << 16:
            raise WireError("the pserver does not offer a stream")
        if str(offered.own_port) != port:
            raise WireError(
                f"the pserver listens on port {offered.own_port}, but this connection uses port {port}"
            )
        token = bytes(invitation.section(_SECTION).array)
        self._sock = socket.create_connection((host.strip("[]"), offered.port), _CONNECT_S)
        try:
            source, sink = _plain(self._sock, token) if keys is None else _sealed(self._sock, token, keys)
        except (OSError, WireError):
            self._sock.close()
            raise
        self.handle = self._sock.fileno()
        self._reader, self._writer = StreamReader(source, place), StreamWriter(sink)

    @property
    def has_more(self) -> bool:
        """Return whether `take` may find a further message that the poller does not report."""
        return self._reader.has_more

    def send(self, message: Message) -> bool:
        """Queue a message; return False if the stream is closed or too much data is waiting."""
        try:
            done = self._writer.put(message)
        except (OSError, SealError):
            return False
        self.is_sending = not self._writer.is_empty
        return done

    def take(self) -> Message | None:
        """Send queued bytes, and return the next message, or None."""
        if self.is_sending:
            self._writer.flush()
            self.is_sending = not self._writer.is_empty
        frames = self._reader.read()
        return None if frames is None else decode(frames, self._reader.found)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


class Stream(Peer):
    """The server's end of a trainer's TCP stream.

    Attributes:
        host: the base address that requested the stream; None until the trainer has sent its token and, if there is a
            key, proved that it knows the key.
        reader, writer: read and write messages; on a sealed stream, only after the handshake.
        handshake: the handshake in progress until `host` is set; None if the wire is plain.
    """

    reader: StreamReader
    writer: StreamWriter

    def __init__(self, sock: socket.socket, address: bytes, handshake: Handshake | None) -> None:
        super().__init__(sock, address)
        self.host: bytes | None = None
        self.handshake = handshake
        if handshake is None:
            self.reader, self.writer = StreamReader(PlainSource(sock)), StreamWriter(PlainSink(sock))


class TcpListener(SocketListener[Stream]):
    """A port's listener for TCP streams of invited trainers."""

    _KIND = b"stream"
    invited_by = OpenStream

    def __init__(self, address: str, keys: WireKeys | None = None, within_s: float = _TOKEN_WITHIN_S) -> None:
        """Listen on a free port of the same address.

        Args:
            address: the address of the port's host; see `Site`.
            keys: keys of the job; None means the wire is plain.
            within_s: time limit for a peer to show its token, and to prove that it knows the key.

        Raises:
            OSError: the socket cannot be opened.
        """
        host = "" if address == "*" else address
        is_6 = ":" in host or (not host and socket.has_dualstack_ipv6())
        family = socket.AF_INET6 if is_6 else socket.AF_INET
        listener = socket.create_server(
            (host, 0), family=family, backlog=_BACKLOG, dualstack_ipv6=is_6 and not host
        )
        listener.setblocking(False)
        super().__init__(listener)
        self._tokens: dict[bytes, bytes] = {}  # -> the base address that it was given to
        self._unknown: dict[
            bytes, float
        ] = {}  # address of a peer without a host -> since when, the oldest first
        self._keys, self._within_s = keys, within_s

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer OPEN_STREAM with the port to connect to and the token to send."""
        token = secrets.token_bytes(TOKEN_BYTES)
        if len(self._tokens) >= _MAX_PEERS:
            self._tokens.clear()
        self._tokens[token] = host
        section = Section(_SECTION, np.frombuffer(token, np.uint8))
        where = int(self._listener.getsockname()[1])
        return message._replace(record=Invited(where, port), sections=(section,))

    def send(self, address: bytes, message: Message) -> bool | None:
        """Send a message to a peer of this listener; see `Listener.send`."""
        stream = self._by_address.get(address)
        if stream is None or stream.host is None:
            return None
        try:
            done = stream.writer.put(message)
        except (OSError, SealError):
            return False  # the next read finds it closed, or its trainer sends again what has no answer
        self._port.poller.expect_room(stream.descriptor, not stream.writer.is_empty)
        return done

    def lose_host(self, host: bytes) -> None:
        """Close the connections that a base address requested; see `Listener.lose_host`."""
        for stream in [each for each in self._peers.values() if each.host == host]:
            self._dismiss(stream)

    def tick(self) -> None:
        """Close connections that sent no token in time; resume accepting."""
        for address, since in list(self._unknown.items()):
            if time.monotonic() - since > self._within_s:
                self._dismiss(self._by_address[address])
        super().tick()

    def _accept(self, sock: socket.socket, address: bytes) -> Stream | None:
        if len(self._unknown) >= _MAX_UNKNOWN:
            self._dismiss(self._by_address[next(iter(self._unknown))])
        if len(self._peers) >= _MAX_PEERS:
            return None
        prepare(sock)
        key = None if self._keys is None else self._keys.job
        handshake = None if key is None else Handshake(sock, key, admits=self._tokens.__contains__)
        self._unknown[address] = time.monotonic()
        return Stream(sock, address, handshake)

    def _read_message(self, stream: Stream) -> bool:
        if stream.host is None and not self._identify(stream):
            return False
        if not stream.writer.is_empty:
            stream.writer.flush()
            self._port.poller.expect_room(stream.descriptor, not stream.writer.is_empty)
        frames = stream.reader.read()
        if frames is None:
            return False
        self._port.read(stream.address, frames, stream.reader.found)
        return stream.reader.has_more

    def _identify(self, stream: Stream) -> bool:
        """Return whether a stream has shown its token, which is valid once, and has proved the key if there is one.

        Raises:
            ConnectionError: it was closed, or its token or proof is wrong.
        """
        try:
            token = self._token_of(stream)
        except ConnectionResetError:  # a port scanner: it is not counted
            del self._unknown[stream.address]
            raise
        if token is None:
            return False
        stream.host = self._tokens.pop(token, None)
        if stream.host is None:
            raise ConnectionRefusedError("the peer's token does not match")
        stream.handshake = None
        del self._unknown[stream.address]
        return True

    def _token_of(self, stream: Stream) -> bytes | None:
        handshake = stream.handshake
        if handshake is None:
            return stream.reader.take(TOKEN_BYTES)
        try:
            if not handshake.advance():
                return None
        except SealError as error:
            raise ConnectionRefusedError(str(error)) from error
        stream.reader, stream.writer = StreamReader(handshake.source), StreamWriter(handshake.sink)
        return handshake.token

    def _dismiss(self, peer: Stream) -> None:
        if self._unknown.pop(peer.address, None) is not None:
            self.rejected += 1
        super()._dismiss(peer)


def connect(offer: Offer) -> TcpConnection | None:
    """Open a stream if there may be large messages and the job's key can seal it; see `Transport.client`."""
    if offer.size == 0 or (offer.keys is not None and not is_possible()):
        return None
    invitation = offer.ask(offer.hello._replace(record=OpenStream()))
    return TcpConnection(offer.endpoint, invitation, offer.place, offer.keys)


def listen(site: Site) -> TcpListener | None:
    """Open a listener for invited trainers; return None if streams are not possible on this server."""
    if site.keys is not None and not is_possible():
        _log.info(
            "no direct TCP streams, so ZeroMQ carries all values: install cryptography 47 or newer to encrypt streams"
        )
        return None
    try:
        return TcpListener(site.address, site.keys)
    except OSError as error:
        _log.info("no direct TCP streams, so ZeroMQ carries all values: %s", error)
        return None


def _plain(sock: socket.socket, token: bytes) -> tuple[ByteSource, ByteSink]:
    sock.sendall(token)
    prepare(sock)
    return PlainSource(sock), PlainSink(sock)


def _sealed(sock: socket.socket, token: bytes, keys: WireKeys) -> tuple[ByteSource, ByteSink]:
    """Return the source and sink of a stream after both ends have proved that they know the job's key.

    Raises:
        OSError: the connection is closed.
        WireError: the other end does not know the key, or does not answer.
    """
    prepare(sock)
    handshake = Handshake(sock, keys.job, token)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    deadline = time.monotonic() + _HANDSHAKE_S
    while not handshake.advance():
        rest_s = deadline - time.monotonic()
        if rest_s <= 0:
            raise WireError(f"no handshake within {_HANDSHAKE_S:.0f} s")
        poll.poll(rest_s * 1000)
    return handshake.source, handshake.sink
