# SPDX-License-Identifier: Apache-2.0
"""A trainer's stream to one server, beside its ZeroMQ connection: see `stream_door`."""

from __future__ import annotations

import socket

from paddle.errors import WireError
from paddle.pserver.transports.stream_wire import WORD, Place, StreamReader, StreamWriter, prepare
from paddle.pserver.transports.transport import Transport
from paddle.pserver.wire.chunk_wire import read_message
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.verbs import Invited

# Where a firewall lets nothing through but the ports it knows, this is what finding out costs, once.
_CONNECT_S = 1.0


class StreamLink(Transport):
    """One connection. `place`: see `stream_wire.Place`."""

    is_pipe = needs_connection = True

    def __init__(self, endpoint: str, invitation: Message, place: Place) -> None:
        """Connect to where an answer to ATTACH says.

        Raises:
            OSError: it cannot be reached.
            WireError: the answer is no invitation to the server of `endpoint`.
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
            self._sock.sendall(word)
            prepare(self._sock)
        except OSError:
            self._sock.close()
            raise
        self._reader, self._writer = StreamReader(self._sock, place), StreamWriter(self._sock)

    @property
    def is_sending(self) -> bool:
        """See `Transport`."""
        return not self._writer.is_empty

    @property
    def bell(self) -> int:
        """See `Transport`."""
        return self._sock.fileno()

    def send(self, message: Message) -> bool:
        """See `Transport.send`."""
        try:
            return self._writer.put(message)
        except OSError:
            return False

    def take(self) -> Message | None:
        """See `Transport.take`; sends what is left, if it goes."""
        self._writer.flush()
        frames = self._reader.read()
        return None if frames is None else read_message(frames, self._reader.found)

    def close(self) -> None:
        """Close the connection."""
        self._sock.close()
