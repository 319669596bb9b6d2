# SPDX-License-Identifier: Apache-2.0
"""`paddle.py logs [JOB] [-f] [--node=N] [--role=ROLE] [--lines=N]`: what a job's processes wrote."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from launcher.config import command_arguments
from launcher.config.command_arguments import Given
from launcher.control import known_jobs
from launcher.control.known_jobs import KnownJob
from launcher.control.tail import Followed
from launcher.errors import ExitCode, UsageError
from launcher.screen.console import answer, show
from launcher.screen.writer import Sink
from launcher.system.state_dir import places
from launcher.text.wrapping import visible

LINES = 100
POLL_S = 0.25
LOOK_S = 1.0
ROLES = ("trainer", "pserver")
# what nodes call the logs of a role; for jobs whose status was lost
LOG_NAMES = {"train.log": "trainer", "server.log": "pserver"}


def run(argv: Sequence[str]) -> ExitCode:
    """Show the logs of a job, with -f until it ends."""
    given = command_arguments.read(
        "logs", argv, switches=("-f", "--follow"), values=("--node", "--role", "--lines")
    )
    lines = command_arguments.whole_number("logs", given, "--lines", LINES)
    role = given.values.get("--role", "")
    if role and role not in ROLES:
        raise UsageError(f"logs: --role: expected one of {', '.join(ROLES)}, got {role!r}")
    where = places(os.environ)
    job = known_jobs.find(where, given.job) if given.job is not None else known_jobs.newest(where)
    if not job.record.collected:
        raise UsageError(f"{job.job_id}: it is not known here where its logs are collected")
    return _show(job, given, lines, follow=bool(given.switches))


def _show(job: KnownJob, given: Given, lines: int, follow: bool) -> ExitCode:
    files = _files(job, given)
    labelled = len(files) > 1 or follow
    followed: dict[Path, Followed] = {}
    for path, label in files.items():
        followed[path] = Followed(path, label if labelled else "")
        followed[path].seek_tail(lines)
    if not files and not follow:
        show(f"{job.job_id}: no logs in {job.record.collected}/log yet", sys.stderr)
        return ExitCode.DONE
    looked_at = time.monotonic()
    over = not follow
    while True:
        came = [line for one in followed.values() for line in one.read()]
        if came:
            answer("\n".join(_safe(came)))
            continue
        if over:
            break
        if time.monotonic() - looked_at >= LOOK_S:
            looked_at = time.monotonic()
            job = known_jobs.read(job.directory) or job
            over = job.ended or job.running is False  # and then read once more what came meanwhile
            for path, label in _files(job, given).items():
                followed.setdefault(path, Followed(path, label))
        else:
            time.sleep(POLL_S)  # files tell nobody that they grew
    rest = [line for one in followed.values() for line in one.finish()]
    if rest:
        answer("\n".join(_safe(rest)))
    return ExitCode.DONE


def _safe(lines: list[str]) -> list[str]:
    return [visible(line) for line in lines] if Sink(sys.stdout).isatty() else lines


def _files(job: KnownJob, given: Given) -> dict[Path, str]:
    """The logs to show and the label of each."""
    node, role = given.values.get("--node"), given.values.get("--role")
    node_id = None
    if node is not None:
        entry = job.record.node(node)
        if entry is None:
            names = ", ".join(f"{n.node_id} ({n.name})" for n in job.record.nodes)
            raise UsageError(f"logs: --node: {node!r} is no node of {job.job_id}: {names}")
        node_id = entry.node_id
    # an earlier job's logs may still lie there while this one begins
    found = _told(job) if job.status.get("nodes") else _lying_there(job)
    return {
        path: label
        for path, (label, of_role, of_node) in found.items()
        if role in (None, of_role) and node_id in (None, of_node)
    }


def _told(job: KnownJob) -> dict[Path, tuple[str, str, int]]:
    """What status.json says of processes: path -> label, role, node id."""
    found = {}
    for one in job.status.get("processes") or ():
        log = Path(job.record.collected, str(one.get("log")))
        if ".." not in log.parts:
            label = visible(f"{one.get('role')} {one.get('rank')} {one.get('node')}")
            found[log] = (label, str(one.get("role")), int(one.get("node_id", -1)))
    return found


def _lying_there(job: KnownJob) -> dict[Path, tuple[str, str, int]]:
    """The same from the names of the files."""
    names = {node.node_id: node.name for node in job.record.nodes}
    found = {}
    for path in sorted(Path(job.record.collected, "log").glob("node_*/*.log")):
        number = path.parent.name.removeprefix("node_")
        role = LOG_NAMES.get(path.name)
        if role is not None and number.isdigit():
            name = names.get(int(number), path.parent.name)
            found[path] = (f"{role} {name}", role, int(number))
    return found
