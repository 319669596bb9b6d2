# SPDX-License-Identifier: Apache-2.0
"""A trainer's way to a server of the same node, beside its connection: see `local_door`."""

from __future__ import annotations

import os
import socket

from paddle.errors import WireError
from paddle.pserver.transports.local_wire import (
    MAX_PACKET,
    in_place,
    is_our_user,
    local_name,
    pack,
    unpack,
)
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, Section, decode
from paddle.pserver.wire.shared_memory import Floats, SharedArray, mapped
from paddle.pserver.wire.verbs import Attach, Ok, Pull, Verb

_ANSWER_S = 5.0


class LocalLink:
    """Shared memory with one server.

    Attributes:
        gradient: this trainer's slab; the server reads it while a push is under way.
    """

    def __init__(self, endpoint: str, keys: WireKeys | None, hello: Message, size: int) -> None:
        """Connect and show each other the memory.

        Args:
            hello: carries the trainer's session.
            size: elements of the server's slab.

        Raises:
            OSError, WireError, MemoryError: there is no such way to this server.
        """
        self._shared = SharedArray(size)
        self.gradient = self._shared.array
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.sock.settimeout(_ANSWER_S)
            self.sock.connect(local_name(endpoint, keys))
            if not is_our_user(self.sock):
                raise WireError("another user's process has the name of a pserver")
            packet = pack(hello._replace(record=Attach(size)))
            socket.send_fds(self.sock, [packet], [self._shared.descriptor])
            self._values = self._attached(size)
            self.sock.setblocking(False)
        except BaseException:
            self.sock.close()
            raise

    def send(self, message: Message) -> bool:
        """Send what `carries` says; return False if the server is gone or does not take it."""
        try:
            return bool(self.sock.send(pack(in_place(message, ()))))
        except OSError:
            return False

    def take(self) -> Message | None:
        """Return the next message; None if there is none now.

        Raises:
            ConnectionError: the server is gone.
        """
        try:
            packet = self.sock.recv(MAX_PACKET)
        except BlockingIOError:
            return None
        if not packet:
            raise ConnectionResetError("closed")
        return decode(unpack(packet))

    def values(self, reply: Message) -> Floats:
        """Return the slab that an answer in place speaks of; it changes with the next push but one.

        Raises:
            WireError: there is no such slab.
        """
        which = reply.expect(Ok).slab
        if not 0 <= which < len(self._values):
            raise WireError("a reply that names no slab")
        return self._values[which]

    def carries(self, message: Message) -> bool:
        """Return whether a message is nothing but a push of `gradient`, or asks where values lie."""
        if isinstance(message.record, Pull):
            return message.record.in_place
        sections: tuple[Section, ...] = message.sections
        return message.verb is Verb.PUSH_PULL and len(sections) == 1 and sections[0].array is self.gradient

    def close(self) -> None:
        """Close the way; arrays stay."""
        self.sock.close()

    def _attached(self, size: int) -> list[Floats]:
        packet, descriptors, _, _ = socket.recv_fds(self.sock, MAX_PACKET, 2)
        try:
            answer = decode(unpack(packet))
            if answer.verb is not Verb.OK or len(descriptors) != 2:
                raise WireError("the pserver gives no shared memory")
            return [mapped(descriptor, size) for descriptor in descriptors]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
