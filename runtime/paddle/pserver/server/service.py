# SPDX-License-Identifier: Apache-2.0
"""The interface between an engine and its service, which is `training` (v2 API) or `program_service` (Fluid).

The engine tracks trainers and executes each request once. Its service implements the requests, and a keeper saves the
state. Services use barriers, which have neither a clock nor sockets. A barrier counts trainer ids, not messages, so
that a duplicate message has no effect.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from typing import Any, Generic, Protocol, TypeVar

from paddle.errors import WireError
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import Verb
from paddle_node.contract.classes import NamedTuple, dataclass
from paddle_node.contract.facts import Queue

T = TypeVar("T")


class Barrier(Generic[T]):
    """A barrier over trainers, each of which deposits an item; it opens when every trainer has arrived."""

    def __init__(self, num_trainers: int) -> None:
        self._num_trainers = num_trainers
        self._arrived: dict[int, T] = {}

    @property
    def arrived(self) -> frozenset[int]:
        """The trainers that are waiting at this barrier."""
        return frozenset(self._arrived)

    def arrive(self, trainer: int, item: T) -> None:
        """Record that a trainer waits with this item; ignore a second item from the same trainer."""
        self._arrived.setdefault(trainer, item)

    def get(self, trainer: int) -> T | None:
        """Return the item of a trainer, or None if the trainer has not arrived."""
        return self._arrived.get(trainer)

    def items(self) -> list[tuple[int, T]]:
        """Return (trainer, item) pairs in the order of trainer ids."""
        return sorted(self._arrived.items())  # ids are distinct, so no two items are compared

    def withdraw(self, trainer: int) -> None:
        """Remove a trainer and its item from the barrier, if it has arrived."""
        self._arrived.pop(trainer, None)

    def missing(self, excused: Collection[int] = ()) -> list[int]:
        """Return the missing trainers in ascending order, except those in `excused`."""
        if len(self._arrived) == self._num_trainers:
            return []
        return [t for t in range(self._num_trainers) if t not in self._arrived and t not in excused]

    def is_open(self, excused: Collection[int] = ()) -> bool:
        """Return whether at least one trainer is waiting and none is missing."""
        return bool(self._arrived) and not self.missing(excused)

    def take(self) -> list[tuple[int, T]]:
        """Empty the barrier and return its `items`."""
        items = self.items()
        self._arrived = {}
        return items


class Waiting(NamedTuple):
    """A barrier with its waiting trainers, and the trainers that they wait for.

    Attributes:
        take: function that removes and returns all waiting trainers with their items; None means `barrier.take`.
    """

    what: str
    barrier: Barrier[Any]
    missing: list[int]
    take: Callable[[], list[tuple[int, Any]]] | None = None

    def dismiss(self) -> list[int]:
        """Remove the waiting trainers from the barrier, and return their ids."""
        return [trainer for trainer, _ in (self.take or self.barrier.take)()]


_ADDED_UP = tuple(name for name in Queue._fields if name.startswith("rows"))


def of_all(facts: Iterable[Queue]) -> Queue:
    """Combine the queue reports of several servers: the worst value of each fact, and the sums of counts.

    Servers without a batch may be idle, and do not lower the number of batches.
    """
    known = [each for each in facts if each.requests]
    if not known:
        return Queue()
    longest = max(known, key=lambda each: (each.waited_s, each.waiting))
    lags: dict[int, int] = {}
    for each in known:
        for trainer, lag in each.lags:
            lags[trainer] = max(lag, lags.get(trainer, 0))
    return Queue(
        min((each.version for each in known if each.version), default=0),
        sum(each.requests for each in known),
        longest.waiting,
        longest.missing,
        longest.waited_s,
        tuple(sorted(lags.items())),
        *(sum(getattr(each, name) for each in known) for name in _ADDED_UP),
    )


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """The options of `paddle pserver` that an engine needs.

    Attributes:
        ports: dense and sparse ports of the process, which trainers compare with their own settings; None means there
            is no port range.
    """

    num_trainers: int
    barrier_timeout_s: float = 60.0
    lag_ratio_min: float = 1.0
    lag_ratio_default: float = 1.5
    log_period: int = 500
    ports: tuple[int, int] | None = None


class ReaderView(NamedTuple):
    """What readers of a server can read: the configuration, and the store with the values."""

    configuration: Configuration
    store: Store


class Keeper(Protocol):
    """The interface for saving a server's state. Only the engine's thread calls it."""

    @property
    def doing(self) -> str:
        """The current long operation, or "". Thread-safe."""

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """Start saving a new store; return whether a checkpoint's values were loaded into it.

        Raises:
            PaddleError: a checkpoint that must be loaded cannot be loaded.
        """

    def record(self, message: Message) -> None:
        """Record an executed request that changed the state. Its answer has not been sent yet."""

    def background(self) -> float:
        """Do a small part of the deferred work; return the number of seconds until there is more to do."""


class _NoKeeper:
    doing = ""

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        return False

    def record(self, message: Message) -> None: ...

    def background(self) -> float:
        return math.inf


NO_KEEPER: Keeper = _NoKeeper()
"""The keeper of a server that saves no state."""


@dataclass(frozen=True, slots=True)
class EngineInterface:
    """The part of an engine that its service can use.

    Attributes:
        options: the engine's options.
        left: trainers that have left; the engine updates it.
        answer: function that sends a trainer the reply to its newest request.
        send: function that sends a trainer a message other than the reply.
        keeper: saves the state, and may know an earlier one.
    """

    options: EngineOptions
    left: Set[int]
    answer: Callable[[int, Message], None]
    send: Callable[[int, Message], None]
    keeper: Keeper = NO_KEEPER


class Service(Protocol):
    """The interface for executing trainers' requests. Only the engine's thread calls it.

    The default methods suit services whose requests arrive in one message, and which never discard old gradients.

    Attributes:
        reads: requests that a trainer may repeat at any time, because they do not change the state.
        chunked: the request that chunks belong to, if any.
        long: requests that may take minutes; see `long_work`.
    """

    reads: frozenset[Verb]
    chunked: Verb | None = None
    long: frozenset[Verb] = frozenset()

    @property
    def version(self) -> int:
        """The number of batches applied so far."""

    @property
    def is_quiet(self) -> bool:
        """Return whether `facts` and the stored values currently form the complete state."""

    @property
    def shared_slabs(self) -> list[SharedArray]:
        """Return the shared memory that trainers of this node may map; empty by default."""

    def handle(self, trainer: int, message: Message) -> None:
        """Execute a trainer's request, or store it until other trainers arrive.

        Raises:
            PaddleError: the request is refused; nothing was changed.
        """

    def take_chunk(self, trainer: int, message: Message) -> Sequence[Message]:
        """Store a chunk of a trainer's request, or send the trainer part of the answer.

        Returns:
            The messages that a new process must execute to reach this process's state; empty if there are none.

        Raises:
            PaddleError: the whole request is refused; nothing was changed.
        """
        raise WireError("requests to this server must not be split into chunks")

    def give_up(self, trainer: int) -> bool:
        """Discard a trainer's incomplete message, because it sent a new request; return whether there was one."""
        return False

    def is_partial(self, trainer: int) -> bool:
        """Return whether a trainer's newest request is incomplete, and therefore not yet part of the state."""
        return False

    def lacks(self, trainer: int, index: int) -> bool:
        """Return whether chunk `index` of a trainer's newest request is missing; if not, resend a due answer."""
        return False

    def is_cut(self, trainer: int) -> bool:
        """Return whether a trainer must repeat its request from the beginning but does not seem to know that."""
        return False

    def forget(self, trainer: int) -> None:
        """Discard the waiting requests of a trainer's previous process, which was replaced by a new process."""

    def leave(self, trainer: int) -> None:
        """Continue without a trainer that left: it is excused at all barriers."""

    def waiting(self) -> list[Waiting]:
        """Return the barriers at which trainers are waiting, with the missing trainers."""

    def push_counts(self) -> tuple[PushCount, ...]:
        """Return every trainer's push and discard counts.

        Empty if gradients are never discarded because of their age.
        """
        return ()

    def lags(self) -> tuple[tuple[int, int], ...]:
        """Return (trainer, number of pushes since its last one) pairs; empty if trainers wait for each other."""
        return ()

    def rows(self) -> tuple[int, ...]:
        """Return the facts about growing tables, as the last fields of `Queue`."""
        return ()

    def facts(self) -> dict[str, Any]:
        """Return the trainers' progress as JSON values, for a copy from which another process can resume."""

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Resume from the state of this server's earlier process."""

    def shown(self) -> ReaderView | None:
        """Return the values for readers; None until they are set.

        Raises:
            PserverError: readers cannot read this service.
        """

    def values(self, trainer: int) -> Message:
        """Return the current values as the answer to a push that was executed earlier."""
