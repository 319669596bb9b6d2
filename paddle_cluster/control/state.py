# SPDX-License-Identifier: Apache-2.0
"""The state of a job as plain values, for status.json and for attached terminals.

It is created on the loop's thread, which owns the roster. `contract.facts` defines the facts of each row.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from paddle_cluster.control.curves import JobCurves
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.roster import ProcessRecord, ProcessState, Roster
from paddle_cluster.plan.plan import Role
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.text.output_events import Tabled
from paddle_cluster.text.sizes import spans
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import dataclass
from paddle_node.contract.facts import (
    Awaited,
    GpuTotals,
    Gradients,
    NodeFacts,
    NodePlace,
    NodeUsage,
    Place,
    flat,
)

VERSION = 1
HOSTNAME_KEPT = 300  # characters
ROWS = 200  # maximum number of rows in the table of checks
_PASSING = frozenset((*NodeUsage._fields, *GpuTotals._fields))


@dataclass(frozen=True)
class Ask:
    """An event that asks the loop's thread to create a snapshot of the job's state."""

    answer: Callable[[], None]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Attributes:
        left: what could not be cleaned or collected, one line each.
        why: the first failure, as reported on the screen.
    """

    exit_code: int
    left: tuple[str, ...]
    why: tuple[str, ...]


def take(job_id: str, scrollback: Scrollback, roster: Roster, curves: JobCurves) -> dict[str, Any]:
    """Return a snapshot of the job's current state, as JSON values for status.json."""
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
                    life=record.life,
                    awaited=None if (queue := record.facts.queue) is None else Awaited(spans(queue.missing)),
                    gradients=_gradients(record, gradients),
                )
            )
            for record in roster.processes.values()
        ],
        "failures": [
            {"node": f.node, "process": f.process, "what": f.what, "log": f.log} for f in roster.failures
        ],
        "curve": curves.costs.as_json(),
        "curves": curves.as_json(),
        "preflight": _table(scrollback.preflight),
        "left": [],
        "why": [],
    }


def ended(status: Mapping[str, Any], outcome: Outcome) -> dict[str, Any]:
    """Return the final state of a job, as JSON values: its last state together with its outcome."""
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
    """Return the table of preflight checks, failed ones first."""
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
        visible(record.reports.hostname)[:HOSTNAME_KEPT],
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
    """Return a trainer's gradient counts, or None; those of an exited trainer have no lag."""
    counted = found.get(record.process.rank) if record.process.role is Role.TRAINER else None
    if counted is None or record.state is not ProcessState.EXITED:
        return counted
    return counted._replace(lag=None)
