# SPDX-License-Identifier: Apache-2.0
"""The data that an open page receives as server-sent events: first the complete state, then changes.

An event's name is the part of the page that it updates. Only rows of nodes and processes that have changed are sent, so
that a large idle job costs almost nothing. Times are in seconds since 1970; the page computes their age. This module
reads only new log lines and the report of a failed job from disk.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from paddle_cluster.control import status_text, views
from paddle_cluster.control.store import KnownJob
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.dashboard.log_view import LogTail
from paddle_cluster.system.state_dir import FAILURE_FILE, read_json
from paddle_cluster.text.wrapping import visible, visible_lines

EVERY_S = 1.0  # for ROWS rows of nodes and processes; longer for more, so that a browser is never overloaded
ROWS = 250
SLOWEST_S = 4.0
BEAT_S = 10.0  # heartbeat, so that each end notices when the other has disconnected
LISTED = 200  # failures, remaining items, entries of a list in failure.json
TEXT_LIMIT = 64 << 10  # characters per text in failure.json
DEPTH = 6
HEARD_S = 5.0
COLUMNS = {"nodes": views.columns(views.NODES), "processes": views.columns(views.PROCESSES)}
_ROWS = {"nodes": "node_id", "processes": "name"}


def everything(board: JobBoard, job_id: str) -> dict[str, Any]:
    """Return the initial data of a page: columns, jobs, and the requested job, by default the first."""
    job = board.job(job_id) if job_id else board.first()
    first = _Page(job.job_id if job else job_id)
    return {"columns": COLUMNS, **dict(first.parts(board, time.time()))}


def stream(board: JobBoard, job_id: str, wait: Callable[[float], bool]) -> Iterator[bytes]:
    """Yield server-sent events, encoded, until the client disconnects.

    Args:
        wait: function that waits for the given number of seconds; the stream ends when it returns True.
    """
    page = _Page(job_id)
    said_at = time.monotonic()
    while True:
        for name, value in page.parts(board, time.time()):
            said_at = time.monotonic()
            yield f"event: {name}\ndata: {as_text(value)}\n\n".encode()
        if time.monotonic() - said_at >= BEAT_S:
            said_at = time.monotonic()
            yield b": beat\n\n"
        if wait(page.pause_s):
            return


def as_text(value: Any) -> str:
    """Encode a value as JSON on one line that is safe inside HTML, because it contains no `<`."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


class _Page:
    """The data that one page has already received."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._sent: dict[str, Any] = {}
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}
        self._report: tuple[bool, dict[str, Any] | None] = (
            False,
            None,
        )  # whether it was searched; the result
        self._tail: LogTail | None = None

    @property
    def pause_s(self) -> float:
        """The pause between updates of the page, in seconds."""
        rows = sum(map(len, self._rows.values()))
        return min(SLOWEST_S, EVERY_S * max(1.0, rows / ROWS))

    def parts(self, board: JobBoard, now: float) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the parts that the page does not have yet."""
        jobs = board.jobs()
        job = next((one for one in jobs if one.job_id == self._job_id), None)
        yield from self._changed("jobs", listing(jobs))
        yield from self._changed("job", None if job is None else head(job, now))
        if job is None:
            return
        for kind, found in rows(job).items():
            yield from self._changed_rows(kind, found)
        yield from self._changed("preflight", preflight(job))
        for kind, found in curves(job).items():
            yield from self._changed(kind, found)
        if job.ended and not self._report[0]:
            self._report = (True, failure(job))
        yield from self._changed("failure", self._report[1])
        yield from self._log(job)

    def _changed(self, name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if name not in self._sent or self._sent[name] != value:
            self._sent[name] = value
            yield name, value

    def _changed_rows(self, kind: str, rows: dict[str, dict[str, Any]]) -> Iterator[tuple[str, Any]]:
        before = self._rows.get(kind)
        known = before or {}
        changed = {key: row for key, row in rows.items() if known.get(key) != row}
        gone = [key for key in known if key not in rows]
        self._rows[kind] = rows
        if before is None or changed or gone:
            yield kind, {"rows": changed, "gone": gone}

    def _log(self, job: KnownJob) -> Iterator[tuple[str, Any]]:
        if not job.record.collected:
            return
        if self._tail is None:
            self._tail = LogTail(job)
            yield "log", {"lines": self._tail.first(job), "left_out": 0, "first": True}
            return
        lines, left_out = self._tail.more(job)
        if lines or left_out:
            yield "log", {"lines": lines, "left_out": left_out, "first": False}


def listing(jobs: Iterable[KnownJob]) -> list[dict[str, Any]]:
    """Return a short summary of every job, as JSON values."""
    return [_summary(job) for job in jobs]


def head(job: KnownJob, now: float) -> dict[str, Any]:
    """Return the JSON fields of a job, without its nodes and processes."""
    record, status = job.record, job.status
    return {
        **_summary(job),
        "user": record.user,
        "launcher": record.launcher.describe(),
        "detached": record.detached,
        "conf": record.conf,
        "mode": record.mode,
        "options": [[visible(text) for text in row] for row in record.options[:LISTED]],
        "logs": record.collected and f"{record.collected}/log",
        "state_dir": str(job.directory),
        "phase": str(status.get("phase") or ""),
        "exit_code": job.exit_code,
        "health": [visible(line).strip() for line in status_text.health(job, now)],
        "failures": [_texts(one) for one in _rows(status, "failures")[:LISTED]],
        "why": [visible(line) for line in (status.get("why") or ())[:LISTED]],
        "left": [visible(line) for line in (status.get("left") or ())[:LISTED]],
        "can_be_asked": bool(job.running and not job.ended and record.socket),
    }


def rows(job: KnownJob) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the facts about a job's nodes by ID and about its processes by name, as JSON values."""
    return {
        kind: {str(one.get(key)): _row(one) for one in _rows(job.status, kind)} for kind, key in _ROWS.items()
    }


def curves(job: KnownJob) -> dict[str, Any]:
    """Return the costs of a job's trainer 0, and the curves of other ranks and of scripts."""
    return {name: job.status.get(name) for name in ("curve", "curves")}


def preflight(job: KnownJob) -> dict[str, Any] | None:
    """Return the table of preflight checks, or None before they have run.

    The failed checks come first; the item "wrong" is their number.
    """
    table = job.status.get("preflight")
    if not isinstance(table, dict):
        return None
    lines = [[visible(cell) for cell in row] for row in (table["headers"], *table["rows"])]
    return {"headers": lines[0], "rows": lines[1:], "wrong": table["wrong"]}


def failure(job: KnownJob) -> dict[str, Any] | None:
    """Return the report of a failed job, if there is one."""
    if not job.ended or job.is_done:
        return None
    places = [job.directory / FAILURE_FILE]
    if job.record.collected:
        places.append(Path(job.record.collected, "log", FAILURE_FILE))
    for place in places:
        found = read_json(place)
        if (
            found is not None and found.get("job_id") == job.job_id
        ):  # a later job of the workspace wrote its own report
            bounded = _bounded(found, DEPTH)
            return bounded if isinstance(bounded, dict) else None
    return None


def _summary(job: KnownJob) -> dict[str, Any]:
    return {
        "id": job.job_id,
        "title": job.title,
        "state": visible(job.describe()),
        "tone": _tone(job),
        "submitted_at": job.record.submitted_at,
        "ended_at": job.status.get("ended_at"),
        "nodes": len(job.record.nodes),
        "progress": status_text.progress_of(job.status),
        "workspace": visible(job.record.source or job.record.collected),
    }


def _tone(job: KnownJob) -> str:
    """Return the name of the color and symbol with which the page shows a job."""
    if job.ended:
        return "good" if job.is_done else "stopped" if job.is_stopped else "bad"
    if job.running is False:
        return "bad"
    return "busy" if job.running else "unknown"


def _rows(status: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return list(status.get(name) or ())


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    heard = fields.get(
        "heard_at"
    )  # changes every second on each node: a row with no other change is not sent again
    rounded = {} if heard is None else {"heard_at": heard // HEARD_S * HEARD_S}
    return {**_texts(fields), **rounded}


def _texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: visible(value) if isinstance(value, str) else value for name, value in fields.items()}


def _bounded(value: Any, depth: int) -> Any:
    """Return a JSON value limited to a size that a browser can show completely.

    Newlines in texts are preserved.
    """
    if isinstance(value, str):
        return visible_lines(value[:TEXT_LIMIT])
    if isinstance(value, list) and depth:
        return [_bounded(one, depth - 1) for one in value[:LISTED]]
    if isinstance(value, dict) and depth:
        return {visible(name): _bounded(one, depth - 1) for name, one in list(value.items())[:LISTED]}
    return value if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)) else None
