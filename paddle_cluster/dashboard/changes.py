# SPDX-License-Identifier: Apache-2.0
"""What one open page is sent: first everything, then what changed, as server-sent events.

An event's name says which part of the page it is for. Of nodes and processes only those rows are sent that are not
what they were, so that a large job that stands still costs next to nothing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from paddle_cluster.control.known_jobs import KnownJob
from paddle_cluster.dashboard import job_view
from paddle_cluster.dashboard.job_board import JobBoard
from paddle_cluster.dashboard.log_view import LogTail

EVERY_S = (
    1.0  # for so many rows of nodes and processes; longer for more, so that a browser is never busy with them
)
ROWS = 250
SLOWEST_S = 4.0
BEAT_S = 10.0  # a word from time to time, so that both sides notice when the other is gone


def everything(board: JobBoard, job_id: str) -> dict[str, Any]:
    """What the page shows before any event: the jobs, and the one that is asked for, or the first."""
    job = board.job(job_id) if job_id else board.first()
    first = _Page(job.job_id if job else job_id)
    return dict(first.parts(board, time.time()))


def stream(board: JobBoard, job_id: str, wait: Callable[[float], bool]) -> Iterator[bytes]:
    """Events until nobody wants them any more.

    Args:
        wait: waits so many seconds; true when it is time to end.
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
    """JSON on one line, which may stand in HTML: no `<` is in it."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


class _Page:
    """What one page knows already."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._sent: dict[str, Any] = {}
        self._rows: dict[str, dict[str, dict[str, Any]]] = {}
        self._report: tuple[bool, dict[str, Any] | None] = (
            False,
            None,
        )  # whether it was looked for; what was found
        self._tail: LogTail | None = None

    @property
    def pause_s(self) -> float:
        """How long the page is left alone."""
        rows = sum(map(len, self._rows.values()))
        return min(SLOWEST_S, EVERY_S * max(1.0, rows / ROWS))

    def parts(self, board: JobBoard, now: float) -> Iterator[tuple[str, Any]]:
        """(name, value) of what the page does not know yet."""
        jobs = board.jobs()
        job = next((one for one in jobs if one.job_id == self._job_id), None)
        yield from self._changed("jobs", job_view.listing(jobs))
        yield from self._changed("job", None if job is None else job_view.head(job, now))
        if job is None:
            return
        for kind, rows in job_view.rows(job).items():
            yield from self._changed_rows(kind, rows)
        yield from self._changed("preflight", job_view.preflight(job))
        yield from self._changed("curve", job.status.get("curve"))
        if job.ended and not self._report[0]:
            self._report = (True, job_view.failure(job))
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
