# SPDX-License-Identifier: Apache-2.0
"""When a server goes on: barriers over trainer ids, and the rule that discards gradients which come too late.

Pure: no clock, no sockets. A barrier counts ids, never messages, so that a message sent twice changes
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Generic, NamedTuple, TypeVar

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


class PushCount(NamedTuple):
    """How many gradients of a trainer one server has seen, and how many of them it discarded as too old."""

    trainer: int
    pushed: int
    discarded: int


class LagGate:
    """Asynchronous training: which gradients are too old to be applied.

    Every push is a step. A trainer's push is discarded if that many steps passed since its previous one
    (its own counts) that they reach the threshold, floor(trainers * ratio). The threshold is at least 2: a
    gradient that follows the same trainer's previous one directly is never old.
    """

    def __init__(self, num_trainers: int, ratio: float) -> None:
        self.threshold = max(int(num_trainers * ratio), 2)
        self._steps = 0
        self._last_steps: Counter[int] = Counter()
        self._pushed: Counter[int] = Counter()
        self._too_old: Counter[int] = Counter()
        self.reset_counts()

    def reset_counts(self) -> None:
        """Start the statistics again; what is accepted does not change, nor do the `counts` of the whole job."""
        self.total = 0
        self.distances: Counter[int] = Counter()
        self.discarded: Counter[int] = Counter()

    def accept(self, trainer: int) -> bool:
        """Count one push of a trainer; return whether its gradient is to be applied."""
        self._steps += 1
        distance = self._steps - self._last_steps[trainer]
        self._last_steps[trainer] = self._steps
        self._pushed[trainer] += 1
        self.total += 1
        self.distances[distance] += 1
        accepted = distance < self.threshold
        if not accepted:
            self.discarded[trainer] += 1
            self._too_old[trainer] += 1
        return accepted

    def counts(self) -> tuple[PushCount, ...]:
        """Return what became of every trainer's gradients since the job began, in the order of trainer ids."""
        return tuple(PushCount(each, n, self._too_old[each]) for each, n in sorted(self._pushed.items()))

    def facts(self) -> list[list[int]]:
        """Return what outlives the process: steps so far, then (trainer, its last step, pushed, discarded) of each."""
        return [[self._steps], *([each, self._last_steps[each], *n] for each, *n in self.counts())]

    def take_up(self, facts: list[list[int]]) -> None:
        """Go on where the gate was that gave these `facts`."""
        (self._steps,), *each = facts
        self._last_steps = Counter({trainer: step for trainer, step, _, _ in each})
        self._pushed = Counter({trainer: pushed for trainer, _, pushed, _ in each})
        self._too_old = Counter({trainer: discarded for trainer, _, _, discarded in each})

    def describe(self) -> str:
        """Return the statistics since the last reset in one line."""
        total = max(self.total, 1)
        discarded = sum(self.discarded.values())
        distances = " ".join(f"{k}:{n}({n / total:.3f})" for k, n in sorted(self.distances.items()))
        trainers = " ".join(f"{trainer}:{n}" for trainer, n in sorted(self.discarded.items()))
        return (
            f"discarded {discarded} of {self.total} gradients (ratio {discarded / total:.3f}); "
            f"step distances {distances}; discarded by trainer {trainers or '-'}"
        )


def lag_ratio(wanted: float, minimum: float, default: float) -> float:
    """Return the discard ratio to use: a wanted one that is not above the minimum is replaced by the default."""
    return default if wanted <= minimum else wanted
