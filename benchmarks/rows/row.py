# SPDX-License-Identifier: Apache-2.0
"""A row: a task that users wait for, the sides that do it in turns, and our target speed relative to the others.

A ratio is always our speed divided by the rival's: above 1, paddle-cluster is faster.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.launching.run import Run
from benchmarks.report import Report
from benchmarks.timing import Contender, interleave

_TIMES = ("s", "ms", "µs")  # units of which less is better; of all others, more is better


@dataclass(frozen=True)
class Work:
    """The amount and the environment of measurements.

    Attributes:
        turns: maximum number of turns per side.
        is_quick: little work, only to check that everything runs.
        peers_python: the Python that has PyTorch and mpi4py.
        ps_lite_python: the Python that has MXNet, which includes ps-lite.
        congestion: the congestion control of all sides on this machine.
        scratch: a directory that is removed at the end.
    """

    turns: int
    is_quick: bool
    peers_python: str
    ps_lite_python: str
    congestion: str
    scratch: Path

    @property
    def scale(self) -> float:
        """Return the factor for payload sizes."""
        return 0.02 if self.is_quick else 1.0

    def hosts(self, count: int) -> int:
        """Return the number of hosts of a test cluster."""
        return min(count, 2) if self.is_quick else count

    def run(self) -> Run:
        """Return the settings for `benchmarks.launching`."""
        return Run(self.turns, self.turns, self.scale, 1.0, self.scratch, Report())


class Lacking(NamedTuple):
    """A side that cannot take part, and the reason."""

    name: str
    why: str


Sides = Iterable[Contender | Lacking]


class Versus(NamedTuple):
    """A comparison of two sides.

    Attributes:
        reach: the target ratio; None if there is none.
    """

    ours: str
    theirs: str
    reach: float | None = None


@dataclass(frozen=True)
class Row:
    """A task that users wait for.

    Attributes:
        what: a description for people.
        unit: unit of the sides' results; for "s", "ms" and "µs", less is better.
        sides: the sides that take turns, available while the context is active.
        versus: the comparisons.
        at_most: side -> its target, if no rival does the same.
        turns: maximum number of turns.
        warm_up: an additional first turn does not count.
        why: what limits ours if it loses.
    """

    name: str
    what: str
    unit: str
    sides: Callable[[Work], AbstractContextManager[Sides]]
    versus: tuple[Versus, ...] = ()
    at_most: Mapping[str, float] | None = None
    turns: int = 9
    warm_up: bool = True
    why: str = ""

    def measure(self, work: Work) -> dict[str, Any]:
        """Return the results in the form of the JSON file."""
        load, begun = os.getloadavg()[0], time.monotonic()
        lacking: dict[str, str] = {}
        values: dict[str, tuple[float, ...]] = {}
        try:
            with self.sides(work) as sides:
                contenders = []
                for side in sides:
                    if isinstance(side, Lacking):
                        lacking[side.name] = side.why
                    else:
                        contenders.append(side)
                found, failed = interleave(contenders, min(work.turns, self.turns), warm_up=self.warm_up)
                values = {name: samples.values for name, samples in found.items()}
                lacking |= failed
        except (RuntimeError, AssertionError, OSError, MemoryError) as error:  # other rows are still useful
            lacking["row"] = str(error)[-300:]
        return {
            "what": self.what,
            "unit": self.unit,
            "why": self.why,
            "sides": {
                name: {"median": statistics.median(each), "values": each} for name, each in values.items()
            },
            "lacking": {name: " ".join(why.split()) for name, why in lacking.items()},
            "ratios": [*self._ratios(values), *self._limits(values)],
            "load": [round(load, 1), round(os.getloadavg()[0], 1)],
            "took_s": round(time.monotonic() - begun, 1),
            "date": time.strftime("%Y-%m-%d"),
        }

    def _ratios(self, values: Mapping[str, tuple[float, ...]]) -> list[dict[str, Any]]:
        """Return the ratios of the medians, with the spread over turns, in which both sides met the same conditions."""
        found = []
        for ours, theirs, reach in self.versus:
            if ours in values and theirs in values:
                turns = [self._faster(*pair) for pair in zip(values[ours], values[theirs], strict=False)]
                ratio = self._faster(*(statistics.median(values[side]) for side in (ours, theirs)))
                found.append(_ratio(ours, theirs, ratio, turns, reach))
            elif reach is not None:
                found.append({"ours": ours, "theirs": theirs, "ratio": None, "reach": reach})
        return found

    def _limits(self, values: Mapping[str, tuple[float, ...]]) -> list[dict[str, Any]]:
        found = []
        for ours, most in (self.at_most or {}).items():
            if ours in values:
                turns = [most / value for value in values[ours]]
                theirs = f"{most:g} {self.unit}"
                found.append(_ratio(ours, theirs, most / statistics.median(values[ours]), turns, 1.0))
        return found

    def _faster(self, ours: float, theirs: float) -> float:
        return theirs / ours if self.unit in _TIMES else ours / theirs


def _ratio(ours: str, theirs: str, ratio: float, turns: list[float], reach: float | None) -> dict[str, Any]:
    return {
        "ours": ours,
        "theirs": theirs,
        "ratio": round(ratio, 3),
        "low": round(min(turns), 3),
        "high": round(max(turns), 3),
        "reach": reach,
        "reached": None if reach is None else round(ratio, 2) >= reach,
    }
