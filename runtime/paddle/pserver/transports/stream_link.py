# SPDX-License-Identifier: Apache-2.0
"""A trainer's stream to one server, beside its ZeroMQ connection: see `stream_door`."""

from __future__ import annotations

import socket

from paddle.errors import WireError
from paddle.pserver.transports.stream_wire import WORD, Place, StreamReader, StreamWriter, prepare
from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.verbs import Invited

# Where a firewall lets nothing through but the ports it knows, this is what finding out costs, once.
_CONNECT_S = 1.0


class StreamLink:
    """One connection. `place`: see `stream_wire.Place`."""

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
        self.sock = socket.create_connection((host.strip("[]"), offered.port), _CONNECT_S)
        try:
            self.sock.sendall(word)
            prepare(self.sock)
        except OSError:
            self.sock.close()
            raise
        self._reader, self._writer = StreamReader(self.sock, place), StreamWriter(self.sock)

    @property
    def is_sending(self) -> bool:
        """Whether something waits to be sent."""
        return not self._writer.is_empty

    @property
    def found(self) -> Findings | None:
        """See `StreamReader.found`."""
        return self._reader.found

    def send(self, message: Message) -> bool:
        """Send a message; return False if the server is gone or does not take it."""
        try:
            return self._writer.put(message)
        except OSError:
            return False

    def take(self) -> list[Frame] | None:
        """Send what is left, if it goes; return the frames of the next message, or None; does not wait.

        Raises:
            OSError, WireError: the connection is over.
        """
        self._writer.flush()
        return self._reader.read()

    def close(self) -> None:
        """Close the connection."""
        self.sock.close()
