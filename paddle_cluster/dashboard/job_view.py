# SPDX-License-Identifier: Apache-2.0
"""What the page is told of jobs, as JSON values: the list of all, and one with its nodes and processes. Pure but for
failure.json, which is read when a job has ended.

Times are seconds since 1970: the page says how long ago that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from paddle_cluster.control import status_text
from paddle_cluster.control.known_jobs import KnownJob
from paddle_cluster.errors import ExitCode
from paddle_cluster.system.state_dir import FAILURE_FILE, read_json
from paddle_cluster.text.wrapping import visible, visible_lines

LISTED = 200  # failures, what is left, entries of a list of failure.json
TEXT_LIMIT = 64 << 10  # characters of one text of failure.json
DEPTH = 6
HEARD_S = 5.0
STOPPED = (ExitCode.INTERRUPTED, ExitCode.TERMINATED, ExitCode.HANGUP, ExitCode.QUIT)
_ROWS = {"nodes": "node_id", "processes": "name"}


def listing(jobs: Iterable[KnownJob]) -> list[dict[str, Any]]:
    """All jobs, a few words each."""
    return [_summary(job) for job in jobs]


def head(job: KnownJob, now: float) -> dict[str, Any]:
    """One job without its nodes and processes."""
    record, status = job.record, job.status
    return {
        **_summary(job),
        "user": record.user,
        "launcher": record.launcher.describe(),
        "detached": record.detached,
        "conf": record.conf,
        "mode": record.mode,
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
    """Its nodes by id and its processes by name."""
    return {
        kind: {str(one.get(key)): _row(one) for one in _rows(job.status, kind)} for kind, key in _ROWS.items()
    }


def preflight(job: KnownJob) -> dict[str, Any] | None:
    """The table of what was checked before the start; its first rows are wrong, as many as `wrong` says."""
    table = job.status.get("preflight")
    if not isinstance(table, dict):
        return None
    lines = [[visible(cell) for cell in row] for row in (table["headers"], *table["rows"])]
    return {"headers": lines[0], "rows": lines[1:], "wrong": table["wrong"]}


def failure(job: KnownJob) -> dict[str, Any] | None:
    """The report of a job that failed, where there is one."""
    if not job.ended or job.exit_code == ExitCode.DONE:
        return None
    places = [job.directory / FAILURE_FILE]
    if job.record.collected:
        places.append(Path(job.record.collected, "log", FAILURE_FILE))
    for place in places:
        found = read_json(place)
        if (
            found is not None and found.get("job_id") == job.job_id
        ):  # a later job of the workspace wrote its own
            bounded = _bounded(found, DEPTH)
            return bounded if isinstance(bounded, dict) else None
    return None


def _summary(job: KnownJob) -> dict[str, Any]:
    return {
        "id": job.job_id,
        "state": visible(job.describe()),
        "tone": _tone(job),
        "submitted_at": job.record.submitted_at,
        "ended_at": job.status.get("ended_at"),
        "nodes": len(job.record.nodes),
        "progress": status_text.progress_of(job.status),
        "workspace": visible(job.record.source or job.record.collected),
    }


def _tone(job: KnownJob) -> str:
    """Which of the page's colours and signs stands for a job."""
    if job.ended:
        return "good" if job.exit_code == ExitCode.DONE else "stopped" if job.exit_code in STOPPED else "bad"
    if job.running is False:
        return "bad"
    return "busy" if job.running else "unknown"


def _rows(status: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    return list(status.get(name) or ())


def _row(fields: Mapping[str, Any]) -> dict[str, Any]:
    heard = fields.get(
        "heard_at"
    )  # each second anew, of each node: a row that says nothing else is not sent again
    rounded = {} if heard is None else {"heard_at": heard // HEARD_S * HEARD_S}
    return {**_texts(fields), **rounded}


def _texts(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: visible(value) if isinstance(value, str) else value for name, value in fields.items()}


def _bounded(value: Any, depth: int) -> Any:
    """A JSON value of which a browser can show everything; texts keep their line ends."""
    if isinstance(value, str):
        return visible_lines(value[:TEXT_LIMIT])
    if isinstance(value, list) and depth:
        return [_bounded(one, depth - 1) for one in value[:LISTED]]
    if isinstance(value, dict) and depth:
        return {visible(name): _bounded(one, depth - 1) for name, one in list(value.items())[:LISTED]}
    return value if isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)) else None
