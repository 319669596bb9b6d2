# SPDX-License-Identifier: Apache-2.0
"""The interfaces of a transport: a trainer's Connection, a server's Listener, and an entry in `table`.

    trainer  client.links     ShmConnection   TcpConnection   ZmqConnection    Connection: send, take
                                    |               |               |
    server   server.port      ShmListener     TcpListener     ZmqListener      Listener: serve, send, tick

The base transport (ZeroMQ) always exists. A faster connection is opened in addition and can end at any time; its
pending messages are then sent again over the base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from paddle.pserver.wire.arithmetic import Findings, Floats
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import Poller
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import Record
from paddle_node.contract.classes import NamedTuple


class SharedSlabs(Protocol):
    """The interface of memory that a trainer shares with one server.

    Attributes:
        gradient: this trainer's slab, which the server reads during a push.
    """

    gradient: Floats

    def values(self, reply: Message) -> Floats:
        """Return the slab that an answer refers to; the slab is overwritten two pushes later.

        Raises:
            WireError: the answer refers to a slab that does not exist.
        """


class Connection(ABC):
    """The interface of a trainer's connection to one server. Not thread-safe; never blocks once it is open.

    Attributes:
        handle: the connection's handle in the thread's poller: a descriptor, or a ZeroMQ socket.
        is_pipe: whether several messages of a request can be in transit at the same time. Some may then be buffered
            although the descriptor is not ready, and all are sent again when the connection ends.
        needs_base: whether the connection ends when its base connection ends.
        is_sending: whether bytes are queued for sending.
    """

    is_pipe: ClassVar[bool] = False
    needs_base: ClassVar[bool] = False
    handle: Any
    is_sending = False

    @property
    def slabs(self) -> SharedSlabs | None:
        """Return the memory that the connection shares, if any."""
        return None

    @property
    def has_more(self) -> bool:
        """Return whether `take` may find a further message that the poller does not report."""
        return False

    @abstractmethod
    def send(self, message: Message) -> bool | None:
        """Queue a message; return False on failure, or None if this message must use the base connection instead.

        Arrays must not change before the reply has arrived.
        """

    @abstractmethod
    def take(self) -> Message | None:
        """Return the next message, or None if none is available.

        Raises:
            DamagedError: a message was damaged in transit; the next one may be intact.
            OSError, WireError, MemoryError: the connection must be closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection, without waiting for queued messages."""


class Offer(NamedTuple):
    """The arguments with which a trainer opens a connection to a server.

    Attributes:
        endpoint: "ip:port" of the server's base listener.
        keys: keys of the job; None means the wire is plain.
        hello: message with the trainer's session and the server's stamp.
        size: number of elements in the server's slab; 0 means the server has no slab, None that its values have names.
        ask: function that sends a request over the base connection and returns the answer.
        place: function that returns, given a header, the memory for the message's only array; None means any memory.
    """

    endpoint: str
    keys: WireKeys | None
    hello: Message
    size: int | None
    ask: Callable[[Message], Message]
    place: Callable[[bytes], memoryview | None]


class Site(NamedTuple):
    """The address and identity of a server's port, with which listeners are opened.

    Attributes:
        address: IPv4 or IPv6 address to which the port is bound, or "*" for all addresses.
        stamp: random number of the server process and port; it is sent to trainers on any node.
        port: port of the base listener.
        keys: keys of the job; None means the wire is plain.
    """

    address: str
    stamp: int
    port: int
    keys: WireKeys | None


class Dispatcher(Protocol):
    """The interface of a port that its listeners use: it receives their messages."""

    @property
    def poller(self) -> Poller:
        """The poller of the port's thread."""

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """Decode and handle the received frames of a message; `found` has the properties of its only array."""

    def handle(self, address: bytes, message: Message) -> None:
        """Execute a request and send the replies that are due."""

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """Return the memory that the sender of a message may map. Raises PaddleError if the sender has no session."""

    def lose(self, address: bytes) -> None:
        """Handle the end of a connection to a trainer."""


class Listener(ABC):
    """The interface of a server's listener, which accepts and serves connections in its port's thread.

    Not thread-safe; never blocks.

    Attributes:
        handles: handles of the listener's sockets in the port's poller.
        invited_by: the verb of the request that `invite` answers, which trainers send over the base transport; None
            means no such request.
        rejected: number of connections closed because the peer sent something malformed, or nothing at all. Connections
            closed right after connecting, as by port scanners, do not count.
    """

    handles: set[Any]
    invited_by: ClassVar[type[Record] | None] = None
    rejected = 0

    @abstractmethod
    def open(self, port: Dispatcher) -> None:
        """Start accepting connections; called once."""

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer a trainer's request for a connection.

        `host` is the trainer's base address, and `port` the port that received the request.
        """
        raise NotImplementedError

    @abstractmethod
    def serve(self) -> None:
        """Handle the events that the poller reports for the handles."""

    @abstractmethod
    def send(self, address: bytes, message: Message) -> bool | None:
        """Send a message; return False on failure, or None if the address belongs to a different listener."""

    def lose_host(self, host: bytes) -> None:
        """Close the connections that a base address requested, because that base connection broke."""
        return

    def tick(self) -> None:
        """Check the deadlines of connections; the port calls this about once a second."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close the listener and all connections."""


class Transport(NamedTuple):
    """An entry of `table.TRANSPORTS`: a method of carrying messages between trainers and servers.

    Attributes:
        client: function that opens a connection to a server, or returns None if this transport cannot be used for it.
            Raises TimeoutError if no server of this job can be reached; the transport is then not tried again. Raises
            OSError, WireError or MemoryError if only this server cannot be reached.
        server: function that opens a listener in addition to a port, or returns None if that is not possible.
        is_within_node: whether the transport serves only trainers on the same node.
    """

    name: str
    client: Callable[[Offer], Connection | None]
    server: Callable[[Site], Listener | None]
    is_within_node: bool = False
