# SPDX-License-Identifier: Apache-2.0
"""`paddle.py stop [JOB] [--force] [--nodes] [--conf=FILE]`: stops a job, through its launcher or on its nodes."""

from __future__ import annotations

import os
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.cli import cluster_of, command_arguments
from paddle_cluster.cli.command_arguments import CommandArguments
from paddle_cluster.config.settings import SshSettings
from paddle_cluster.control import control_client, node_jobs, store, views
from paddle_cluster.control.control_client import ConnectionClosed, ControlClient, ControlLost, connect
from paddle_cluster.control.control_protocol import Frame
from paddle_cluster.control.job_record import NodeEntry
from paddle_cluster.control.store import KnownJob
from paddle_cluster.errors import ExitCode, UsageError
from paddle_cluster.screen.writer import show
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.state_dir import StatePlaces, is_job_id, places
from paddle_cluster.text.wrapping import visible

USAGE = f"""\
{PROGRAM} stop [JOB] [--force]
{PROGRAM} stop --nodes JOB [--conf=FILE] [--hosts=HOST[,HOST]]
             [--hostfile=FILE]

Asks a job to stop, even one started in another terminal, and waits until it has
ended. JOB is a name, an id, or the beginning or end of one; default: the only
running job.

  --force       kill immediately, as a second Ctrl+C does
  --nodes       stop its processes on its nodes, without its launcher
  --conf=FILE   use the nodes of this conf.py; --hosts, --hostfile: use
                these nodes

Exit status: 0 when all its processes have exited, 7 when some have not or a
node could not be queried, 5 when its launcher does not answer.
"""
SILENT_S = 30.0  # the launcher sends something every few seconds
TURN_S = 0.5


def run(argv: Sequence[str]) -> ExitCode:
    """Stop a job and wait for its end; return 0 if all its processes have exited, 7 if some have not.

    Raises:
        UsageError: an argument is invalid, or no job matches.
        ControlLost: the launcher of a running job does not answer.
    """
    where = places(os.environ)
    if {"--all", "-a", "all"} & set(argv):
        raise UsageError(f"it stops one job, not all: stop {_only_running(where).title}")
    given = command_arguments.read("stop", argv, USAGE)
    if "--nodes" in given.switches:
        return _stop_on_nodes(where, given)
    try:
        job = store.find(where, given.job) if given.job is not None else _only_running(where)
    except UsageError as error:
        if given.job is None or "--conf" not in given.values:
            raise
        show(f"{PROGRAM}: {error}; querying the nodes of {given.values['--conf']}", sys.stderr)
        return _stop_on_nodes(where, given)
    if job.ended:
        return _print_already_ended(job)
    try:
        return _stop_by_launcher(job, "--force" in given.switches)
    except ControlLost as lost:
        job = store.read(job.directory) or job  # it may have ended during the search
        if job.ended:
            return _print_already_ended(job)
        if job.running is not False:
            raise ControlLost(
                f"{job.job_id}: {lost}\nto stop it on its nodes: {PROGRAM} stop --nodes {job.job_id}"
            ) from lost
        show(f"{job.title}: its launcher has exited; asking its nodes to stop the job")
        return _end_on_nodes(where, job.job_id, job.record.nodes, job.record.login.settings())


def _print_already_ended(job: KnownJob) -> ExitCode:
    show(f"{job.title} has already ended: {job.describe()}")
    return ExitCode.DONE


def _only_running(where: StatePlaces) -> KnownJob:
    """Return the only running job. Raises UsageError if none is running, or several are."""
    running = [job for job in store.all_jobs(where) if job.is_live]
    if not running:
        raise UsageError(
            f"none of your jobs is running on this machine; `{PROGRAM} status` lists the known ones"
        )
    if len(running) > 1:
        now = time.time()
        lines = [
            f"{PROGRAM} stop {job.title}  # {job.record.source}, {views.ago(now - job.record.submitted_at)} old"
            for job in running
        ]
        title = f"{len(running)} jobs are running; stop each one by itself:"
        raise UsageError("\n".join([title, *map(visible, lines)]))
    return running[0]


def _stop_by_launcher(job: KnownJob, force: bool) -> ExitCode:
    if not job.record.socket:
        raise ControlLost(f"{job.title} could not create its control socket")
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client, _ = connect(Path(job.record.socket), events)
    try:
        client.send("attach", lines=0)
        client.send("stop", signal="SIGTERM", force=force, by=control_client.me("stop"))
        show(f"asked {job.title} to stop; waiting for it to end (Ctrl+C stops waiting, not the job)")
        return _wait(job, client, events)
    finally:
        client.close()


def _wait(job: KnownJob, client: ControlClient, events: queue.SimpleQueue[Any]) -> ExitCode:
    heard_at = time.monotonic()
    while True:
        try:
            event = events.get(timeout=TURN_S)
        except queue.Empty:
            if time.monotonic() - heard_at >= SILENT_S:
                raise ControlLost(f"no message from the launcher for {SILENT_S:.0f} s") from None
            continue
        heard_at = time.monotonic()
        if isinstance(event, ConnectionClosed):
            again = store.read(job.directory)
            if again is not None and again.ended:
                left = tuple(map(str, again.status.get("left") or ()))
                return _print_end(job.title, again.exit_code or 0, left)
            raise ControlLost(f"the launcher has exited: {event.reason}")
        if isinstance(event, Frame) and event.kind == "end":
            return _print_end(job.title, event.record.exit_code, event.record.left)
        if isinstance(event, Frame) and event.kind == "shown" and event.fields.get("event") == "PhaseEntered":
            show(f"== {visible(str(event.fields.get('name')))}")
        if isinstance(event, Frame) and event.kind == "shown" and event.fields.get("event") == "Noted":
            show("\n".join(map(visible, str(event.fields.get("text")).splitlines())))


def _print_end(job: str, code: int, left: tuple[str, ...]) -> ExitCode:
    for line in views.shortened(left, job):
        show(line)
    show(f"{job} ended (exit {code})" + ("" if left else "; all its processes have exited"))
    return ExitCode.NOT_CLEAN if left or code == ExitCode.NOT_CLEAN else ExitCode.DONE


def _stop_on_nodes(where: StatePlaces, given: CommandArguments) -> ExitCode:
    if given.job is None:
        raise UsageError(f"stop --nodes needs a job; `{PROGRAM} status --nodes` lists the jobs on the nodes")
    nodes, login, conf, job_id_part = cluster_of.nodes_to_ask(where, given, os.environ)
    assert job_id_part is not None
    jobs, _, failed = node_jobs.ask(nodes, login)
    found = {
        job.job_id for job in jobs if job.job_id.startswith(job_id_part) or job.job_id.endswith(job_id_part)
    }
    if len(found) > 1:
        raise UsageError(
            f"{job_id_part!r} matches several jobs: {', '.join(sorted(found))}; give more characters of the id"
        )
    if found:
        job_id_part = found.pop()
        node_jobs.rebuild(where, [job for job in jobs if job.job_id == job_id_part], login, conf)
    elif not failed or not is_job_id(job_id_part):
        raise UsageError(f"no node has a record of job {job_id_part!r}")
    return _end_on_nodes(where, job_id_part, nodes, login)


def _end_on_nodes(
    where: StatePlaces, job_id: str, nodes: Sequence[NodeEntry], login: SshSettings
) -> ExitCode:
    answers = node_jobs.end(job_id, nodes, login)
    for one in answers:
        ended = one.record
        if ended is None:
            show(f"! {one.node.name}: could not be queried: {visible(one.error)}")
            continue
        done = "; ".join(ended.told)
        show(f"  {one.node.name}: {done or 'no process of the job was found'}")
        for pid, command in ended.left:
            show(f"! NOT CLEANED on {one.node.name}: pid {pid} {command}")
        if ended.unsure:
            show(f"! {one.node.name}: {ended.unsure}")
    clean = not any(one.record is None or one.record.left for one in answers)
    sure = clean and not any(one.record is None or one.record.unsure for one in answers)
    if sure:
        node_jobs.record_end(where, job_id)
    show(f"{job_id}: " + ("all its processes have exited" if sure else "see the lines marked !"))
    return ExitCode.DONE if clean else ExitCode.NOT_CLEAN
