# SPDX-License-Identifier: Apache-2.0
"""Contenders that do the same work in turns: A B A B, so that other load on the machine affects all equally."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    """One way to do the measured work.

    Attributes:
        name: name of its figure.
        run: does the work once, given the number of the turn, and returns the measurement.
        prepare: called before each turn; not measured.
    """

    name: str
    run: Callable[[int], float]
    prepare: Callable[[int], None] = lambda turn: None


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of the same quantity."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Return the median."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """Return the minimum."""
        return min(self.values)

    @property
    def high(self) -> float:
        """Return the maximum."""
        return max(self.values)


def interleave(
    contenders: Sequence[Contender], turns: int, warm_up: bool = False
) -> tuple[dict[str, Samples], dict[str, str]]:
    """Have each contender take its turn, in `turns` rounds.

    Args:
        warm_up: an additional first round does not count; with a single turn, there is none.

    Returns:
        The measurements of each contender, and why others dropped out: after a failed turn, one takes no further turn.
    """
    values: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    failed: dict[str, str] = {}
    for turn in range(-1 if warm_up and turns > 1 else 0, turns):
        for contender in contenders:
            if contender.name in failed:
                continue
            try:
                contender.prepare(turn)
                value = contender.run(turn)
            except (OSError, RuntimeError, AssertionError) as error:
                failed[contender.name] = str(error)[-300:].strip()
                continue
            if turn >= 0:
                values[contender.name].append(value)
    samples = {name: Samples(tuple(seen)) for name, seen in values.items() if seen and name not in failed}
    return samples, failed
