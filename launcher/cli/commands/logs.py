# SPDX-License-Identifier: Apache-2.0
"""`paddle.py logs [JOB] [options]`: the merged log of a job, job.log, or what of it was asked for."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from launcher.config import command_arguments
from launcher.config.command_arguments import Given
from launcher.control import known_jobs
from launcher.control.known_jobs import KnownJob
from launcher.control.tail import Followed
from launcher.errors import ExitCode, UsageError
from launcher.nodes.findings import names
from launcher.screen.console import answer, show
from launcher.screen.writer import Sink
from launcher.system.installation import PROGRAM
from launcher.system.state_dir import places
from launcher.text.wrapping import visible

USAGE = f"""\
{PROGRAM} logs [JOB] [-f] [--proc=NAME] [--node=N] [--since=WHEN]
               [--grep=REGEX] [--lines=N]

The last lines of log/job.log: what all processes of a job and its launcher
said, by time. JOB is an id or a beginning or end of one; without it the newest
job that runs, or the newest of all.

  -f, --follow    then what comes, until the job ends
  --proc=NAME     what one process or role said: trainer-2, pserver, launcher
  --node=N        what the processes of a node said: its id, name or host
  --since=WHEN    not what is older: 90s, 10m, 2h, 1d; 13:05 today;
                  2026-05-04T13:05:59
  --grep=REGEX    lines that match a regular expression of Python
  --lines=N       the last N that are left (100; with --since all)

log/node_N/ beside job.log has what each process wrote, byte for byte.
"""
LINES = 100
POLL_S = 0.25
LOOK_S = 1.0
DISORDER = timedelta(minutes=1)  # what came late is where it came
SKEW_S = 1.0  # what clocks of nodes may be off, put on the launcher's
LATEST_S = 2.0e11  # seconds since 1970: no job ends later

_PROCESS = re.compile(r"launcher|(?:trainer|pserver)(?:-[0-9]+)?")
_AGO = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_LINE = re.compile(r"(\S+ \S+) \[(?:launcher|(\w+) ([0-9]+) (.*?))\] (.*)")


@dataclass(frozen=True)
class Wanted:
    """Which lines are asked for: those that are as each attribute says, where it says something.

    Attributes:
        since, until: when; other jobs of the same workspace wrote before and after.
    """

    since: datetime
    until: datetime
    process: str = ""
    node: str = ""
    pattern: re.Pattern[str] | None = None

    def has(self, line: str) -> bool:
        """Whether a line of job.log is one of them."""
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

    def is_past(self, line: str) -> bool:
        """Whether what stands before a line is too old."""
        found = _LINE.fullmatch(line)
        return found is not None and _time(found[1]) < self.since - DISORDER


def run(argv: Sequence[str]) -> ExitCode:
    """Show the log of a job, with -f until it ends."""
    given = command_arguments.read(
        "logs",
        argv,
        switches=("-f", "--follow"),
        values=("--proc", "--node", "--since", "--grep", "--lines"),
    )
    lines = command_arguments.whole_number("logs", given, "--lines", LINES)
    where = places(os.environ)
    job = known_jobs.find(where, given.job) if given.job is not None else known_jobs.newest(where)
    if not job.record.collected:
        raise UsageError(f"{job.job_id}: it is not known here where its logs are collected")
    wanted = _wanted(job, given)
    only_since = "--since" in given.values and "--lines" not in given.values
    return _show(job, wanted, None if only_since else lines, follow=bool(given.switches))


def _show(job: KnownJob, wanted: Wanted, lines: int | None, follow: bool) -> ExitCode:
    log = Path(job.record.collected, "log", "job.log")
    if not follow and not log.is_file():
        show(f"{job.job_id}: there is no {log} yet", sys.stderr)
        return ExitCode.DONE
    followed = Followed(log)
    recent = itertools.takewhile(lambda line: not wanted.is_past(line), followed.backwards())
    found = list(itertools.islice(filter(wanted.has, recent), lines))
    _write(found[::-1])
    if not (found or follow):
        show(f"{job.job_id}: no line of {log} is of this job and as asked for", sys.stderr)
    looked_at = time.monotonic()
    over = not follow
    while not over:
        came = followed.read()
        _write([line for line in came if wanted.has(line)])
        if came:
            continue
        if time.monotonic() - looked_at >= LOOK_S:
            looked_at = time.monotonic()
            job = known_jobs.read(job.directory) or job
            over = job.ended or job.running is False
        else:
            time.sleep(POLL_S)  # files tell nobody that they grew
    if follow:
        while came := followed.read():
            _write([line for line in came if wanted.has(line)])
        _write([line for line in followed.finish() if wanted.has(line)])
    return ExitCode.DONE


def _write(lines: list[str]) -> None:
    if lines:
        answer("\n".join([visible(line) for line in lines] if Sink(sys.stdout).isatty() else lines))


def _wanted(job: KnownJob, given: Given) -> Wanted:
    process, node, pattern = (given.values.get(name, "") for name in ("--proc", "--node", "--grep"))
    entry = job.record.node(node) if node else None
    if node and entry is None:
        known = names([f"{n.node_id} ({n.name})" for n in job.record.nodes], 0)
        raise UsageError(f"logs: --node: {node!r} is no node of {job.job_id}: {known}")
    if process and not _PROCESS.fullmatch(process):
        raise UsageError(
            f"logs: --proc: expected a process such as trainer-2 or pserver-0, a role or launcher, got {process!r}"
        )
    processes = {str(one.get("name")) for one in job.status.get("processes") or ()}
    if "-" in process and processes and process not in processes:
        raise UsageError(
            f"logs: --proc: {process!r} is no process of {job.job_id}; `{PROGRAM} status` lists them"
        )
    try:
        compiled = re.compile(pattern) if pattern else None
    except re.error as error:
        raise UsageError(f"logs: --grep: {pattern!r} is no regular expression: {error}") from error
    begun = _local(0.0 if job.record.rebuilt else job.record.submitted_at - SKEW_S)
    ended = job.status.get("ended_at")
    return Wanted(
        max(begun, _since(given.values["--since"])) if "--since" in given.values else begun,
        _local(ended + SKEW_S if isinstance(ended, int | float) else LATEST_S),
        process,
        visible(entry.name) if entry else "",
        compiled,
    )


def _local(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), LATEST_S)).astimezone()


def _since(text: str) -> datetime:
    now = datetime.now().astimezone()
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(seconds=float(ago[1]) * _UNITS[ago[2]])
        if "-" in text:
            return datetime.fromisoformat(text).astimezone()
        return datetime.fromisoformat(f"{now:%Y-%m-%d}T{text}").astimezone()
    except (ValueError, OverflowError):
        raise UsageError(
            f"logs: --since: expected 90s, 10m, 2h, 1d, 13:05 or 2026-05-04T13:05:59, got {text!r}"
        ) from None


def _time(stamp: str) -> datetime:
    """The time of a line; one that cannot be read is as old as can be."""
    try:
        return datetime.fromisoformat(stamp).astimezone()
    except ValueError:
        return _local(0.0)
