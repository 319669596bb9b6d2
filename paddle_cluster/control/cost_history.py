# SPDX-License-Identifier: Apache-2.0
"""The costs of trainer 0 since its job began, for who looks later: a few hundred averages however long it runs.

A point is the average of equally many reports; when there are too many points, each two become one. Reports come at
most four a second, so a point may stand for more batches than were told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from paddle_cluster.nodes.reports import Step

TRAINER = "trainer-0"
POINTS = 240
PASSES = 200  # the last ones


class CostPoint(NamedTuple):
    """An average.

    Attributes:
        batches: that the trainer had made then, as far as it told.
    """

    batches: int
    cost: float


class BatchCount:
    """How many batches a trainer has made, as far as it told."""

    def __init__(self) -> None:
        self._last = (0, -1)  # pass, batch
        self._batches = 0

    def add(self, pass_id: int, batch_id: int) -> int:
        """Where it is now; one that was started again goes on counting. Returns the batches so far."""
        before, self._last = self._last, (pass_id, batch_id)
        since = batch_id - before[1] if pass_id == before[0] else batch_id + 1
        self._batches += max(1, since)
        return self._batches


class CostHistory:
    """Takes each report; one thread uses it."""

    def __init__(self) -> None:
        self._points: list[CostPoint] = []
        self._reports = 1  # of each point
        self._open: list[float] = []
        self._passes: dict[int, tuple[float, int]] = {}  # pass -> sum of its costs, reports
        self._batches = BatchCount()

    def add(self, step: Step) -> None:
        """One more report."""
        batches = self._batches.add(step.pass_id, step.batch_id)
        if step.cost is None:
            return
        total, reports = self._passes.pop(step.pass_id, (0.0, 0))
        self._passes[step.pass_id] = (total + step.cost, reports + 1)
        if len(self._passes) > PASSES:
            del self._passes[next(iter(self._passes))]
        self._open.append(step.cost)
        if len(self._open) == self._reports:
            self._points.append(CostPoint(batches, sum(self._open) / self._reports))
            self._open = []
        if len(self._points) == POINTS:
            self._points = [_middle(*self._points[at : at + 2]) for at in range(0, POINTS, 2)]
            self._reports *= 2

    def as_json(self) -> dict[str, Any]:
        """For status.json: points, and the mean cost of each pass."""
        return {
            "process": TRAINER,
            "points": [list(point) for point in self._points],
            "passes": [[pass_id, total / reports] for pass_id, (total, reports) in self._passes.items()],
        }


def read(value: object) -> dict[str, Any]:
    """What `as_json` gave, as far as it is that: anything may have written it."""
    if not isinstance(value, Mapping):
        return {}
    return {
        "process": str(value.get("process")) if isinstance(value.get("process"), str) else "",
        "points": _pairs(value.get("points"), POINTS),
        "passes": _pairs(value.get("passes"), PASSES),
    }


def _pairs(value: object, most: int) -> list[list[float]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [
        list(one) for one in value[:most] if isinstance(one, list) and len(one) == 2 and all(map(_is, one))
    ]


def _is(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf


def _middle(one: CostPoint, other: CostPoint) -> CostPoint:
    return CostPoint(other.batches, (one.cost + other.cost) / 2)
