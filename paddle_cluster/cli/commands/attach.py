# SPDX-License-Identifier: Apache-2.0
"""`paddle.py attach [JOB] [--lines=N] [--json]`: follows a running job as if it ran in this terminal."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

from paddle_cluster.cli import command_arguments
from paddle_cluster.control import control_client, status_text, store
from paddle_cluster.control.control_client import ControlLost, EndReason, ViewEnd, connect
from paddle_cluster.control.store import KnownJob
from paddle_cluster.errors import ExitCode, as_exit_code
from paddle_cluster.screen import writer
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.writer import show
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import SCREEN_FILE, places

USAGE = f"""\
{PROGRAM} attach [JOB] [--lines=N] [--json]

Follow a running job: its last N lines (default 40), then live output. JOB is a
name, an id, or the beginning or end of one; default: the newest running job,
or else the newest job.

  --json   print events as JSON, one per line, as `run --json` does

Ctrl+C stops the job; a second Ctrl+C kills it immediately. Ctrl+\\ or closing
the terminal detaches. Exit status: the job's status if it ended, 0 if
detached, 5 if the launcher is no longer running.
"""
LINES = 40


def run(argv: Sequence[str]) -> ExitCode:
    """Follow a job until it ends. Return its exit code; 0 when detached; 5 when its launcher is not running.

    Raises:
        UsageError: an argument is invalid, or no job matches.
        ControlLost: the launcher of a running job does not answer.
    """
    given = command_arguments.read("attach", argv, USAGE)
    as_json = "--json" in given.switches
    lines = command_arguments.whole_number("attach", given, "--lines", LINES)
    where = places(os.environ)
    job = store.find(where, given.job) if given.job is not None else store.newest(where)
    if job.ended or job.running is False:
        return _show_past(job, lines, as_json)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    try:
        client, _ = connect(Path(job.record.socket), events)
    except ControlLost as lost:
        again = store.read(job.directory)
        if again is not None and (again.ended or again.running is False):
            return _show_past(again, lines, as_json)  # it ended during the search
        raise ControlLost(f"{job.title}: {lost} (launcher: {job.record.launcher.describe()})") from lost
    client.send("attach", lines=lines)
    console = Console(as_json=as_json, keys="Ctrl+\\ detaches, Ctrl+C stops the job")
    console.note(f"attached to {job.title}: {control_client.KEYS}")
    try:
        farewell = control_client.follow(client, events, console, by=control_client.me("attach"))
    finally:
        client.close()
        with signals.ignored():
            console.close()
    return _part(job, farewell, sys.stderr if as_json else None)


def _part(job: KnownJob, farewell: ViewEnd, stream: TextIO | None) -> ExitCode:
    if farewell.parting is EndReason.ENDED:
        return as_exit_code(farewell.exit_code)
    if farewell.parting is EndReason.LOST:
        again = store.read(job.directory) or job
        if again.ended:  # it closed the connection before the end was read
            return as_exit_code(again.exit_code or 0)
        show(
            "\n".join([f"{PROGRAM}: the job's launcher has exited", *status_text.detail(again, time.time())]),
            sys.stderr,
        )
        return ExitCode.LOST
    show(f"detached from {job.title}, which continues: {PROGRAM} attach {job.title}", stream)
    return as_exit_code(farewell.exit_code)


def _show_past(job: KnownJob, lines: int, as_json: bool) -> ExitCode:
    """Print the log and the end of a job whose launcher is not running; as JSON, print only the end."""
    if as_json and job.ended:
        code, collected = as_exit_code(job.exit_code or 0), job.record.collected
        console = Console(as_json=True)
        logs = Path(collected) / "log" if collected else None
        console.summary(job_id=job.job_id, code=code, cause="", logs=logs, output=None, lines=())
        console.close()
        return code
    show("\n".join([*writer.tail(job.directory / SCREEN_FILE, lines), ""]))
    if job.ended:
        show(f"{job.title} has already ended: {job.describe()}")
        return as_exit_code(job.exit_code or 0)
    show("\n".join(status_text.detail(job, time.time())), sys.stderr)
    return ExitCode.LOST
