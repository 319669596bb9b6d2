# SPDX-License-Identifier: Apache-2.0
"""Contenders that do the same work in turns: A B A B, so that what else the machine does meets all alike."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Contender:
    """One way to do the work.

    Attributes:
        name: of its figure.
        run: does it once, given the number of the turn, and returns what it measured.
        prepare: called before each turn; not measured.
    """

    name: str
    run: Callable[[int], float]
    prepare: Callable[[int], None] = lambda turn: None


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one thing."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle one."""
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        """The least."""
        return min(self.values)

    @property
    def high(self) -> float:
        """The most."""
        return max(self.values)


def interleave(
    contenders: Sequence[Contender], turns: int, warm_up: bool = False
) -> tuple[dict[str, Samples], dict[str, str]]:
    """Lets each contender take its turn, `turns` times round.

    Args:
        warm_up: one round before them does not count.

    Returns:
        What each one measured, and why others dropped out: a contender whose turn fails takes no further one.
    """
    values: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    failed: dict[str, str] = {}
    for turn in range(-1 if warm_up else 0, turns):
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
