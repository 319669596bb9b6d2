# SPDX-License-Identifier: Apache-2.0
"""The tables of how facts of processes and nodes appear in `status`, the dashboard, Prometheus and TensorBoard.

A row's form is a name in FORMS, which formats the fact for `status`; the dashboard's page has forms with the same
names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from paddle_cluster.nodes.roster import ProcessState
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.sizes import size_text
from paddle_cluster.text.wrapping import table
from paddle_node.contract.classes import NamedTuple

Fact = Mapping[str, Any]
"""A row of status.json."""


METRICS = "metrics"
"""The fact that has a column for each title in it."""
LISTED = 16  # maximum number of nodes with one line each, and of messages; twice that for processes
MOST_METRICS = 6  # columns of `status`; `--json` contains all facts


class On(Enum):
    """The views in which a fact has a column: everywhere, in `status` even if unknown, or only on the dashboard."""

    BOTH = "both"
    ALWAYS = "always"
    PAGE = "page"


class FactView(NamedTuple):
    """A row of the tables: how one fact is displayed.

    Attributes:
        field: name of the fact in status.json.
        title: title of its column; empty for a fact without its own column.
        form: the format of its value.
        metric: name of the Prometheus metric without `paddle_`, or empty; percentages become ratios.
        help: help text of the metric.
        curve: title of the curve in TensorBoard, or empty.
    """

    field: str
    title: str = ""
    form: str = "word"
    metric: str = ""
    help: str = ""
    curve: str = ""
    on: On = On.BOTH
    is_counter: bool = False


PROCESSES: Sequence[FactView] = (
    FactView("name", "process", on=On.ALWAYS),
    FactView("node", "node", on=On.ALWAYS),
    FactView("pid", "pid", on=On.ALWAYS),
    FactView("state", "state", "state", on=On.ALWAYS),
    FactView("pass_id", "pass", "count", "trainer_pass", "Pass of a trainer.", "pass"),
    FactView("batch_id", "batch", "batch", "trainer_batch", "Batch of a trainer in its pass."),
    FactView("step", "step", "step", "trainer_step", "Steps of a trainer since it started."),
    FactView("cost", "cost", "number", "trainer_cost", "Cost of a trainer's last batch.", "cost"),
    FactView(
        "samples_per_s",
        "samples/s",
        "speed",
        "trainer_samples_per_second",
        "Speed of a trainer.",
        "samples_per_s",
    ),
    FactView(METRICS, METRICS, "number"),
    FactView(
        "cpu_percent", "cpu", "percent", "process_cpu_cores", "Processors in use, including child processes."
    ),
    FactView(
        "memory_bytes",
        "memory",
        "bytes",
        "process_resident_memory_bytes",
        "Memory, including child processes.",
    ),
    FactView(
        "version", "updates", "count", "pserver_updates", "Batches or gradients applied.", is_counter=True
    ),
    FactView("waiting", "waiting", "waiting", "pserver_waiting_trainers", "Trainers waiting for others."),
    FactView("lag", "lag", "count", "trainer_lag_pushes", "Pushes by all trainers since its last own push."),
    FactView(
        "discarded",
        "discarded",
        "discarded",
        "trainer_discarded_gradients",
        "Gradients discarded as too old.",
        is_counter=True,
    ),
    FactView("rows", "rows", "rows", "pserver_rows", "Rows of growing tables."),
    FactView("last_line", "last line", on=On.PAGE),
    *map(FactView, ("role", "rank", "node_id", "log", "code", "signal", "missing", "samples")),
    FactView("started_at", metric="process_start_time_seconds", help="Start, in seconds since 1970."),
    FactView(
        "pushed",
        metric="trainer_gradients",
        help="Gradients received in asynchronous training.",
        is_counter=True,
    ),
    FactView("requests", metric="pserver_requests", help="Requests to a server.", is_counter=True),
    FactView("waited_s", metric="pserver_wait_seconds", help="Time without an update."),
    FactView("rows_bytes", metric="pserver_rows_bytes", help="Memory of growing tables."),
    FactView("rows_disk_bytes", metric="pserver_rows_disk_bytes", help="Files of growing tables."),
    *(
        FactView(f"rows_{what}", metric=f"pserver_rows_{what}", help=text, is_counter=True)
        for what, text in (
            ("made", "Rows made."),
            ("dropped", "Rows evicted because they were too old or below the lowest score."),
            ("asked", "Distinct ids in batches."),
            ("found", "Distinct ids in batches whose row was in memory."),
        )
    ),
)
NODES: Sequence[FactView] = (
    FactView("node_id", "node", "count", on=On.ALWAYS),
    FactView("name", "name", on=On.ALWAYS),
    FactView("state", "state", on=On.ALWAYS),
    FactView(
        "heard_at",
        "heard",
        "ago",
        "node_heard_time_seconds",
        "Time of the last message, in seconds since 1970.",
        on=On.ALWAYS,
    ),
    FactView("cpu_percent", "cpu", "percent", "node_cpu_ratio", "Share of the processors in use."),
    FactView("memory_bytes", "memory", "of_total", "node_memory_used_bytes", "Memory in use."),
    FactView(
        "received_bytes_per_s", "in", "rate", "node_receive_bytes_per_second", "Network bytes received."
    ),
    FactView("sent_bytes_per_s", "out", "rate", "node_transmit_bytes_per_second", "Network bytes sent."),
    FactView("gpus", "gpus", "gpus", "node_gpus", "GPUs of a node."),
    FactView("hostname", "host", on=On.PAGE),
    FactView("job_dir", "job directory", "directory", on=On.ALWAYS),
    FactView("error"),
    FactView("memory_total_bytes", metric="node_memory_bytes", help="Memory of a node."),
    FactView("gpu_percent", "", "percent", "node_gpu_ratio", "Mean use of a node's GPUs."),
    FactView("gpu_memory_bytes", metric="node_gpu_memory_used_bytes", help="GPU memory in use."),
    FactView("gpu_memory_total_bytes", metric="node_gpu_memory_bytes", help="GPU memory of a node."),
)
"""The facts in the order of their columns, then those without one; a test compares them with `contract.facts`."""


def columns(rows: Iterable[FactView]) -> list[dict[str, str]]:
    """Return the field, title and form of each row's column, as JSON values for the dashboard's tables."""
    return [{"field": row.field, "title": row.title, "form": row.form} for row in rows]


def status_table(rows: Sequence[FactView], found: Sequence[Fact], now: float) -> list[str]:
    """Format the table of `status`, without optional columns that have no data."""
    columns = [
        (title, [write(one) for one in found], row.on)
        for row in rows
        if row.title and row.on is not On.PAGE
        for title, write in _writers(row, found, now)
    ]
    kept = [(title, cells) for title, cells, on in columns if on is On.ALWAYS or any(cells)]
    lines = zip(*(cells for _, cells in kept), strict=True)
    return table([title for title, _ in kept], [list(line) for line in lines], set())


def _writers(row: FactView, found: Sequence[Fact], now: float) -> Iterator[tuple[str, Callable[[Fact], str]]]:
    """Yield the columns of a row: title and cell formatter; there is one column per title of metrics."""
    if row.field != METRICS:
        yield row.title, lambda one: FORMS[row.form](one, row.field, now)
        return
    for title in list(dict.fromkeys(title for one in found for title in one.get(METRICS) or ()))[
        :MOST_METRICS
    ]:
        yield title, functools.partial(_metric, title)


def _metric(title: str, one: Fact) -> str:
    return FORMS["number"](one.get(METRICS) or {}, title, 0.0)


def ago(seconds: float) -> str:
    """Format a duration in its largest unit, rounded down, such as "12 s", "3 min", "2 h" or "5 d"."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds) // 1:.0f} s"


def running_speed(one: Fact) -> float | None:
    """Return the samples/s of a process that is running; one that has exited has no speed."""
    return one.get("samples_per_s") if one.get("state") == ProcessState.RUNNING.value else None


def state_text(one: Fact) -> str:
    """Format a process's state, such as "running" or "exited, code 1"."""
    state = str(one.get("state") or "unknown")
    if one.get("signal"):
        return f"{state}, signal {one['signal']}"
    return state if one.get("code") is None else f"{state}, code {one['code']}"


def _age(one: Fact, field: str, now: float) -> str:
    return f"{ago(now - one[field])} ago" if one.get(field) is not None else ""


def _waiting(one: Fact, field: str, now: float) -> str:
    """Format "3 for 1, 5-7, 12 s": the number of trainers waiting at a pserver, for which ones, and for how long."""
    waited_s = one.get("waited_s") or 0.0
    return (
        str(one[field])
        + (f" for {one['missing']}" if one.get("missing") else "")
        + (f", {ago(waited_s)}" if waited_s >= 1.0 else "")
        if one.get(field)
        else ""
    )


def _discarded(one: Fact, field: str, now: float) -> str:
    pushed, discarded = one.get("pushed"), one.get(field)
    return "" if pushed is None or discarded is None else f"{discarded} of {pushed}"


def _rows(one: Fact, field: str, now: float) -> str:
    """Format "1,200,000, 91.6 MB, 93% found, 300 dropped" for a pserver's growing tables.

    The size includes rows on disk.
    """
    if not one.get(field):
        return ""
    asked, dropped = one.get("rows_asked"), one.get("rows_dropped")
    parts = (
        f"{one[field]:,}",
        size_text((one.get("rows_bytes") or 0) + (one.get("rows_disk_bytes") or 0)),
        f"{100 * (one.get('rows_found') or 0) / asked:.0f}% found" if asked else "",
        f"{dropped:,} dropped" if dropped else "",
    )
    return ", ".join(filter(None, parts))


def _gpus(one: Fact, field: str, now: float) -> str:
    """Format "8: 93%, 412.0 GB of 640.0 GB", if there are GPUs."""
    if not one.get(field):
        return ""
    used = _of(one.get("gpu_memory_bytes"), one.get("gpu_memory_total_bytes"))
    return f"{one[field]}: " + ", ".join(filter(None, (FORMS["percent"](one, "gpu_percent", now), used)))


def _of(used: float | None, there: float | None) -> str:
    text = "" if used is None else size_text(used)
    return f"{text} of {size_text(there)}" if text and there else text


def _formatted(write: Callable[[Any], str]) -> Callable[[Fact, str, float], str]:
    return lambda one, field, now: "" if one.get(field) is None else write(one[field])


FORMS: Mapping[str, Callable[[Fact, str, float], str]] = {
    "word": _formatted(str),
    "count": _formatted(str),
    "number": _formatted(lambda value: f"{value:.5g}"),
    "batch": lambda one, field, now: "" if one.get("pass_id") is None else str(one.get(field, "")),
    "step": lambda one, field, now: str(one.get(field, "")) if one.get("pass_id") is None else "",
    "speed": _formatted(lambda value: f"{value:,.{int(0 < value < 10)}f}"),
    "whole": _formatted(lambda value: f"{value:,.0f}"),
    "percent": _formatted(lambda value: f"{value:.0f}%"),
    "bytes": _formatted(size_text),
    "rate": _formatted(lambda value: f"{size_text(value)}/s"),
    "of_total": lambda one, field, now: _of(one.get(field), one.get("memory_total_bytes")),
    "ago": _age,
    "state": lambda one, field, now: state_text(one),
    "waiting": _waiting,
    "discarded": _discarded,
    "gpus": _gpus,
    "rows": _rows,
    "directory": lambda one, field, now: str(one.get("error") or one.get(field) or ""),
}
"""Form -> the text of a fact, from its row of status.json, its field, and the time now in seconds since 1970."""


def shortened(left: Sequence[str], job_id: str) -> list[str]:
    """Shorten the messages about what could not be cleaned or collected, for the screen.

    `paddle.py status` shows the full text.
    """
    more = len(left) - LISTED
    rest = [f"and {more} more lines like these: {PROGRAM} status {job_id} --all"] if more > 0 else []
    return [*left[:LISTED], *rest]
