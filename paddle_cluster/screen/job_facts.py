# SPDX-License-Identifier: Apache-2.0
"""What is known of a job's nodes and trainers right now, summed up for a screen of any size."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping

from paddle_cluster.text.sizes import counted
from paddle_cluster.text.wrapping import duration_clock, transfer

FIRST_TRAINER = "trainer-0"
CURVE_ROWS = 3
_MOST_POINTS = 48
_BARS = " ▁▂▃▄▅▆▇█"
DISPATCH = "dispatch"
_WELL = frozenset(("running", "stopped", DISPATCH, "ready", "connecting", ""))


class CostCurve:
    """The costs of one trainer since we look at it, as a few averages of equally many steps each."""

    def __init__(self) -> None:
        self._points: list[float] = []
        self._steps = 1  # of each point
        self._open: list[float] = []

    def add(self, cost: float) -> None:
        """The cost of one more step."""
        self._open.append(cost)
        if len(self._open) < self._steps:
            return
        self._points.append(sum(self._open) / self._steps)
        self._open = []
        if len(self._points) == _MOST_POINTS:
            self._points = _paired(self._points)
            self._steps *= 2

    def lines(self, width: int) -> list[str]:
        """CURVE_ROWS lines of at most so many cells, with the highest and the lowest cost; none of one point."""
        points = self._points
        while len(points) > max(1, width - 9):
            points = _paired(points)
        if len(points) < 2 or not all(map(math.isfinite, points)):
            return []
        low, high = min(points), max(points)
        scale = (CURVE_ROWS * 8 - 1) / (high - low) if high > low else 0.0
        levels = [1 + round((point - low) * scale) for point in points]
        labels = [f"{high:.4g}", *[""] * (CURVE_ROWS - 2), f"{low:.4g}"]
        return [
            (f"{label:>8.8} " + "".join(_BARS[max(0, min(8, level - 8 * row))] for level in levels)).rstrip()
            for label, row in zip(labels, reversed(range(CURVE_ROWS)), strict=True)
        ]


def _paired(points: list[float]) -> list[float]:
    return [sum(points[at : at + 2]) / len(points[at : at + 2]) for at in range(0, len(points), 2)]


class JobFacts:
    """Facts by node and by trainer.

    Attributes:
        nodes: node id -> fact -> text.
        curve: the costs of trainer 0.
    """

    def __init__(self) -> None:
        self.nodes: dict[int, dict[str, str]] = {}
        self.curve = CostCurve()
        self._trainers: dict[str, tuple[int, int, float, int, str]] = {}  # pass, batch, rate, node, cost
        self._transfers: dict[int, tuple[int, int, float]] = {}  # arrived, total, rate
        self._phase = ""
        self._began = time.monotonic()

    def enter(self, phase: str, age_s: float = 0.0) -> None:
        """The job is in another phase.

        Args:
            age_s: of the job, where it is older than this view of it.
        """
        self._phase = phase
        self._began = min(self._began, time.monotonic() - age_s)

    def note(self, node_id: int, facts: Mapping[str, str]) -> None:
        """New facts of a node; with `process` they are those of one of its trainers."""
        self.nodes.setdefault(node_id, {"label": f"node {node_id}"}).update(facts)
        if "arrived" in facts:
            numbers = int(facts["arrived"]), int(facts["total"]), float(facts["bytes_per_s"])
            if not self._under_way():  # a node that came back gets what it lacks alone
                self._transfers.clear()
            self._transfers[node_id] = numbers
        if "process" in facts and "rate" in facts:
            self._trainers[facts["process"] or f"node {node_id}"] = (
                int(facts["pass_id"]),
                int(facts["batch_id"]),
                float(facts["rate"]),
                node_id,
                facts["cost"],
            )
            if facts["process"] == FIRST_TRAINER and facts["cost"]:
                self.curve.add(float(facts["cost"]))

    def troubled(self) -> list[int]:
        """Ids of nodes that are not as they should be."""
        return [node_id for node_id, facts in self.nodes.items() if facts.get("state", "") not in _WELL]

    def summary(self, all_listed: bool) -> list[str]:
        """Up to three lines: phase and states; how training gets on, or what is sent; who is last.

        Args:
            all_listed: every node has a line below.
        """
        states = Counter(facts.get("state") or "waiting" for facts in self.nodes.values())
        counts = ", ".join(f"{count} {state}" for state, count in states.most_common())
        nodes = counted(len(self.nodes), "node")
        lines = [
            f"{self._phase or 'start'} {duration_clock(time.monotonic() - self._began)}  {nodes}: {counts}"
        ]
        if self._under_way():
            lines += self._transferring(all_listed)
        elif self._trainers:
            lines += self._training()
        return lines

    def _under_way(self) -> dict[int, tuple[int, int, float]]:
        """What has not all come to nodes that wait for it."""
        return {
            node_id: one
            for node_id, one in self._transfers.items()
            if one[0] < one[1] and self.nodes[node_id].get("state", DISPATCH) == DISPATCH
        }

    def _transferring(self, all_listed: bool) -> list[str]:
        """How much has come to all nodes, and whom they wait for."""
        under_way = self._under_way()
        arrived = sum(one[0] for one in self._transfers.values())
        total = sum(one[1] for one in self._transfers.values())
        rate = sum(one[2] for one in under_way.values())
        lines = [f"arrived: {_told(transfer(arrived, total, rate))}"]
        if not all_listed:
            last = max(under_way, key=lambda node_id: _left_s(*under_way[node_id]))
            lines.append(f"slowest: {self.nodes[last].get('label', '')}  {_told(transfer(*under_way[last]))}")
        return lines

    def _training(self) -> list[str]:
        first = self._trainers.get(FIRST_TRAINER) or next(iter(self._trainers.values()))
        name = "trainer 0" if FIRST_TRAINER in self._trainers else "a trainer"
        total = sum(rate for _, _, rate, _, _ in self._trainers.values())
        lines = [f"{name}: pass {first[0]} batch {first[1]} cost {first[4]}  all: {total:,.0f} samples/s"]
        if len(self._trainers) > 1:
            slowest = min(self._trainers.values(), key=lambda trainer: trainer[:3])
            label = self.nodes[slowest[3]].get("label", "")
            lines.append(
                f"slowest: {label}  pass {slowest[0]} batch {slowest[1]}  {slowest[2]:,.0f} samples/s"
            )
        return lines


def _left_s(arrived: int, total: int, bytes_per_s: float) -> float:
    return (total - arrived) / max(1.0, bytes_per_s)


def _told(facts: Mapping[str, str]) -> str:
    return "  ".join(facts[name] for name in ("progress", "cost", "speed") if facts[name])
