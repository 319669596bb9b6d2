# SPDX-License-Identifier: Apache-2.0
"""What a transport consists of: a Connection of a trainer, a Listener beside a server's port, and its entry in `table`.

    trainer  client.links     ShmConnection   TcpConnection   ZmqConnection    Connection: send, take
                                    |               |               |
    server   server.port      ShmListener     TcpListener     ZmqListener      Listener: serve, send, tick

The base (ZeroMQ) is always there. A faster connection is opened beside it and may end at any time: what was on it is
sent again over the base.
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
        """Return the slab that an answer in place names; it changes with the next push but one.

        Raises:
            WireError: there is no such slab.
        """


class Connection(ABC):
    """A trainer's connection to one server. Not thread-safe; never blocks once it is open.

    Attributes:
        handle: what the thread's poller knows it by: a descriptor, or a ZeroMQ socket.
        is_pipe: whether several messages of a request are on it at a time. Then some may be buffered while its
            descriptor is not ready, and when it ends all are sent again.
        needs_base: whether it ends with the base connection beside which it was opened.
    """

    is_pipe: ClassVar[bool] = False
    needs_base: ClassVar[bool] = False
    handle: Any

    @property
    def slabs(self) -> SharedSlabs | None:
        """Memory that it shares, if any."""
        return None

    @property
    def is_sending(self) -> bool:
        """Whether bytes wait for room to be sent."""
        return False

    @property
    def has_more(self) -> bool:
        """Whether `take` may find another message although the poller does not report one."""
        return False

    @abstractmethod
    def send(self, message: Message) -> bool | None:
        """Queue a message; return False if that failed, None if it must take the base: this connection stays.

        Arrays must not change before the reply is there.
        """

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


class Offer(NamedTuple):
    """What a trainer gives a transport that is to open a connection to a server.

    Attributes:
        endpoint: "ip:port" of the server's base listener.
        keys: of the job; None: the wire is plain.
        hello: carries the trainer's session and the server's stamp.
        size: elements of the server's slab; 0 for a server that has none.
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
    """Where a server's port is.

    Attributes:
        address: IPv4 or IPv6 address that it is bound to, or "*" for all.
        stamp: random number of the server process and port; trainers on any node are told.
        port: of the base listener.
        keys: of the job; None: the wire is plain.
    """

    address: str
    stamp: int
    port: int
    keys: WireKeys | None


class Dispatcher(Protocol):
    """The port that a Listener hands messages to."""

    @property
    def poller(self) -> Poller:
        """The one of the port's thread."""

    def read(self, address: bytes, frames: Sequence[Frame], found: Findings | None = None) -> None:
        """Take the frames of a message, as received; `found`: what is known of its only array."""

    def handle(self, address: bytes, message: Message) -> None:
        """Carry out a request and send what is due."""

    def shared_slabs(self, message: Message) -> Sequence[SharedArray]:
        """Return the memory that the sender of a message may map. Raises PaddleError: it has no session."""

    def lose(self, address: bytes) -> None:
        """Hear that a connection is over."""


class Listener(ABC):
    """Accepts and serves connections, in the thread of its port. Not thread-safe; never blocks.

    Attributes:
        handles: what the port's poller knows its sockets by.
        invited_by: the request that `invite` answers, which trainers send over the base; None: there is none.
        rejected: connections that ended because the peer sent something malformed, or nothing at all. Those that were
            closed right after connecting, as port scanners do, do not count.
    """

    handles: set[Any]
    invited_by: ClassVar[type[Record] | None] = None
    rejected = 0

    @abstractmethod
    def open(self, port: Dispatcher) -> None:
        """Accept connections from now on; called once."""

    def invite(self, host: bytes, message: Message, port: int) -> Message:
        """Answer a trainer's request for a connection. `host`: its base address; `port`: that it was asked at."""
        raise NotImplementedError

    @abstractmethod
    def serve(self) -> None:
        """Handle the events that the poller reports for the handles."""

    @abstractmethod
    def send(self, address: bytes, message: Message) -> bool | None:
        """Send; return False if that failed, None if the address belongs to another listener."""

    def lose_host(self, host: bytes) -> None:
        """Close connections that a base address asked for: its own connection broke."""
        return

    def tick(self) -> None:
        """Check deadlines, about once a second."""
        return

    @abstractmethod
    def close(self) -> None:
        """Close it and all connections."""


class Transport(NamedTuple):
    """An entry of `table.TRANSPORTS`.

    Attributes:
        client: opens a connection to a server, or returns None where this transport cannot serve it. Raises
            TimeoutError if no server of this job can be reached by it: then it is not tried again; OSError,
            WireError, MemoryError if this one cannot.
        server: opens a listener beside a port, or returns None where there can be none.
        is_within_node: whether it serves trainers of the same node only.
    """

    name: str
    client: Callable[[Offer], Connection | None]
    server: Callable[[Site], Listener | None]
    is_within_node: bool = False
