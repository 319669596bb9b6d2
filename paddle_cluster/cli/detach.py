# SPDX-License-Identifier: Apache-2.0
"""Implements --detach: the launcher becomes a daemon, and this process exits once the trainers run.

Until then, this process reports any error with its exit code, and Ctrl+C stops the job.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from paddle_cluster.control import control_client, node_queue
from paddle_cluster.control.control_client import ControlClient, EndReason
from paddle_cluster.control.control_protocol import encode
from paddle_cluster.errors import ExitCode, LauncherError, as_exit_code
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.writer import show
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.process_id import ProcessId
from paddle_cluster.system.state_dir import StatePlaces, own_directory
from paddle_cluster.text.output_events import Event, PhaseEntered
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.records import RecordError, read
from paddle_node.linux import proc

ERRORS_FILE = "launcher.err"
ERRORS_LIMIT = 1 << 20
RUNNING = "run"

RunJob = Callable[[Console, socket.socket], ExitCode]


def run(run_job: RunJob, where: StatePlaces) -> ExitCode:
    """Start a daemon that runs the job, and wait until its trainers run. The calling process must have no threads.

    Args:
        run_job: function that runs the job in the daemon; its argument is the socket through which this process follows
            the job.
        where: file that receives the output of the daemon's interpreter.
    """
    mine, its = socket.socketpair()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        mine.close()
        _become_daemon(run_job, its, where)
    its.close()
    os.waitpid(child, 0)
    return _follow(mine)


def _become_daemon(run_job: RunJob, first: socket.socket, where: StatePlaces) -> NoReturn:
    """Run the child's side of the fork; never return."""
    code: int = ExitCode.PROCESS_FAILED
    try:
        os.setsid()
        if os.fork() != 0:  # not a session leader: terminals it opens do not become its own
            os._exit(0)
        _let_go_of_terminal(first, where)
        console = Console()
        code = run_job(console, first)
    except LauncherError as error:
        code = error.exit_code
        _send_end(first, code, str(error).splitlines())
    except signals.StopRequest as stop:
        code = stop.event.exit_code
        _send_end(first, code, [f"ended by {stop}"])
    except Exception as error:  # noqa: BLE001 - the last resort of a process without a terminal
        traceback.print_exc()
        _send_end(first, code, [f"the launcher failed: {error!r}; see {where.jobs / ERRORS_FILE}"])
    finally:
        os._exit(int(code))


def _let_go_of_terminal(first: socket.socket, where: StatePlaces) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    kept = first.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, 1 + max(proc.open_descriptors()))
    with contextlib.suppress(OSError):
        path = own_directory(where.jobs) / ERRORS_FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        errors = os.open(path, flags | (os.O_TRUNC if _size(path) > ERRORS_LIMIT else 0), 0o600)
        os.dup2(errors, 2)
        os.close(errors)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _send_end(first: socket.socket, code: int, lines: list[str]) -> None:
    with contextlib.suppress(OSError):  # the watching process has exited
        first.sendall(encode("end", exit_code=int(code), left=[], lines=lines))


def _follow(connection: socket.socket) -> ExitCode:
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    welcome: dict[str, Any] = {}
    client = ControlClient(connection, events, on_welcome=welcome.update)
    client.send("attach", lines=10_000)
    console = Console()
    try:
        farewell = control_client.follow(
            client, events, console, by=control_client.me("--detach"), until=_runs
        )
    finally:
        client.close()
        with signals.ignored():
            console.close()
    if farewell.parting is EndReason.ENDED:
        if farewell.lines:
            show("\n".join(f"{PROGRAM}: {line}" for line in farewell.lines), sys.stderr)
        return as_exit_code(farewell.exit_code)
    if farewell.parting is EndReason.LOST:
        show(f"{PROGRAM}: the detached launcher exited without a message ({farewell.reason})", sys.stderr)
        return ExitCode.LOST
    show(_directions(welcome))
    return as_exit_code(farewell.exit_code)


def _runs(event: Event) -> bool:
    return isinstance(event, PhaseEntered) and event.name in (RUNNING, node_queue.PHASE)


def _directions(welcome: dict[str, Any]) -> str:
    job_id = str(welcome.get("job_id", ""))
    try:
        who = read(ProcessId, welcome.get("launcher"), "launcher", "the launcher").describe()
    except RecordError:
        who = "its launcher has not reported its process id"
    name = visible(str(welcome.get("name") or "")) or job_id
    title = name if name == job_id else f"{name} ({job_id})"
    return (
        f"{title} continues without this terminal ({who})\n"
        f"  watch it:   {PROGRAM} attach {name}\n"
        f"              {PROGRAM} status {name}, {PROGRAM} logs -f {name}\n"
        f"  stop it:    {PROGRAM} stop {name}"
    )
