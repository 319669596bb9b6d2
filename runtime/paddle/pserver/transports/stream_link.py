# SPDX-License-Identifier: Apache-2.0
"""A trainer's stream to one server, beside its ZeroMQ connection: see `stream_door`."""

from __future__ import annotations

import select
import socket
import time

from paddle.errors import WireError
from paddle.pserver.transports.stream_wire import (
    WORD,
    ByteSink,
    ByteSource,
    Place,
    PlainSink,
    PlainSource,
    StreamReader,
    StreamWriter,
    prepare,
)
from paddle.pserver.transports.transport import Transport
from paddle.pserver.wire.chunk_wire import read_message
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Invited
from paddle.sealed_stream import Handshake
from paddle.sealing import SealError

# Where a firewall lets nothing through but the ports it knows, this is what finding out costs, once.
_CONNECT_S = 1.0
# A server may be in the middle of something, as when it was asked for the stream.
_HANDSHAKE_S = 5.0


class StreamLink(Transport):
    """One connection. `place`: see `stream_wire.Place`."""

    is_pipe = needs_connection = True

    def __init__(
        self, endpoint: str, invitation: Message, place: Place, keys: WireKeys | None = None
    ) -> None:
        """Connect to where an answer to OPEN_STREAM says; with the job's key the stream is sealed, or there is none.

        Raises:
            OSError: it cannot be reached.
            WireError: the answer is no invitation to the server of `endpoint`, or who is there knows no key of ours.
        """
        host, _, port = endpoint.rpartition(":")
        offered = invitation.record
        if not isinstance(offered, Invited) or not 0 < offered.port < 1 << 16:
            raise WireError("the pserver offers no stream")
        if str(offered.own_port) != port:
            raise WireError(f"the pserver's own port is {offered.own_port}, we reach it by {port}")
        word = bytes(invitation.section(WORD).array)
        self._sock = socket.create_connection((host.strip("[]"), offered.port), _CONNECT_S)
        try:
            source, sink = _plain(self._sock, word) if keys is None else _sealed(self._sock, word, keys)
        except (OSError, WireError):
            self._sock.close()
            raise
        self.bell = self._sock.fileno()
        self._reader, self._writer = StreamReader(source, place), StreamWriter(sink)

    @property
    def is_sending(self) -> bool:
        """See `Transport`."""
        return not self._writer.is_empty

    @property
    def has_more(self) -> bool:
        """See `Transport`."""
        return self._reader.has_more

    def send(self, message: Message) -> bool:
        """See `Transport.send`."""
        try:
            return self._writer.put(message)
        except (OSError, SealError):
            return False

    def take(self) -> Message | None:
        """See `Transport.take`; sends what is left, if it goes."""
        if not self._writer.is_empty:
            self._writer.flush()
        frames = self._reader.read()
        return None if frames is None else read_message(frames, self._reader.found)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()


def _plain(sock: socket.socket, word: bytes) -> tuple[ByteSource, ByteSink]:
    sock.sendall(word)
    prepare(sock)
    return PlainSource(sock), PlainSink(sock)


def _sealed(sock: socket.socket, word: bytes, keys: WireKeys) -> tuple[ByteSource, ByteSink]:
    """Return what a stream is once both sides have proved that they know the job's key.

    Raises:
        OSError: the connection is over.
        WireError: the other side does not know the key, or says nothing.
    """
    prepare(sock)
    handshake = Handshake(sock, keys.job, word)
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    deadline = time.monotonic() + _HANDSHAKE_S
    while not handshake.go_on():
        rest_s = deadline - time.monotonic()
        if rest_s <= 0:
            raise WireError(f"no handshake within {_HANDSHAKE_S:.0f} s")
        poll.poll(rest_s * 1000)
    return handshake.source, handshake.sink
