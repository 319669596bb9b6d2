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
from dataclasses import dataclass

from paddle.errors import WireError
from paddle.pserver.transports.local_wire import (
    MAX_PACKET,
    is_our_user,
    local_name,
    offset_in,
    pack,
    unpack,
)
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.shared_memory import Floats, SharedArray, mapped
from paddle.pserver.wire.verbs import Attach, Ok

_log = logging.getLogger(__name__)

_BACKLOG = 64


@dataclass(slots=True)
class Visitor:
    """One trainer's connection: its memory, once it has shown that, and those of ours that it was shown."""

    sock: socket.socket
    address: bytes
    memory: Floats | None = None
    shown: Sequence[Floats] = ()


class LocalDoor:
    """The entrance beside one port. Belongs to the port's thread."""

    def __init__(self, endpoint: str, keys: WireKeys | None) -> None:
        """Listen.

        Raises:
            OSError: this system has no such sockets, or the name is taken.
        """
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            self.listener.bind(local_name(endpoint, keys))
            self.listener.listen(_BACKLOG)
        except OSError:
            self.listener.close()
            raise
        self._visitors: dict[bytes, Visitor] = {}
        self._count = 0

    def accept(self) -> Visitor | None:
        """Let the next one in, if there is one that may.

        Raises:
            OSError: there can be no more now; descriptors are short, for one.
        """
        with contextlib.suppress(BlockingIOError, ConnectionError):
            sock, _ = self.listener.accept()
            sock.setblocking(False)
            if not is_our_user(sock):
                sock.close()
                return None
            self._count += 1
            visitor = Visitor(sock, b"\0local-%d" % self._count)
            self._visitors[visitor.address] = visitor
            return visitor
        return None

    def receive(self, visitor: Visitor) -> tuple[Message, list[int]] | None:
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

    def attach(
        self, visitor: Visitor, message: Message, descriptors: list[int], ours: Sequence[SharedArray]
    ) -> None:
        """Answer an ATTACH: take the trainer's memory, give the descriptors of ours.

        Raises:
            WireError: the trainer's memory is of no use.
        """
        try:
            if len(descriptors) != 1:
                raise WireError(f"ATTACH with {len(descriptors)} descriptors, expected 1")
            visitor.memory = mapped(descriptors[0], message.expect(Attach).size)
            visitor.shown = [each.array for each in ours]
        finally:
            _close(descriptors)
        answer = [pack(message._replace(record=Ok()))]
        with contextlib.suppress(OSError):  # then it is gone, and that is read next
            socket.send_fds(visitor.sock, answer, [each.descriptor for each in ours])

    def has(self, address: bytes) -> bool:
        """Return whether an address is one of a visitor."""
        return address in self._visitors

    def send(self, address: bytes, message: Message) -> bool:
        """Send; return False if that cannot be done here and now.

        What is too large, and not in shared memory, must go another way: the visitor is hung up on, and asks there.
        """
        visitor = self._visitors[address]
        packet = pack(message, visitor.shown) if self._may_fit(visitor, message) else b""
        try:
            if 0 < len(packet) <= MAX_PACKET:
                return bool(visitor.sock.send(packet))
            visitor.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        return False

    def _may_fit(self, visitor: Visitor, message: Message) -> bool:
        arrays = [each.array for each in message.sections]
        far = (a for a in arrays if all(offset_in(memory, a) is None for memory in visitor.shown))
        return sum(array.nbytes for array in far) <= MAX_PACKET // 2

    def dismiss(self, visitor: Visitor) -> None:
        """Close a connection."""
        self._visitors.pop(visitor.address, None)
        visitor.sock.close()

    def close(self) -> None:
        """Close all."""
        for visitor in list(self._visitors.values()):
            self.dismiss(visitor)
        self.listener.close()


def open_door(endpoint: str, keys: WireKeys | None) -> LocalDoor | None:
    """Return the entrance beside "ip:port", or None where there can be none: trainers then use the port."""
    try:
        return LocalDoor(endpoint, keys)
    except (OSError, AttributeError) as error:
        _log.info("no shared memory with trainers of this node: %s", error)
        return None


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
