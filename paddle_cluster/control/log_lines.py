# SPDX-License-Identifier: Apache-2.0
"""Selects one job's lines from log/job.log, the merged log of all jobs of a workspace."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from paddle_cluster.control.store import KnownJob
from paddle_cluster.control.tail import Followed, whole_lines
from paddle_cluster.system.state_dir import is_job_id
from paddle_cluster.system.workspace_lock import last_holder
from paddle_node.contract.classes import dataclass, regex

DISORDER = timedelta(minutes=1)  # late lines are where they arrived
SKEW_S = 1.0  # maximum error of node clocks after adjustment to the launcher's
LATEST_S = 2.0e11  # seconds since 1970: an upper limit for the end of a job

PROCESS = regex(r"launcher|(?:trainer|pserver)(?:-[0-9]+)?")
"""The form in which users name a process or a role."""

_LINE = regex(r"(\S+ \S+) \[(?:launcher|(\w+) ([0-9]+) (.*?))\] (.*)")


@dataclass(frozen=True)
class LineFilter:
    """A filter for lines of job.log; a line must match every attribute that is set.

    Attributes:
        since, until: the time span, in the times of job.log.
        process: a process ("trainer-2") or role, or empty for all.
        node: a node, or empty for all.
        pattern: searched in the text of a line; None means any text.
    """

    since: datetime
    until: datetime
    process: str = ""
    node: str = ""
    pattern: re.Pattern[str] | None = None

    def has(self, line: str) -> bool:
        """Return whether a line of job.log matches the filter."""
        found = _LINE.fullmatch(line)
        if found is None:
            return not (self.process or self.node or self.pattern)
        role, rank = found[2], found[3]
        return (
            (not self.process or self.process in ((role, f"{role}-{rank}") if role else ("launcher",)))
            and (not self.node or self.node == found[4])
            and self.since <= _time(found[1]) <= self.until
            and (self.pattern is None or self.pattern.search(found[5]) is not None)
        )

    def backwards(self, followed: Followed, deadline: float = float("inf")) -> Iterator[str]:
        """Yield a file's matching lines, newest first, until the lines are too old.

        Args:
            deadline: a time according to `time.monotonic`; no line is examined after it.
        """

        def is_in_reach(line: str) -> bool:
            return time.monotonic() < deadline and not self._is_past(line)

        return filter(self.has, itertools.takewhile(is_in_reach, followed.backwards()))

    def _is_past(self, line: str) -> bool:
        """Return whether the time at the start of a line is too old."""
        found = _LINE.fullmatch(line)
        return found is not None and _time(found[1]) < self.since - DISORDER


def path_of(job: KnownJob) -> Path:
    """Return the path of a job's merged log, which may not exist yet."""
    return Path(job.record.collected, "log", "job.log")


def lines_of(job: KnownJob, process: str = "") -> Iterator[str]:
    """Yield the lines of a job, process or role, oldest first."""
    return filter(LineFilter(*span(job), process).has, whole_lines(path_of(job)))


def span(job: KnownJob) -> tuple[datetime, datetime]:
    """Return the time span in which a job wrote lines, from its submission to its end."""
    ended = job.status.get("ended_at")
    until = _local(ended + SKEW_S if isinstance(ended, int | float) else LATEST_S)
    if job.running is False and (other := replacing_job(job)):
        until = min(until, _begun(other))
    return _local(0.0 if job.record.rebuilt else job.record.submitted_at - SKEW_S), until


def replacing_job(job: KnownJob) -> str:
    """Return the ID of the job that used the directory last, if it was not this one; otherwise ""."""
    last = last_holder(Path(job.record.collected))
    return last if is_job_id(last) and last != job.job_id else ""


def _begun(job_id: str) -> datetime:
    """Return the second in which a job was planned, from its ID; the latest time if the ID has none."""
    try:
        return datetime.strptime(job_id[3:17], "%Y%m%d%H%M%S").astimezone()
    except ValueError:
        return _local(LATEST_S)


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), LATEST_S)).astimezone()


def _time(stamp: str) -> datetime:
    """Return the time of a line; an invalid time counts as the oldest one."""
    try:
        return datetime.fromisoformat(stamp).astimezone()
    except ValueError:
        return _local(0.0)
