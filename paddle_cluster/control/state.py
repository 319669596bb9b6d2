# SPDX-License-Identifier: Apache-2.0
"""The state of a job as plain values: status.json, and what a second terminal is shown.

Taken on the loop's thread, where the roster belongs; the facts of a row are those of `contract.facts`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessRecord, ProcessState
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Role
from paddle_cluster.record import dataclass
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.text.output_events import Event, Progressed, Tabled
from paddle_cluster.text.sizes import spans
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.facts import (
    Awaited,
    GpuTotals,
    Gradients,
    NodeFacts,
    NodePlace,
    NodeUsage,
    Place,
    Progress,
    flat,
)

VERSION = 1
HOSTNAME_KEPT = 300  # characters
ROWS = 200  # of the table of checks
TRAINER = "trainer-0"
POINTS = 240
PASSES = 200  # the last ones
_PASSING = frozenset((*NodeUsage._fields, *GpuTotals._fields))


@dataclass(frozen=True)
class Ask:
    """An event that has a question answered on the loop's thread."""

    answer: Callable[[], None]


@dataclass(frozen=True)
class Outcome:
    """How a job ended.

    Attributes:
        left: what could not be cleaned or collected, one line each.
        why: what went wrong first, as the screen told it.
    """

    exit_code: int
    left: tuple[str, ...]
    why: tuple[str, ...]


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
    """The costs of trainer 0 since its job began: a few hundred averages, however long it runs.

    A point is the average of equally many reports; when there are too many points, each two become one. At most four
    reports a second arrive, so a point may stand for more batches than were reported.
    """

    def __init__(self) -> None:
        self._points: list[CostPoint] = []
        self._reports = 1  # of each point
        self._open: list[float] = []
        self._passes: dict[int, tuple[float, int]] = {}  # pass -> sum of its costs, reports
        self._batches = BatchCount()

    def take(self, event: Event) -> None:
        """Take the reports of trainer 0; a tap for `Console.watch`."""
        if isinstance(event, Progressed) and event.process == TRAINER:
            self.add(event.facts)

    def add(self, step: Progress) -> None:
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


def take(job_id: str, scrollback: Scrollback, roster: Roster, costs: CostHistory) -> dict[str, Any]:
    """The state now."""
    now, clock, gradients = time.time(), time.monotonic(), roster.gradients()
    return {
        "version": VERSION,
        "job_id": job_id,
        "updated_at": now,
        "phase": scrollback.phase,
        "exit_code": None,
        "nodes": [flat(_node(record, scrollback, now - clock)) for record in roster.all()],
        "processes": [
            flat(
                record.facts._replace(
                    place=_place(record, roster),
                    awaited=None if (queue := record.facts.queue) is None else Awaited(spans(queue.missing)),
                    gradients=_gradients(record, gradients),
                )
            )
            for record in roster.processes.values()
        ],
        "failures": [
            {"node": f.node, "process": f.process, "what": f.what, "log": f.log} for f in roster.failures
        ],
        "curve": costs.as_json(),
        "preflight": _table(scrollback.preflight),
        "left": [],
        "why": [],
    }


def ended(status: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """The last state of a job; what nodes did then is no news."""
    return {
        **status,
        "nodes": [
            {name: value for name, value in node.items() if name not in _PASSING}
            for node in status.get("nodes", ())
        ],
        "phase": "ended",
        "exit_code": outcome.exit_code,
        "left": list(outcome.left),
        "why": list(outcome.why),
        "ended_at": time.time(),
    }


def _table(table: Tabled | None) -> dict[str, Any] | None:
    """The checks before the start, what is wrong first."""
    if table is None:
        return None
    order = sorted(range(len(table.rows)), key=lambda at: at not in table.red)[:ROWS]
    return {
        "headers": table.headers,
        "rows": [table.rows[at] for at in order],
        "wrong": sum(at in table.red for at in order),
    }


def _node(record: NodeRecord, scrollback: Scrollback, offset_s: float) -> NodeFacts:
    place = NodePlace(
        record.node.node_id,
        record.name,
        scrollback.state(record.node.node_id),
        visible(record.said.hostname)[:HOSTNAME_KEPT],
        record.contact.heard_at + offset_s if record.contact.heard_at else None,
        record.delivery.trees.get("workspace", ""),
        str(record.contact.error or ""),
    )
    usage = record.usage
    if usage is None or not usage.gpus:
        return NodeFacts(place, usage)
    percents, used, there = zip(*usage.gpus, strict=True)
    known = [percent for percent in percents if percent is not None and percent >= 0]
    mean = sum(known) / len(known) if known else None
    return NodeFacts(place, usage, GpuTotals(len(usage.gpus), mean, sum(used), sum(there)))


def _place(record: ProcessRecord, roster: Roster) -> Place:
    process = record.process
    return Place(
        process.name,
        process.role.value,
        process.rank,
        process.node_id,
        roster.nodes[process.node_id].name,
        record.state.value,
        f"log/node_{process.node_id}/{process.log.removeprefix('log/')}",
    )


def _gradients(record: ProcessRecord, found: Mapping[int, Gradients]) -> Gradients | None:
    """The gradients of a trainer, where they are counted; one that has exited does not lag."""
    counted = found.get(record.process.rank) if record.process.role is Role.TRAINER else None
    if counted is None or record.state is not ProcessState.EXITED:
        return counted
    return counted._replace(lag=None)


def _middle(one: CostPoint, other: CostPoint) -> CostPoint:
    return CostPoint(other.batches, (one.cost + other.cost) / 2)
