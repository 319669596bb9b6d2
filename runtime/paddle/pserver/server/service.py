# SPDX-License-Identifier: Apache-2.0
"""What an engine serves, and what it lends to that: `training` of the v2 face, or `program_service` of Fluid's.

The engine knows trainers and carries out each request once; its service knows what requests mean, and a keeper what
must not be forgotten. Barriers, which services have, are pure: no clock, no sockets. A barrier counts trainer ids,
never messages, so that a message sent twice changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from paddle.errors import WireError
from paddle.pserver.server.staleness import PushCount
from paddle.pserver.store.store import Store
from paddle.pserver.wire.configuration import Configuration
from paddle.pserver.wire.message import Message
from paddle.pserver.wire.shared_memory import SharedArray
from paddle.pserver.wire.verbs import Verb
from paddle_node.contract.facts import Queue

T = TypeVar("T")


class Barrier(Generic[T]):
    """A barrier at which every trainer deposits an item before any of them continues."""

    def __init__(self, num_trainers: int) -> None:
        self._num_trainers = num_trainers
        self._arrived: dict[int, T] = {}

    @property
    def arrived(self) -> frozenset[int]:
        """Trainers that wait here."""
        return frozenset(self._arrived)

    def arrive(self, trainer: int, item: T) -> None:
        """Record a trainer's item; a repeated one is ignored."""
        self._arrived.setdefault(trainer, item)

    def get(self, trainer: int) -> T | None:
        """Return a trainer's item, or None."""
        return self._arrived.get(trainer)

    def items(self) -> list[tuple[int, T]]:
        """Return (trainer, item) in the order of trainer ids, not of arrival."""
        return [(trainer, self._arrived[trainer]) for trainer in sorted(self._arrived)]

    def withdraw(self, trainer: int) -> None:
        """Forget a trainer's item."""
        self._arrived.pop(trainer, None)

    def missing(self, excused: Collection[int] = ()) -> list[int]:
        """Return the missing trainers, ascending, without those in `excused`."""
        if len(self._arrived) == self._num_trainers:
            return []
        return [t for t in range(self._num_trainers) if t not in self._arrived and t not in excused]

    def is_open(self, excused: Collection[int] = ()) -> bool:
        """Return whether at least one trainer waits and none is missing."""
        return bool(self._arrived) and not self.missing(excused)

    def take(self) -> list[tuple[int, T]]:
        """Empty the barrier; return its `items`."""
        items = self.items()
        self._arrived = {}
        return items


class Waiting(NamedTuple):
    """A barrier at which trainers wait.

    Attributes:
        take: takes all away who wait, with what they came with; None: the barrier does.
    """

    what: str
    barrier: Barrier[Any]
    missing: list[int]
    take: Callable[[], list[tuple[int, Any]]] | None = None

    def dismiss(self) -> list[int]:
        """Open the barrier; return the trainers that waited."""
        return [trainer for trainer, _ in (self.take or self.barrier.take)()]


_ADDED_UP = tuple(name for name in Queue._fields if name.startswith("rows"))


def of_all(facts: Iterable[Queue]) -> Queue:
    """Several servers as one: the furthest behind of each kind, and the sum of their requests."""
    known = [each for each in facts if each.requests]
    if not known:
        return Queue()
    longest = max(known, key=lambda each: (each.waited_s, each.waiting))
    lags: dict[int, int] = {}
    for each in known:
        for trainer, lag in each.lags:
            lags[trainer] = max(lag, lags.get(trainer, 0))
    return Queue(
        min(each.version for each in known),
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
        ports: dense and sparse ports of the process, which trainers compare with theirs; None: there is no such range.
    """

    num_trainers: int
    barrier_timeout_s: float = 60.0
    lag_ratio_min: float = 1.0
    lag_ratio_default: float = 1.5
    log_period: int = 500
    ports: tuple[int, int] | None = None


class Shown(NamedTuple):
    """What readers see."""

    configuration: Configuration
    store: Store


class Keeper(Protocol):
    """Hears of everything that must not be forgotten. Called by the engine's thread alone."""

    @property
    def doing(self) -> str:
        """What it is in the middle of, if that may take long; any thread may ask."""

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        """Take a store that was just made into care; return whether it got the values of a checkpoint.

        Raises:
            PaddleError: it should get them, and they cannot be had.
        """

    def record(self, message: Message) -> None:
        """Note a request that was carried out and changed something; its answer is not sent yet."""

    def background(self) -> float:
        """Do a little of what can wait; return in how many seconds there is more to do."""


class _Nobody:
    doing = ""

    def adopt(self, store: Store, configuration: Configuration) -> bool:
        return False

    def record(self, message: Message) -> None: ...

    def background(self) -> float:
        return math.inf


NOBODY: Keeper = _Nobody()
"""Keeps nothing."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What an engine lends to its service.

    Attributes:
        options: see there.
        left: trainers that left; the engine keeps it up to date.
        answer: gives a trainer the reply to its newest request.
        tell: sends a trainer something that is not yet the reply.
        keeper: takes the state into care, and may know an earlier one.
    """

    options: EngineOptions
    left: Set[int]
    answer: Callable[[int, Message], None]
    tell: Callable[[int, Message], None]
    keeper: Keeper = NOBODY


class Service(Protocol):
    """What trainers' requests do. Called by the engine's thread alone.

    A service that subclasses it has requests that come whole, and no gradient that is ever too old.

    Attributes:
        reads: what a trainer may ask again at any time: the state is the same afterwards.
        chunked: the request that chunks belong to, if any.
        long: requests that may take minutes; see `long_work`.
    """

    reads: frozenset[Verb]
    chunked: Verb | None = None
    long: frozenset[Verb] = frozenset()

    @property
    def version(self) -> int:
        """Batches applied so far."""

    @property
    def is_quiet(self) -> bool:
        """Whether `facts` and the stored values together are the whole state."""

    @property
    def shared_slabs(self) -> list[SharedArray]:
        """Memory that trainers of this node may map."""

    def handle(self, trainer: int, message: Message) -> None:
        """Carry out a trainer's request, or let it wait.

        Raises:
            PaddleError: it is refused; nothing was changed.
        """

    def take_chunk(self, trainer: int, message: Message) -> Sequence[Message]:
        """Take part of a trainer's request, or give it part of the answer.

        Returns:
            What another process must carry out to be where this one is then; nothing if it is there already.

        Raises:
            PaddleError: the whole request is refused; nothing was changed.
        """
        raise WireError("requests to this server come in no chunks")

    def give_up(self, trainer: int) -> bool:
        """Discard a trainer's incomplete message, because it sent another request. Tell if there was any."""
        return False

    def is_partial(self, trainer: int) -> bool:
        """Whether a trainer's newest request has begun, and is no part of the state before it is whole."""
        return False

    def lacks(self, trainer: int, index: int) -> bool:
        """Whether part `index` of a trainer's newest request did not come; if its answer is due it is given again."""
        return False

    def is_cut(self, trainer: int) -> bool:
        """Whether a trainer must repeat its request from the beginning, and seems not to have heard of it."""
        return False

    def forget(self, trainer: int) -> None:
        """Drop what a trainer's previous process was waiting with: a new one has taken its place."""

    def leave(self, trainer: int) -> None:
        """Go on without a trainer that left."""

    def waiting(self) -> list[Waiting]:
        """Return the barriers at which trainers wait, and the missing trainers."""

    def push_counts(self) -> tuple[PushCount, ...]:
        """Return what became of every trainer's gradients; empty where none is ever too old."""
        return ()

    def lags(self) -> tuple[tuple[int, int], ...]:
        """Return (trainer, pushes since its own last one) where trainers do not wait for each other."""
        return ()

    def rows(self) -> tuple[int, ...]:
        """Return the facts about growing tables, as the last fields of `Queue`."""
        return ()

    def facts(self) -> dict[str, Any]:
        """Return where trainers are, as JSON."""

    def take_up(self, configuration: Configuration, store: Store, facts: Mapping[str, Any]) -> None:
        """Go on where another process of this server was."""

    def shown(self) -> Shown | None:
        """Return the values for readers; None while there are none.

        Raises:
            PserverError: it is not for readers.
        """

    def values(self, trainer: int) -> Message:
        """Return the answer to a trainer's push that was carried out before: the present values."""
