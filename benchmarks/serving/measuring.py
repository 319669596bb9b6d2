# SPDX-License-Identifier: Apache-2.0
"""Turns of several sides, and their metrics: bytes pushed and pulled per second, or the time of a step."""

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
    """The amount of measurements.

    Attributes:
        turns: number of turns per side.
        scale: sizes are multiplied by this factor.
    """

    report: Report
    turns: int
    scale: float

    def size(self, full: int) -> int:
        """Return the bytes of a payload that is `full` at full scale; small ones are not scaled."""
        return full if full < 1 << 20 else max(int(full * self.scale) // 4096, 1) * 4096

    def steps(self, size: int) -> int:
        """Return the number of steps per turn."""
        return max(2, min(_MAX_STEPS, int(_TURN_BYTES * self.scale) // size))

    def repeat(self, name: str, run: Callable[[], float], unit: str) -> None:
        """Repeat a measurement for every turn."""
        self.report.add(name, Samples(tuple(run() for _ in range(self.turns))), unit)


def goodput_of(side: Side, steps: int, size: int) -> float:
    """Return GB/s of one turn, counting bytes pushed and bytes pulled, of all trainers together."""
    seen = side.steps(steps)
    return 2 * size * steps * len(seen) / _span_s(seen) / 1e9


def latency_of(side: Side, steps: int) -> float:
    """Return microseconds per step: the median of one turn's steps."""
    took: list[float] = [one for each in side.steps(steps) for one in each["took"]]
    return statistics.median(took) * 1e6


def goodput(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """Measure `goodput_of` in turns."""
    _in_turns(plan, sides, lambda side: goodput_of(side, plan.steps(size), size), "GB/s")


def latency(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """Measure `latency_of` in turns."""
    _in_turns(plan, sides, lambda side: latency_of(side, plan.steps(size)), "us")


def pace(plan: Plan, sides: Mapping[str, Side], size: int) -> None:
    """Measure steps per second of a whole job."""

    def rate(side: Side) -> float:
        count = plan.steps(size)
        return count / _span_s(side.steps(count))

    _in_turns(plan, sides, rate, "steps/s")


def mixed_sizes(total: int, count: int = 100) -> list[int]:
    """Return the sizes of `count` parameters, from a few hundred bytes to some MB, which sum to about `total`."""
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
