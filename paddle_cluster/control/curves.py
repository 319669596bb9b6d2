# SPDX-License-Identifier: Apache-2.0
"""The curves of a job since its start, for status.json. Their size is bounded, however long the job runs."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from paddle_cluster.text.output_events import Event, Plotted, Progressed
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.facts import Progress

TRAINER = "trainer-0"
POINTS = 240
PASSES = 200  # the last PASSES
RANKS = 8  # the first RANKS; more curves are indistinguishable
MOST = 24  # curves other than the costs of trainer 0
OTHER_POINTS = 120
COST = "cost"
_RANKS = frozenset(f"trainer-{rank}" for rank in range(RANKS))


class Point(NamedTuple):
    """A point of a curve: a batch number, and the average of the values reported up to it.

    Attributes:
        at: number of batches that the trainer had computed; if it has no passes, its step.
    """

    at: float
    value: float


class BatchCount:
    """The number of batches that a trainer has computed since the job's start, by its own count."""

    def __init__(self) -> None:
        self._own = self._batches = 0

    def add(self, step: Progress) -> int:
        """Return the number of batches up to a progress report; where the own count goes back, counting continues.

        If the script has no passes, the step number is returned unchanged.
        """
        if step.pass_id is None:
            return step.batch_id
        own = step.step or step.batch_id + 1
        self._batches += own - self._own if own > self._own else 1
        self._own = own
        return self._batches


class Curve:
    """A curve with at most `most` points, each the average of the same number of reports.

    When there are too many points, adjacent pairs are merged. At most four reports per second arrive, so a point may
    cover more batches than were reported. If the step decreases, the points at and after that step are replaced.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.points: list[Point] = []
        self._reports = 1  # per point
        self._open: list[float] = []

    def add(self, at: float, value: float) -> None:
        """Add a reported value at a batch or step number."""
        while self.points and self.points[-1].at >= at:
            self.points.pop()
        self._open.append(value)
        if len(self._open) == self._reports:
            self.points.append(Point(at, sum(self._open) / self._reports))
            self._open = []
        if len(self.points) == self._most:
            self.points = [_middle(*self.points[at : at + 2]) for at in range(0, self._most, 2)]
            self._reports *= 2


class CostHistory:
    """The costs of trainer 0 since the job's start, their mean over each pass, and the speed of all trainers."""

    def __init__(self) -> None:
        self._curve = Curve(POINTS)
        self._speeds = Curve(POINTS)
        self._passes: dict[int, float] = {}  # pass -> mean cost, as the trainer reports it
        self._batches = BatchCount()

    def add(self, step: Progress) -> None:
        """Add the cost and the means of passes in a trainer's progress report."""
        batches = self._batches.add(step)
        if step.cost is not None:
            self._curve.add(batches, step.cost)
        self._passes.update(step.passes)
        for early in sorted(self._passes)[:-PASSES]:
            del self._passes[early]

    def measure(self, at: float, speeds: Collection[float]) -> None:
        """Add the speeds of all running trainers, in samples/s, at a time in seconds since 1970."""
        if speeds:
            self._speeds.add(at, sum(speeds))

    def as_json(self) -> dict[str, Any]:
        """Return the points, the mean cost of each pass, and the total speeds, for status.json."""
        return {
            "process": TRAINER,
            "points": [list(point) for point in self._curve.points],
            "speeds": [list(point) for point in self._speeds.points],
            "passes": [list(one) for one in sorted(self._passes.items())],
        }


class JobCurves:
    """The curves of a job: the costs of trainer 0 and of the next ranks, and the curves that scripts draw or report."""

    def __init__(self) -> None:
        self.costs = CostHistory()
        self._batches: dict[str, BatchCount] = {}
        self._others: dict[tuple[str, str], Curve] = {}

    def take(self, event: Event) -> None:
        """Add a trainer's report or a point of a curve; used as a tap for `Console.watch`."""
        if isinstance(event, Plotted):
            self._add(event.process, event.curve, event.step, event.value)
        elif isinstance(event, Progressed) and event.process == TRAINER:
            self.costs.add(event.facts)
        elif isinstance(event, Progressed) and event.process in _RANKS:
            batches = self._batches.setdefault(event.process, BatchCount()).add(event.facts)
            if event.facts.cost is not None:
                self._add(event.process, COST, batches, event.facts.cost)

    def _add(self, process: str, title: str, at: float, value: float) -> None:
        key = process, title
        if process in _RANKS and (key in self._others or len(self._others) < MOST):
            self._others.setdefault(key, Curve(OTHER_POINTS)).add(at, value)

    def as_json(self) -> list[dict[str, Any]]:
        """Return all curves except the costs of trainer 0, for status.json."""
        return [
            {"process": process, "title": title, "points": [list(point) for point in curve.points]}
            for (process, title), curve in self._others.items()
        ]


def _middle(one: Point, other: Point) -> Point:
    return Point(other.at, (one.value + other.value) / 2)
