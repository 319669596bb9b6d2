# SPDX-License-Identifier: Apache-2.0
"""Which trainers wait on a server, and for whom: barriers over trainer ids, and the report of them for monitoring.

Pure: no clock, no sockets. A barrier counts ids, never messages, so that a message sent twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Generic, NamedTuple, TypeVar

from paddle_node.contract.facts import Queue

T = TypeVar("T")


class Barrier(Generic[T]):
    """A place where all trainers bring something before any of them goes on."""

    def __init__(self, num_trainers: int) -> None:
        self._num_trainers = num_trainers
        self._arrived: dict[int, T] = {}

    @property
    def arrived(self) -> frozenset[int]:
        """Trainers that wait here."""
        return frozenset(self._arrived)

    def arrive(self, trainer: int, item: T) -> None:
        """Note what a trainer brings; if it came before, its first item stays."""
        self._arrived.setdefault(trainer, item)

    def get(self, trainer: int) -> T | None:
        """Return what a trainer brought, or None."""
        return self._arrived.get(trainer)

    def items(self) -> list[tuple[int, T]]:
        """Return (trainer, item) in the order of trainer ids, not of arrival."""
        return [(trainer, self._arrived[trainer]) for trainer in sorted(self._arrived)]

    def withdraw(self, trainer: int) -> None:
        """Forget what a trainer brought."""
        self._arrived.pop(trainer, None)

    def missing(self, excused: Collection[int] = ()) -> list[int]:
        """Return who must still come, ascending; those in `excused` need not."""
        if len(self._arrived) == self._num_trainers:
            return []
        return [t for t in range(self._num_trainers) if t not in self._arrived and t not in excused]

    def is_open(self, excused: Collection[int] = ()) -> bool:
        """Return whether at least one waits and nobody is missing."""
        return bool(self._arrived) and not self.missing(excused)

    def take(self) -> list[tuple[int, T]]:
        """Empty the barrier; return its `items`."""
        items = self.items()
        self._arrived = {}
        return items


class Waiting(NamedTuple):
    """A barrier at which somebody waits.

    Attributes:
        take: takes all away who wait, with what they came with; None: the barrier does.
    """

    what: str
    barrier: Barrier[Any]
    missing: list[int]
    take: Callable[[], list[tuple[int, Any]]] | None = None

    def dismiss(self) -> list[int]:
        """End the waiting; return who waited."""
        return [trainer for trainer, _ in (self.take or self.barrier.take)()]


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
    )
