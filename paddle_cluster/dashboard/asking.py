# SPDX-License-Identifier: Apache-2.0
"""What the page asks of a running job, over a connection to its control socket: to stop, where its processes are."""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from paddle_cluster.control import attached
from paddle_cluster.control.control_client import ControlClient, ControlLost, connect
from paddle_cluster.control.control_protocol import Frame
from paddle_cluster.control.known_jobs import KnownJob
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.text.wrapping import visible_lines

ANSWER_S = 5.0
STACKS_S = 8.0


def stop(job: KnownJob, *, force: bool) -> str:
    """Ask a job to stop; returns what the page says then.

    Raises:
        ControlLost: its launcher does not take it.
    """
    with _asking(job) as (client, events):
        client.send("stop", signal="SIGTERM", force=force, by=attached.me("dashboard"))
        client.send("look")  # its answer shows that what was asked before it has come
        for frame in _frames(job, events, ANSWER_S):
            if frame.kind == "status":
                return f"asked {job.job_id} to " + ("end at once" if force else "stop")
    raise ControlLost(f"{job.job_id}: its launcher has not answered for {ANSWER_S:.0f} s")


def stacks(job: KnownJob, names: Sequence[str]) -> dict[str, str]:
    """Ask processes where they are; of those that did not answer in time it says so.

    Raises:
        ControlLost: the launcher does not take it.
    """
    found: dict[str, str] = {}
    with _asking(job) as (client, events):
        client.send("stacks", procs=list(names))
        for frame in _frames(job, events, STACKS_S):
            if frame.kind == "stacks":
                found[str(frame.fields.get("process"))] = str(frame.fields.get("text"))
            if found.keys() >= set(names):
                break
    silent = f"(no answer in {STACKS_S:.0f} s)"
    return {name: visible_lines(found.get(name, silent)) for name in names}


@contextlib.contextmanager
def _asking(job: KnownJob) -> Iterator[tuple[ControlClient, queue.SimpleQueue[Any]]]:
    if job.ended:
        raise ControlLost(f"{job.job_id} has already ended: {job.describe()}")
    if not job.running or not job.record.socket:
        raise ControlLost(
            f"{job.job_id}: no launcher of this machine can be asked ({job.describe()}); `{PROGRAM} stop "
            f"{job.job_id}` asks its nodes"
        )
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client, _ = connect(Path(job.record.socket), events)
    try:
        yield client, events
    finally:
        client.close()


def _frames(job: KnownJob, events: queue.SimpleQueue[Any], timeout_s: float) -> Iterator[Frame]:
    """What the launcher says in so many seconds."""
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            return
        if not isinstance(event, Frame):
            raise ControlLost(f"{job.job_id}: its launcher is gone: {event.reason}")
        if event.kind == "refused":
            raise ControlLost(f"{job.job_id}: its launcher refused: {event.fields.get('reason')}")
        yield event
