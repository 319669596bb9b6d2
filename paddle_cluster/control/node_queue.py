# SPDX-License-Identifier: Apache-2.0
"""The queue of jobs that wait for nodes (--queue): by priority, then by submission.

A waiting job is in the state directory as any other, and one more file marks it. Only jobs whose launcher is alive on
this machine count, so a launcher that ends, for whatever reason, leaves the queue and frees its nodes. One job at a
time decides whether it may start, under a lock, so that two never take the same nodes.
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
from paddle_cluster.errors import LauncherError, PreflightError, UsageError
from paddle_cluster.system.signals import SignalEvent, StopRequest, ThreadFailed
from paddle_cluster.system.state_dir import StatePlaces, replace_file
from paddle_cluster.system.workspace_lock import try_lock

PHASE = "queue"
QUEUED_FILE = "queued"
LOCK_FILE = ".queue"
POLL_S = 0.5
NAMED = 5  # jobs that a message names


def waiting(jobs: Sequence[KnownJob]) -> list[KnownJob]:
    """The jobs that wait, the next one first."""
    return sorted((job for job in jobs if is_waiting(job)), key=_order)


def is_waiting(job: KnownJob) -> bool:
    """Whether a job is in the queue."""
    return job.is_live and (job.directory / QUEUED_FILE).exists()


def before(jobs: Sequence[KnownJob], job: KnownJob) -> list[KnownJob]:
    """The jobs that one waits for: they share a node or a workspace with it, and run or come before it in the queue.

    Those that run come first.
    """
    found = [
        one
        for one in jobs
        if one.job_id != job.job_id
        and one.is_live
        and (_hosts(one) & _hosts(job) or one.record.collected == job.record.collected)
        and (not is_waiting(one) or _order(one) < _order(job))
    ]
    return sorted(found, key=lambda one: (is_waiting(one), _order(one)))


def told(jobs: Sequence[KnownJob]) -> str:
    """ "resnet (run), JOB20260101000000-aaaaaa (queue)"."""
    more = f" and {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
    return ", ".join(f"{job.title} ({job.describe()})" for job in jobs[:NAMED]) + more


def wait(
    where: StatePlaces,
    directory: Path | None,
    events: queue.SimpleQueue[Any],
    enter: Callable[[], None],
    report: Callable[[str], None],
    timeout_s: float,
) -> None:
    """Wait until the job of a state directory may start.

    Args:
        directory: None where no state can be kept.
        events: those of the job's loop, which does not run yet.
        enter: called when the job has to wait.

    Raises:
        UsageError: there is no state directory.
        PreflightError: the timeout passed.
        StopRequest: the job is to stop.
    """
    needed = f"--queue needs a state directory: make {where.jobs} writable, or set PADDLE_STATE_DIR"
    if directory is None:
        raise UsageError(needed)
    deadline, seen = time.monotonic() + timeout_s, list[str]()
    try:
        replace_file(directory / QUEUED_FILE, b"")
        while (ahead := _attempt(where, directory)) is None or ahead:
            if ahead and (now := [job.job_id for job in ahead]) != seen:
                report(f"waiting for nodes or the workspace of {told(ahead)}")
                if not seen:
                    enter()
                seen = now
            if time.monotonic() >= deadline:
                raise PreflightError(
                    f"--queue: the nodes were not free within {timeout_s:g} s (QUEUE_TIMEOUT_S); they are held by "
                    f"{told(ahead or ()) or 'an unknown job'}"
                )
            _pass(events, time.monotonic() + POLL_S)
    except OSError as error:
        raise UsageError(f"{needed} ({error})") from error
    finally:
        with contextlib.suppress(OSError):
            (directory / QUEUED_FILE).unlink()


def _attempt(where: StatePlaces, directory: Path) -> list[KnownJob] | None:
    """The jobs before this one; with none it has left the queue. None: another job decides just now."""
    lock = try_lock(directory.parent / LOCK_FILE)
    if lock is None:
        return None
    try:
        job = store.read(directory)
        if job is None:  # its record is being written
            return None
        ahead = before(store.all_jobs(where), job)
        if not ahead:
            (directory / QUEUED_FILE).unlink(missing_ok=True)
        return ahead
    finally:
        os.close(lock)


def _pass(events: queue.SimpleQueue[Any], until: float) -> None:
    """Answer those who look at the job, until then."""
    while (left_s := until - time.monotonic()) > 0:
        with contextlib.suppress(queue.Empty):
            match events.get(timeout=left_s):
                case SignalEvent() as event:
                    raise StopRequest(event)
                case ThreadFailed() as failed:
                    raise LauncherError(f"a part of the launcher failed ({failed.name}): {failed.what}")
                case Ask() as ask:
                    ask.answer()


def _order(job: KnownJob) -> tuple[int, float, str]:
    return -job.record.priority, job.record.submitted_at, job.job_id


def _hosts(job: KnownJob) -> frozenset[str]:
    return frozenset(parse_host(node.host).name.lower() for node in job.record.nodes)
