# SPDX-License-Identifier: Apache-2.0
"""Turns of several sides, and what is counted: bytes pushed and pulled per second, or the time of a step."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.report import Report
from benchmarks.serving.sides import Side
from benchmarks.timing import Contender, Samples, interleave

SEED = 20261121
_TURN_BYTES = 400_000_000  # pushed by each trainer in a turn
_MAX_STEPS = 500


@dataclass(frozen=True)
class Plan:
    """How much is measured.

    Attributes:
        turns: of each side.
        scale: sizes have this share of their full size.
    """

    report: Report
    turns: int
    scale: float

    def size(self, full: int) -> int:
        """Bytes of a payload that is `full` at full scale; small ones are not scaled."""
        return full if full < 1 << 20 else max(int(full * self.scale) // 4096, 1) * 4096

    def steps(self, size: int) -> int:
        """Steps of a turn."""
        return max(2, min(_MAX_STEPS, int(_TURN_BYTES * self.scale) // size))

    def repeat(self, name: str, run: Callable[[], float], unit: str) -> None:
        """Measure one thing as often as there are turns."""
        self.report.add(name, Samples(tuple(run() for _ in range(self.turns))), unit)


def goodput_of(side: Side, steps: int, size: int) -> float:
    """GB/s of one turn, bytes pushed and bytes pulled, of all trainers together."""
    seen = side.steps(steps)
    return 2 * size * steps * len(seen) / _span_s(seen) / 1e9


def latency_of(side: Side, steps: int) -> float:
    """Microseconds of a step: the median of one turn's steps."""
    took: list[float] = [one for each in side.steps(steps) for one in each["took"]]
    return statistics.median(took) * 1e6


def goodput(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """See `goodput_of`."""
    _in_turns(plan, sides, lambda side: goodput_of(side, plan.steps(size), size), "GB/s")


def latency(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """See `latency_of`."""
    _in_turns(plan, sides, lambda side: latency_of(side, plan.steps(size)), "us")


def pace(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """Steps a second of a whole job."""

    def rate(side: Side) -> float:
        count = plan.steps(size)
        return count / _span_s(side.steps(count))

    _in_turns(plan, sides, rate, "steps/s")


def mixed_sizes(total: int, count: int = 100) -> list[int]:
    """Bytes of `count` parameters, of a few hundred bytes to some MB, that sum up to about `total`."""
    weights = np.exp(np.random.default_rng(SEED).normal(0.0, 2.0, count))
    return [max(int(total / 4 * w), 1) * 4 for w in weights / weights.sum()]


def _in_turns(plan: Plan, sides: Mapping[str, Side], measured: Callable[[Side], float], unit: str) -> None:
    def contender(name: str, side: Side) -> Contender:
        return Contender(name, lambda turn: measured(side))

    contenders = [contender(name, side) for name, side in sides.items()]
    found, failed = interleave(contenders, plan.turns, warm_up=True)
    plan.report.add_all(found, failed, unit)


def _span_s(seen: list[dict[str, Any]]) -> float:
    span: float = max(each["ended"] for each in seen) - min(each["begun"] for each in seen)
    return span
