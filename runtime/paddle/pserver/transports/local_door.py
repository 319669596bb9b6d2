# SPDX-License-Identifier: Apache-2.0
"""A server's second entrance, for trainers of the same node: parameters and gradients stay where they lie.

A unix socket in the abstract namespace carries headers alone; dense gradients are read from the trainer's memory
and values stand in the server's, which trainers cannot write to. Only processes of the same user are let in, and
the socket's name depends on the job's key.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
from collections.abc import Sequence

from paddle.errors import PaddleError, WireError
from paddle.pserver.transports.local_wire import (
    MAX_PACKET,
    SMALL,
    is_our_user,
    lies_in,
    local_name,
    pack,
    unpack,
)
from paddle.pserver.transports.socket_door import Guest, SocketDoor
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message, error_message
from paddle.pserver.wire.shared_memory import Floats, mapped
from paddle.pserver.wire.verbs import Attach, Ok

_log = logging.getLogger(__name__)

_BACKLOG = 64


class Visitor(Guest):
    """One trainer's connection: its memory, once it has shown that, and those of ours that it was shown."""

    memory: Floats | None = None
    shown: Sequence[Floats] = ()


class LocalDoor(SocketDoor[Visitor]):
    """The entrance beside one port for processes of this node."""

    _KIND = b"local"

    def __init__(self, endpoint: str, keys: WireKeys | None) -> None:
        """Listen.

        Raises:
            OSError: this system has no such sockets, or the name is taken.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            listener.bind(local_name(endpoint, keys))
            listener.listen(_BACKLOG)
        except OSError:
            listener.close()
            raise
        super().__init__(listener)

    def send(self, address: bytes, message: Message) -> bool | None:
        """See `Listener.send`.

        What is too large, and not in shared memory, must go another way: the visitor is hung up on, and asks there.
        """
        visitor = self._by_address.get(address)
        if visitor is None:
            return None
        packet = pack(message, visitor.shown) if self._may_fit(visitor, message) else b""
        try:
            if 0 < len(packet) <= MAX_PACKET:
                return bool(visitor.sock.send(packet))
            visitor.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        return False

    def _welcome(self, sock: socket.socket, address: bytes) -> Visitor | None:
        return Visitor(sock, address) if is_our_user(sock) else None

    def _hear(self, visitor: Visitor) -> bool:
        received = _receive(visitor)
        if received is None:
            return False
        message, descriptors = received
        try:
            if isinstance(message.record, Attach):
                self._attach(visitor, message, descriptors)
            else:
                self._port.handle(visitor.address, message)
        finally:
            _close(descriptors)
        return False  # what it sends next rings

    def _attach(self, visitor: Visitor, message: Message, descriptors: Sequence[int]) -> None:
        """Answer an ATTACH: take the trainer's memory, give the descriptors of ours.

        Raises:
            WireError: the trainer's memory is of no use.
        """
        if len(descriptors) != 1:
            raise WireError(f"ATTACH with {len(descriptors)} descriptors, expected 1")
        try:
            ours = self._port.shared_slabs(message)
        except PaddleError as error:
            self.send(visitor.address, error_message(str(error))._replace(request=message.request))
            return
        visitor.memory = mapped(descriptors[0], message.expect(Attach).size)
        visitor.shown = [each.array for each in ours]
        answer = [pack(message._replace(record=Ok()))]
        with contextlib.suppress(OSError):  # then it is gone, and that is read next
            socket.send_fds(visitor.sock, answer, [each.descriptor for each in ours])

    @staticmethod
    def _may_fit(visitor: Visitor, message: Message) -> bool:
        arrays = [each.array for each in message.sections]
        far = (a for a in arrays if not any(lies_in(memory, a) for memory in visitor.shown))
        return sum(array.nbytes for array in far) <= SMALL


def open_door(endpoint: str, keys: WireKeys | None) -> LocalDoor | None:
    """Return the entrance beside "ip:port", or None where there can be none: trainers then use the port."""
    try:
        return LocalDoor(endpoint, keys)
    except (OSError, AttributeError) as error:
        _log.info("no shared memory with trainers of this node: %s", error)
        return None


def _receive(visitor: Visitor) -> tuple[Message, list[int]] | None:
    """Return the next message and the descriptors with it, which a visitor shows once; None if there is none now.

    Raises:
        ConnectionError: the trainer is gone.
        WireError: it is no message.
    """
    descriptors: list[int] = []
    try:
        if visitor.memory is None:
            data, descriptors, _, _ = socket.recv_fds(visitor.sock, MAX_PACKET, 1)
        else:
            data = visitor.sock.recv(MAX_PACKET)
    except BlockingIOError:
        return None
    if not data:
        raise ConnectionResetError("closed")
    try:
        message = unpack(data, [] if visitor.memory is None else [visitor.memory])
    except WireError:
        _close(descriptors)
        raise
    return message, descriptors


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
