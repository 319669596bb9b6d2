# SPDX-License-Identifier: Apache-2.0
"""The interfaces of a transport: a trainer's Connection, a Listener that accompanies a server's port, and an entry in
`table`.

    trainer  client.links     ShmConnection   TcpConnection   ZmqConnection    Connection: send, take
                                    |               |               |
    server   server.port      ShmListener     TcpListener     ZmqListener      Listener: serve, send, tick

The base (ZeroMQ) always exists. A faster connection is opened in addition and can end at any time: its pending messages
are then sent again over the base.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from paddle.pserver.wire.arithmetic import Findings, Floats
from paddle.pserver.wire.keys import WireKeys
from paddle.pserver.wire.message import Frame, Message
from paddle.pserver.wire.poller import Poller
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import Record


class SharedSlabs(Protocol):
    """Memory that a trainer shares with one server.

    Attributes:
        gradient: this trainer's slab; the server reads it while a push is under way.
    """

    gradient: Floats

    def values(self, reply: Message) -> Floats:
        """Return the slab to which an answer refers; it is overwritten two pushes later.

        Raises:
            WireError: there is no such slab.
        """


class Connection(ABC):
    """A trainer's connection to one server. Not thread-safe; never blocks once it is open.

    Attributes:
        handle: its handle in the thread's poller: a descriptor, or a ZeroMQ socket.
        is_pipe: whether several messages of a request are in transit simultaneously. Then some may be buffered while
            its descriptor is not ready, and when it ends all are sent again.
        needs_base: whether it ends with its base connection.
    """

    is_pipe: ClassVar[bool] = False
    needs_base: ClassVar[bool] = False
    handle: Any

    @property
    def slabs(self) -> SharedSlabs | None:
        """Return the memory that the connection shares, if any."""
        return None

    @property
    def is_sending(self) -> bool:
        """Return whether bytes are queued for sending."""
        return False

    @property
    def has_more(self) -> bool:
        """Return whether `take` may find another message although the poller does not report one."""
        return False

    @abstractmethod
    def send(self, message: Message) -> bool | None:
        """Queue a message; return False if that failed, None if it must use the base and this connection stays open.

        Arrays must not change before the reply has arrived.
        """

    @abstractmethod
    def take(self) -> Message | None:
        """Return the next message, or None if none is available.

        Raises:
            DamagedError: a message changed on its way; the next one may be intact.
            OSError, WireError, MemoryError: the connection must be closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Offer(NamedTuple):
    """The data for opening a connection from a trainer to a server.

    Attributes:
        endpoint: "ip:port" of the server's base listener.
        keys: keys of the job; None: the wire is plain.
        hello: message with the trainer's session and the server's stamp.
        size: elements of the server's slab; 0 for a server without one.
        ask: sends a request over the base connection and returns the answer.
        place: returns where the only array of a message belongs, by its header; None: anywhere.
    """

    endpoint: str
    keys: WireKeys | None
    hello: Message
    size: int
    ask: Callable[[Message], Message]
    place: Callable[[bytes], memoryview | None]


class Site(NamedTuple):
    """The address and identity of a server's port.

    Attributes:
        address: IPv4 or IPv6 address that it is bound to, or "*" for all.
        stamp: random number of the server process and port; it is sent to trainers on any node.
        port: port of the base listener.
        keys: keys of the job; None: the wire is plain.
    """

    address: str
    stamp: int
    port: int
    keys: WireKeys | None


class Dispatcher(Protocol):
    """The port that receives a Listener's messages."""

    @property
    def poller(self) -> Poller:
        """The poller of the port's thread."""

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """Process the received frames of a message; `found`: the properties of its only array."""

    def handle(self, address: bytes, message: Message) -> None:
        """Execute a request and send the replies that are due."""

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """Return the memory that the sender of a message may map. Raises PaddleError: the sender has no session."""

    def lose(self, address: bytes) -> None:
        """Handle the end of a connection."""


class Listener(ABC):
    """Accepts and serves connections, in the thread of its port. Not thread-safe; never blocks.

    Attributes:
        handles: handles of its sockets in the port's poller.
        invited_by: the request that `invite` answers, which trainers send over the base; None: there is none.
        rejected: number of connections closed because the peer sent something malformed, or nothing at all. Connections
            closed right after connecting, as by port scanners, do not count.
    """

    handles: set[Any]
    invited_by: ClassVar[type[Record] | None] = None
    rejected = 0

    @abstractmethod
    def open(self, port: Dispatcher) -> None:
        """Accept connections from now on; called once."""

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer a trainer's request for a connection. `host`: its base address; `port`: the port that received it."""
        raise NotImplementedError

    @abstractmethod
    def serve(self) -> None:
        """Handle the events that the poller reports for the handles."""

    @abstractmethod
    def send(self, address: bytes, message: Message) -> bool | None:
        """Send a message; return False if that failed, None if the address belongs to another listener."""

    def lose_host(self, host: bytes) -> None:
        """Close the connections that a base address requested, because its own connection broke."""
        return

    def tick(self) -> None:
        """Check deadlines, about once a second."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close the listener and all connections."""


class Transport(NamedTuple):
    """An entry of `table.TRANSPORTS`.

    Attributes:
        client: opens a connection to a server, or returns None if this transport cannot serve it. Raises
            TimeoutError if it reaches no server of this job, and then it is not tried again; OSError,
            WireError or MemoryError if it cannot reach this one.
        server: opens a listener that accompanies a port, or returns None if this is not possible.
        is_within_node: whether it serves trainers of the same node only.
    """

    name: str
    client: Callable[[Offer], Connection | None]
    server: Callable[[Site], Listener | None]
    is_within_node: bool = False
