# SPDX-License-Identifier: Apache-2.0
"""A trainer's way to a server of the same node, beside its connection: see `local_door`."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.transports.local_wire import (
    MAX_PACKET,
    address_of,
    is_our_user,
    lies_in,
    local_name,
    pack,
    pack_placed,
    place_of,
    unpack,
)
from paddle.pserver.transports.transport import Transport
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.shared_memory import Floats, SharedArray, mapped
from paddle.pserver.wire.verbs import Attach, Ok, Pull, PullRows, PushPull, Step

_ANSWER_S = 5.0
_SCRATCH = 1 << 25
"""Elements for arrays that lie elsewhere; pages of it that nobody touched take no memory."""
_LINE = 64  # bytes that arrays begin at a multiple of


class LocalLink(Transport):
    """Shared memory with one server.

    Attributes:
        gradient: this trainer's slab; the server reads it while a push is under way.
    """

    def __init__(self, endpoint: str, keys: WireKeys | None, hello: Message, size: int) -> None:
        """Connect and show each other the memory.

        Args:
            hello: carries the trainer's session.
            size: elements of the server's slab; 0 for a server that has none.

        Raises:
            OSError, WireError, MemoryError: there is no such way to this server.
        """
        self._shared = SharedArray(size + _SCRATCH)
        self.gradient = self._shared.array[:size]
        self._bytes, self._address = self._shared.array.view(np.uint8), address_of(self._shared.array)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.bell = self._sock.fileno()
        try:
            self._sock.settimeout(_ANSWER_S)
            self._sock.connect(local_name(endpoint, keys))
            if not is_our_user(self._sock):
                raise WireError("another user's process has the name of a pserver")
            packet = pack(hello._replace(record=Attach(self._shared.array.size)))
            socket.send_fds(self._sock, [packet], [self._shared.descriptor])
            self._values = self._attached(size)
            self._sock.setblocking(False)
        except BaseException:
            self._sock.close()
            raise

    def send(self, message: Message) -> bool:
        """See `Transport.send`; only what `carries` says."""
        try:
            packet = self._packed(message)
            return len(packet) <= MAX_PACKET and bool(self._sock.send(packet))
        except OSError:
            return False

    def take(self) -> Message | None:
        """See `Transport.take`."""
        try:
            packet = self._sock.recv(MAX_PACKET)
        except BlockingIOError:
            return None
        if not packet:
            raise ConnectionResetError("closed")
        return unpack(packet, self._values)

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
        """Return whether a message may go this way: its arrays lie in shared memory, or there is room for them.

        A server of a model is told that the whole gradient lies there, and answers where values do.
        """
        record = message.record
        if isinstance(record, Pull):
            return record.in_place
        if isinstance(record, PushPull):
            if not message.sections or message.sections[0].array is not self.gradient:
                return False
        elif not isinstance(record, Step) and not (isinstance(record, PullRows) and record.is_small):
            return False
        arrays = [each.array for each in message.sections]
        return self._has_room(arrays) or self._has_room([a for a in arrays if not self._is_here(a)])

    def close(self) -> None:
        """Close the way; arrays stay."""
        self._sock.close()

    def _is_here(self, array: npt.NDArray[Any]) -> bool:
        return lies_in(self._shared.array, array)

    def _has_room(self, arrays: Sequence[npt.NDArray[Any]]) -> bool:
        nbytes = sum([array.nbytes for array in arrays]) + _LINE * (len(arrays) + 1)
        return self.gradient.nbytes + nbytes <= self._bytes.size

    def _packed(self, message: Message) -> bytes:
        """Return a message of which no array is sent: those that lie elsewhere are copied to where they are seen.

        They stay there until the next message.
        """
        places, at = [], -(-self.gradient.nbytes // _LINE) * _LINE
        for array in [each.array for each in message.sections]:
            nbytes = array.nbytes
            offset = 0 if array is self.gradient else address_of(array) - self._address
            if nbytes and not 0 <= offset < self._bytes.size:
                self._bytes[at : at + nbytes] = array.reshape(-1).view(np.uint8)
                offset = at
                at += -(-nbytes // _LINE) * _LINE
            places.append(place_of(0, offset, nbytes) if nbytes else b"")
        record = message.record
        if isinstance(record, PushPull):
            message = message._replace(record=record._replace(in_place=True))
        return pack_placed(message, places)

    def _attached(self, size: int) -> list[Floats]:
        packet, descriptors, _, _ = socket.recv_fds(self._sock, MAX_PACKET, 2)
        try:
            answer = unpack(packet)
            # A program's server shares one array, a model's two: without elements where all it holds are rows.
            if not isinstance(answer.record, Ok) or len(descriptors) not in ((2,) if size else (1, 2)):
                raise WireError("the pserver gives no shared memory")
            return [mapped(descriptor, size or None) for descriptor in descriptors]
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
