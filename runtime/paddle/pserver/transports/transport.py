# SPDX-License-Identifier: Apache-2.0
"""The pair that every way of a message is made of: a Transport at the trainer, a Listener beside the server's port.

    trainer  client.links          LocalLink     StreamLink     ZmqLink        Transport: carries, send, take
                                       |             |             |
    server   server.port           LocalDoor     StreamDoor      Router        Listener: serve, send, tick

ZeroMQ is always there. What is faster stands beside it, and may end at any time: what was on it is sent again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import Doorbells
from paddle.pserver.wire.shared_memory import SharedArray


class Transport(ABC):
    """A trainer's connection to one server. Not thread-safe; nothing here waits.

    Attributes:
        bell: what the thread's doorbells know it by: a descriptor, or a ZeroMQ socket.
        is_pipe: whether several messages of a request are on it at once. Then some may lie here while its descriptor
            tells of none, and when it ends all are sent again.
        needs_connection: whether it lives no longer than the ZeroMQ connection beside which it was opened.
    """

    is_pipe: ClassVar[bool] = False
    needs_connection: ClassVar[bool] = False
    bell: Any

    def carries(self, message: Message) -> bool:
        """Return whether a message may go this way."""
        return True

    @property
    def is_sending(self) -> bool:
        """Whether something waits for room to be sent."""
        return False

    @property
    def has_more(self) -> bool:
        """Whether to look for another message at once, since `bell` may tell nothing of it, or it is likely."""
        return self.is_pipe

    @abstractmethod
    def send(self, message: Message) -> bool:
        """Queue a message; return False if that cannot be done. Arrays must not change before the reply is there."""

    @abstractmethod
    def take(self) -> Message | None:
        """Return the next message, or None if there is none now.

        Raises:
            DamagedError: a message changed on its way; the next one may be whole.
            OSError, WireError, MemoryError: the connection is over.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Counter(Protocol):
    """What a Listener needs of the port that it stands beside."""

    @property
    def bells(self) -> Doorbells:
        """Those of the port's thread."""

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """Take the frames of a message, as they came; `found`: what is known of its only array."""

    def handle(self, address: bytes, message: Message) -> None:
        """Carry out a request and send what is due."""

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """Return the memory that the sender of a message may map.

        Raises:
            PaddleError: it has no session.
        """

    def lose(self, address: bytes) -> None:
        """Hear that a connection is over."""


class Listener(ABC):
    """A server's entrance, in the thread of its port. Not thread-safe; nothing here waits."""

    @abstractmethod
    def open(self, port: Counter) -> None:
        """Let others in, from now on; called once."""

    @abstractmethod
    def serve(self) -> None:
        """Do what there is to do."""

    @abstractmethod
    def send(self, address: bytes, message: Message) -> bool | None:
        """Send; return False if that cannot be done here and now, None if the address came in elsewhere."""

    def lose_host(self, host: bytes) -> None:
        """End what a ZeroMQ address asked for: its connection broke."""
        return

    def tick(self) -> None:
        """Look at the clock, about once a second."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close it and all connections."""
