# SPDX-License-Identifier: Apache-2.0
"""The state of a job as plain values: status.json, and what a second terminal is shown.

Taken on the loop's thread, where the roster belongs. `Observer` notes what messages say of processes beside what the
job itself does with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddle_cluster.connection.link import MessageEvent
from paddle_cluster.control.cost_history import TRAINER, CostHistory
from paddle_cluster.nodes.loop import Handlers
from paddle_cluster.nodes.node_record import NodeRecord
from paddle_cluster.nodes.process_record import ProcessRecord, ProcessState
from paddle_cluster.nodes.reports import NodeUsage, Pushes, Queue, Step, read_step
from paddle_cluster.nodes.roster import Roster
from paddle_cluster.plan.plan import Role
from paddle_cluster.screen.scrollback import Scrollback
from paddle_cluster.text.fields import whole
from paddle_cluster.text.output_events import Tabled
from paddle_cluster.text.sizes import spans
from paddle_cluster.text.wrapping import visible

VERSION = 1
LINE_KEPT = 300  # characters
LINE_READ = 2048  # bytes
ROWS = 200  # of the table of checks
_PASSING = frozenset((*NodeUsage._fields, "gpu_percent", "gpu_memory_bytes", "gpu_memory_total_bytes"))


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


class Observer:
    """What processes were last heard to say; the loop's thread alone uses it.

    Attributes:
        costs: of the first trainer since the job began.
    """

    def __init__(self) -> None:
        self._said: dict[str, dict[str, Any]] = {}
        self.costs = CostHistory()

    def beside(self, handlers: Handlers) -> Handlers:
        """The same handlers; what they have handled is noted here, and `Ask` is answered."""
        notes = {
            "started": lambda fields, body: {
                "pid": whole(fields.get("pid"), "pid"),
                "started_at": time.time(),
            },
            "progress": lambda fields, body: self._step(fields)._asdict(),
            "line": lambda fields, body: {"last_line": _last_line(body)},
            "exited": lambda fields, body: {"code": fields.get("code"), "signal": fields.get("signal")},
        }
        messages = {
            kind: self._noting(handler, notes[kind]) if kind in notes else handler
            for kind, handler in handlers.messages.items()
        }
        return replace(handlers, events={**handlers.events, Ask: lambda ask: ask.answer()}, messages=messages)

    def of(self, process: str) -> dict[str, Any]:
        """What is known of a process."""
        return self._said.get(process, {})

    def _step(self, fields: Mapping[str, Any]) -> Step:
        step = read_step(fields)
        if fields["proc"] == TRAINER:
            self.costs.add(step)
        return step

    def _noting(
        self,
        handler: Callable[[NodeRecord, MessageEvent], None],
        note: Callable[[Mapping[str, Any], bytes], dict[str, Any]],
    ) -> Callable[[NodeRecord, MessageEvent], None]:
        def handle(record: NodeRecord, event: MessageEvent) -> None:
            handler(record, event)
            said = self._said.setdefault(str(event.fields["proc"]), {})
            if event.kind == "started":  # perhaps once more
                said.clear()
            said.update(note(event.fields, event.body))

        return handle


def take(job_id: str, scrollback: Scrollback, roster: Roster, observer: Observer) -> dict[str, Any]:
    """The state now."""
    now, clock, pushes, lags = time.time(), time.monotonic(), roster.pushes(), roster.lags()
    return {
        "version": VERSION,
        "job_id": job_id,
        "updated_at": now,
        "phase": scrollback.phase,
        "exit_code": None,
        "nodes": [_node(record, scrollback, now - clock) for record in roster.all()],
        "processes": [
            {**_process(record, roster), **_pushes_of(record, pushes, lags), **observer.of(name)}
            for name, record in roster.processes.items()
        ],
        "failures": [
            {"node": f.node, "process": f.process, "what": f.what, "log": f.log} for f in roster.failures
        ],
        "curve": observer.costs.as_json(),
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


def _node(record: NodeRecord, scrollback: Scrollback, offset_s: float) -> dict[str, Any]:
    return {
        "node_id": record.node.node_id,
        "name": record.name,
        "state": scrollback.state(record.node.node_id),
        "hostname": visible(record.said.hostname)[:LINE_KEPT],
        "heard_at": record.contact.heard_at + offset_s if record.contact.heard_at else None,
        "job_dir": record.delivery.trees.get("workspace", ""),
        "error": str(record.contact.error or ""),
        **_usage(record.usage),
    }


def _usage(usage: NodeUsage | None) -> dict[str, Any]:
    """What a node uses, its GPUs as one: their mean use, and the sum of their memory."""
    if usage is None:
        return {}
    found = usage._asdict()
    gpus = found.pop("gpus")
    if gpus:
        told = [gpu.percent for gpu in gpus if gpu.percent is not None]
        found["gpus"] = len(gpus)
        found["gpu_percent"] = sum(told) / len(told) if told else None
        found["gpu_memory_bytes"] = sum(gpu.memory_bytes for gpu in gpus)
        found["gpu_memory_total_bytes"] = sum(gpu.memory_total_bytes for gpu in gpus)
    return found


def _process(record: ProcessRecord, roster: Roster) -> dict[str, Any]:
    process = record.process
    return {
        "name": process.name,
        "role": process.role.value,
        "rank": process.rank,
        "node_id": process.node_id,
        "node": roster.nodes[process.node_id].name,
        "state": record.state.value,
        "log": f"log/node_{process.node_id}/{process.log.removeprefix('log/')}",
        **({} if record.usage is None else record.usage._asdict()),
        **({} if record.queue is None else _queue(record.queue)),
    }


def _queue(queue: Queue) -> dict[str, Any]:
    """A pserver's; lags are told of the trainers."""
    told = queue._asdict()
    del told["lags"]
    return {**told, "missing": spans(queue.missing)}


def _pushes_of(
    record: ProcessRecord, pushes: Mapping[int, Pushes], lags: Mapping[int, int]
) -> dict[str, int]:
    """What became of a trainer's gradients, and how far behind it is, where that is counted."""
    process = record.process
    if process.role is not Role.TRAINER or process.rank not in pushes:
        return {}
    lag = {} if record.state is ProcessState.EXITED else {"lag": lags.get(process.rank, 0)}
    return {**pushes[process.rank]._asdict(), **lag}


def _last_line(body: bytes) -> str:
    line = body[-LINE_READ:].rstrip().rpartition(b"\n")[2]
    return visible(line.decode("utf-8", "backslashreplace").rpartition("\r")[2])[:LINE_KEPT]
