# SPDX-License-Identifier: Apache-2.0
"""The queue of jobs that wait for nodes (--queue), ordered by priority, then by time of submission.

A waiting job is in the state directory like any other, and an additional file marks it. Only jobs whose launcher runs
on this machine count, so a launcher that exits for any reason leaves the queue. The nodes of a killed launcher become
free when their lease expires. One job at a time, under a lock, decides whether it can start, and locks its workspace,
so that two jobs never take the same nodes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.config.hosts import parse_host
from paddle_cluster.control import store
from paddle_cluster.control.state import Ask
from paddle_cluster.control.store import KnownJob
from paddle_cluster.errors import LauncherError, PreflightError, UsageError, WorkspaceHeldError
from paddle_cluster.system.signals import SignalEvent, StopRequest, ThreadFailed
from paddle_cluster.system.state_dir import JOB_FILE, StatePlaces
from paddle_cluster.system.workspace_lock import try_lock
from paddle_cluster.text.sizes import some
from paddle_node.contract.classes import NamedTuple

PHASE = "queue"
QUEUED_FILE = "queued"
LOCK_FILE = ".queue"
POLL_S = 0.5
RECORD_S = 10.0  # a job whose own record is missing for this long gives up
NAMED = 5  # maximum number of jobs in a message


def is_waiting(job: KnownJob) -> bool:
    """Return whether a job is in the queue."""
    return job.is_live and (job.directory / QUEUED_FILE).exists()


def before(jobs: Sequence[KnownJob], job: KnownJob) -> list[KnownJob]:
    """Return the jobs that this job must wait for: those with a common node or workspace that run or precede it.

    Running jobs come first.
    """
    found = [
        one
        for one in jobs
        if one.job_id != job.job_id
        and (one.is_live or _may_have_agents(one))
        and (_hosts(one) & _hosts(job) or _workspace(one) == _workspace(job))
        and (not is_waiting(one) or _order(one) < _order(job))
    ]
    return sorted(found, key=lambda one: (is_waiting(one), _order(one)))


def place(jobs: Sequence[KnownJob], job: KnownJob) -> int:
    """Return a waiting job's position among those waiting for the same nodes or workspace; 1 is next."""
    return 1 + sum(map(is_waiting, before(jobs, job)))


def titles(jobs: Sequence[KnownJob]) -> str:
    """Format jobs for a message, such as "resnet (run), JOB20260101000000-aaaaaa (queue)"."""
    return some([f"{job.title} ({job.describe()})" for job in jobs], NAMED)


def wait(
    where: StatePlaces,
    directory: Path | None,
    events: queue.SimpleQueue[Any],
    enter: Callable[[], None],
    report: Callable[[str], None],
    claim: Callable[[], object],
    timeout_s: float,
) -> None:
    """Wait until the job of a state directory may start.

    Args:
        directory: the job's state directory; None if no state can be stored.
        events: the events of the job's loop, which is not running yet.
        enter: function that is called if the job has to wait.
        claim: function that locks the workspace once the nodes are free; after a WorkspaceHeldError, the job continues
            to wait.

    Raises:
        UsageError: there is no state directory.
        PreflightError: the wait timed out.
        LauncherError: the job's own record cannot be read.
        StopRequest: the job was asked to stop.
    """
    needed = f"--queue needs a state directory: make {where.jobs} writable, or set PADDLE_STATE_DIR"
    if directory is None:
        raise UsageError(needed)
    begun_at = recorded_at = time.monotonic()
    ahead = _Ahead((), "an unknown job")
    try:
        (directory / QUEUED_FILE).touch(0o600)
        while True:
            job, now = store.read(directory), time.monotonic()
            if job is not None:
                recorded_at = now
                found = _attempt(where, job, claim)
                if found is not None and not found.names:
                    return
                if found is not None and found.names != ahead.names:
                    report(f"waiting for nodes or for the workspace of {found.text}")
                    if not ahead.names:
                        enter()
                    ahead = found
            elif now - recorded_at >= RECORD_S:
                raise LauncherError(
                    f"--queue: cannot read {directory / JOB_FILE}, this job's own record, for "
                    f"{RECORD_S:g} s: it is missing or unreadable. Check that the disk is not full, and "
                    "submit the job again"
                )
            if now - begun_at >= timeout_s:
                raise PreflightError(
                    f"--queue: the nodes did not become free within {timeout_s:g} s (QUEUE_TIMEOUT_S); "
                    f"they are held by {ahead.text}"
                )
            _pass(events, time.monotonic() + POLL_S)
    except OSError as error:
        raise UsageError(f"{needed} ({error})") from error
    finally:
        with contextlib.suppress(OSError):
            (directory / QUEUED_FILE).unlink()


class _Ahead(NamedTuple):
    """The jobs ahead in the queue, as IDs and as text for a message."""

    names: tuple[str, ...]
    text: str


def _attempt(where: StatePlaces, job: KnownJob, claim: Callable[[], object]) -> _Ahead | None:
    """Return the jobs ahead, and leave the queue if there are none. Returns None while another job is deciding."""
    lock = try_lock(job.directory.parent / LOCK_FILE)
    if lock is None:
        return None
    marker = job.directory / QUEUED_FILE
    try:
        marker.touch(0o600)  # again: two jobs without the marker would wait for each other
        ahead = before(store.all_jobs(where), job)
        if not ahead:
            try:
                claim()
            except WorkspaceHeldError as error:  # by a job that is just ending, or is unknown here
                return _Ahead((error.holder,), error.holder)
            marker.unlink(missing_ok=True)
        return _Ahead(tuple(one.job_id for one in ahead), titles(ahead))
    finally:
        os.close(lock)


def _pass(events: queue.SimpleQueue[Any], until: float) -> None:
    """Serve clients that watch the job, until the given time."""
    while (left_s := until - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            match events.get(timeout=left_s):
                case SignalEvent() as event:
                    raise StopRequest(event)
                case ThreadFailed() as failed:
                    raise LauncherError(f"a part of the launcher failed ({failed.name}): {failed.what}")
                case Ask() as ask:
                    ask.answer()


def _may_have_agents(job: KnownJob) -> bool:
    """Return whether nodes may still run a job whose launcher died, because their lease has not expired."""
    heard_s = time.time() - job.status.get("updated_at", 0.0)
    is_dead = job.running is False and not job.ended and not (job.directory / QUEUED_FILE).exists()
    return is_dead and 0 <= heard_s < job.record.lease_s


def _workspace(job: KnownJob) -> str:
    return job.record.collected and os.path.realpath(job.record.collected)


def _order(job: KnownJob) -> tuple[int, float, str]:
    return -job.record.priority, job.record.submitted_at, job.job_id


def _hosts(job: KnownJob) -> frozenset[str]:
    return frozenset(parse_host(node.host).name.lower() for node in job.record.nodes)
