# SPDX-License-Identifier: Apache-2.0
"""Limits staleness in asynchronous training by discarding old gradients, and counts the discarded ones.

This module uses neither a clock nor sockets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from paddle_node.contract.classes import NamedTuple


class PushCount(NamedTuple):
    """The number of a trainer's gradients that were received, and of those that were discarded as too old."""

    trainer: int
    pushed: int
    discarded: int


class LagGate:
    """The staleness limit of asynchronous training: decides which gradients are too old to be applied.

    Every push is a step. A push is discarded if the number of steps since the same trainer's previous push, including
    this one, reaches the threshold, floor(trainers * ratio). The threshold is at least 2, so that two consecutive
    pushes of one trainer are never too old.
    """

    def __init__(self, num_trainers: int, ratio: float) -> None:
        self.threshold = max(int(num_trainers * ratio), 2)
        self._steps = 0
        self._last_steps: Counter[int] = Counter()
        self._pushed: Counter[int] = Counter()
        self._too_old: Counter[int] = Counter()
        self.reset_counts()

    def reset_counts(self) -> None:
        """Reset the statistics of `describe`; acceptance and `counts` are not affected."""
        self.total = 0
        self.distances: Counter[int] = Counter()
        self.discarded: Counter[int] = Counter()

    def accept(self, trainer: int) -> bool:
        """Count one push of a trainer; return whether its gradient should be applied."""
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
        """Return every trainer's push and discard counts since the job began, by trainer id."""
        return tuple(PushCount(each, n, self._too_old[each]) for each, n in sorted(self._pushed.items()))

    def lags(self, left: Collection[int]) -> tuple[tuple[int, int], ...]:
        """Return (trainer, number of pushes since its last one) for every trainer that has pushed and not left."""
        return tuple(
            (each, self._steps - last) for each, last in sorted(self._last_steps.items()) if each not in left
        )

    def facts(self) -> list[list[int]]:
        """Return the state to save: the number of steps; (trainer, last step, pushed, discarded) for each trainer."""
        return [[self._steps], *([each, self._last_steps[each], *n] for each, *n in self.counts())]

    def take_up(self, facts: list[list[int]]) -> None:
        """Resume from the state that `facts` returned in an earlier process."""
        (self._steps,), *each = facts
        self._last_steps = Counter({trainer: step for trainer, step, _, _ in each})
        self._pushed = Counter({trainer: pushed for trainer, _, pushed, _ in each})
        self._too_old = Counter({trainer: discarded for trainer, _, _, discarded in each})

    def describe(self) -> str:
        """Return the push and discard statistics since the last reset, as one line."""
        total = max(self.total, 1)
        discarded = sum(self.discarded.values())
        distances = " ".join(f"{k}:{n}({n / total:.3f})" for k, n in sorted(self.distances.items()))
        trainers = " ".join(f"{trainer}:{n}" for trainer, n in sorted(self.discarded.items()))
        return (
            f"discarded {discarded} of {self.total} gradients (ratio {discarded / total:.3f}); "
            f"step distances {distances}; discarded by trainer {trainers or '-'}"
        )


def lag_ratio(wanted: float, minimum: float, default: float) -> float:
    """Return the discard ratio to use: the requested one if it is above the minimum, otherwise the default."""
    return default if wanted <= minimum else wanted
