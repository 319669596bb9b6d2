# SPDX-License-Identifier: Apache-2.0
"""`paddle.py logs [JOB] [options]`: prints the merged log of a job, job.log, or the requested part of it."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
from datetime import datetime, timedelta

from paddle_cluster.cli import command_arguments
from paddle_cluster.cli.command_arguments import CommandArguments
from paddle_cluster.config.values import nearest
from paddle_cluster.control import log_lines, store
from paddle_cluster.control.log_lines import LineFilter
from paddle_cluster.control.store import KnownJob
from paddle_cluster.control.tail import Followed, whole_lines
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.nodes.findings import names
from paddle_cluster.screen.writer import answer, show
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import places
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import regex

USAGE = f"""\
{PROGRAM} logs [JOB] [-f | --follow] [--proc=NAME] [--node=N]
               [--since=WHEN] [--grep=REGEX] [--lines=N]

Prints the last lines of log/job.log: the output of all processes of a job and
of its launcher, in order of time. JOB is a name, an id, or the beginning or end
of one; default: the newest running job, or else the newest job.

  -f, --follow    then print new lines until the job ends
  --proc=NAME     only this process or role: trainer-2, pserver, launcher
  --node=N        only processes of this node: its id, name or host
  --since=WHEN    only lines since then: 90s, 10m, 2h, 1d; 13:05 today;
                  2026-05-04T13:05:59
  --grep=REGEX    only lines that match a Python regular expression
  --lines=N       at most the last N (default: 100; with --since: all)

log/node_N/, next to job.log, holds what each process wrote, byte for byte.
"""
LINES = 100
POLL_S = 0.25
LOOK_S = 1.0

_AGO = regex(r"([0-9]+(?:\.[0-9]+)?)\s*(s|m|min|h|d)")
_UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def run(argv: Sequence[str]) -> ExitCode:
    """Print lines of a job's merged log; with -f, follow the log until the job ends.

    Raises:
        UsageError: an argument is invalid, no job matches, or the job's log directory is unknown.
    """
    given = command_arguments.read("logs", argv, USAGE)
    lines = command_arguments.whole_number("logs", given, "--lines", LINES)
    where = places(os.environ)
    try:
        job = store.find(where, given.job) if given.job is not None else store.newest(where)
    except UsageError as error:
        if log_lines.PROCESS.fullmatch(given.job or ""):
            raise UsageError(f"{error}. For a process, give --proc={given.job}") from error
        if (given.job or "").isdecimal():
            raise UsageError(f"{error}. For a rank, give --proc=trainer-{given.job}") from error
        if (given.job or "").endswith((".log", "/log")):
            raise UsageError(
                f"{given.job} is not a job; `{PROGRAM} logs` without a job shows the newest one, --proc=trainer-0 only "
                "that process, and log/node_N/ in the workspace has its files"
            ) from error
        raise
    if not job.record.collected:
        raise UsageError(f"{job.title}: its record does not name the directory where its logs are collected")
    wanted = _wanted(job, given)
    only_since = "--since" in given.values and "--lines" not in given.values
    return _show(job, wanted, None if only_since else lines, follow=bool(given.switches))


def _show(job: KnownJob, wanted: LineFilter, lines: int | None, follow: bool) -> ExitCode:
    log = log_lines.path_of(job)
    if not follow and not log.is_file():
        show(f"{job.title}: {log} does not exist yet", sys.stderr)
        return ExitCode.DONE
    try:
        return _print(job, wanted, lines, follow, Followed(log))
    except signals.StopRequest:
        if job.is_live:
            show(f"{job.title} continues; `{PROGRAM} stop {job.title}` stops it", sys.stderr)
        raise


def _print(
    job: KnownJob, wanted: LineFilter, lines: int | None, follow: bool, followed: Followed
) -> ExitCode:
    log = followed.path
    found = list(itertools.islice(wanted.backwards(followed), lines))
    count = _write(found[::-1])
    looked_at = time.monotonic()
    over = not follow
    while not over:
        came = followed.read()
        count += _write([line for line in came if wanted.has(line)])
        if came:
            continue
        if time.monotonic() - looked_at >= LOOK_S:
            looked_at = time.monotonic()
            job = store.read(job.directory) or job
            over = job.ended or job.running is False
        else:
            time.sleep(POLL_S)  # growth of a file causes no wake-up
    if follow:
        while came := followed.read():
            count += _write([line for line in came if wanted.has(line)])
        count += _write([line for line in followed.finish() if wanted.has(line)])
    if not count:
        what = f"{log} has no line from this job that matches the options"
        is_kept = any(map(LineFilter(*log_lines.span(job)).has, itertools.islice(whole_lines(log), 1)))
        if not is_kept and (other := log_lines.replacing_job(job)):
            what = f"its log was replaced by that of {other}, another job in {job.record.collected}"
        show(f"{job.title}: {what}", sys.stderr)
    return ExitCode.DONE


def _write(lines: list[str]) -> int:
    """Print lines, and return their number."""
    if lines:
        answer("\n".join(map(visible, lines)))
    return len(lines)


def _wanted(job: KnownJob, given: CommandArguments) -> LineFilter:
    process, node, pattern = (given.values.get(name, "") for name in ("--proc", "--node", "--grep"))
    process = f"trainer-{process}" if process.isdecimal() else process
    entry = job.record.node(node) if node else None
    if node and entry is None:
        known = names([f"{n.node_id} ({n.name})" for n in job.record.nodes], 0)
        raise UsageError(f"logs: --node: {node!r} is not a node of {job.title}: {known}")
    if process and not log_lines.PROCESS.fullmatch(process):
        role = process.rstrip("0123456789")
        rank, role = process[len(role) :], role.rstrip("-_ ")
        near = nearest(role or "trainer", ("trainer", "pserver", "launcher"))
        near = f"{near}-{rank}" if near and rank else near
        if named := job.record.node(process):
            near = f"--node={named.node_id}"
        raise UsageError(
            "logs: --proc: expected a process such as trainer-2 or pserver-0, a role, or "
            f"launcher; got {process!r}" + (f"; did you mean {near}?" if near else "")
        )
    processes = {str(one.get("name")) for one in job.status.get("processes") or ()}
    if "-" in process and processes and process not in processes:
        near = nearest(process, sorted(processes))
        hint = f"did you mean {near}? " if near else ""
        raise UsageError(
            f"logs: --proc: {process!r} is not a process of {job.title}; {hint}`{PROGRAM} status {job.title} --all` "
            "lists them"
        )
    try:
        compiled = re.compile(pattern) if pattern else None
    except re.error as error:
        literal = (
            f"logs: --grep: {pattern!r} is not a valid regular expression: {error}; for this text, give "
        )
        raise UsageError(f"{literal}--grep='{re.escape(pattern)}'") from error
    begun, ended = log_lines.span(job)
    return LineFilter(
        max(begun, _since(given.values["--since"])) if "--since" in given.values else begun,
        ended,
        process,
        visible(entry.name) if entry else "",
        compiled,
    )


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
