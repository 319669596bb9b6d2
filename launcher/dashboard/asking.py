# SPDX-License-Identifier: Apache-2.0
"""What the page asks of a running job: to stop. One connection to its control socket for each question."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.control import attached
from launcher.control.control_client import ControlClient, ControlLost, connect
from launcher.control.control_protocol import Frame
from launcher.control.known_jobs import KnownJob
from launcher.system.installation import PROGRAM

ANSWER_S = 5.0


def stop(job: KnownJob, *, force: bool) -> str:
    """Ask a job to stop; returns what the page says then.

    Raises:
        ControlLost: its launcher does not take it.
    """

    def ask(client: ControlClient) -> None:
        client.send("stop", signal="SIGTERM", force=force, by=attached.me("dashboard"))
        client.send("look")  # its answer shows that what was asked before it has come

    _answer(job, ask, "status")
    return f"asked {job.job_id} to " + ("end at once" if force else "stop")


def _answer(job: KnownJob, ask: Callable[[ControlClient], None], kind: str) -> dict[str, Any]:
    if job.ended:
        raise ControlLost(f"{job.job_id} is over already: {job.describe()}")
    if not job.running or not job.record.socket:
        raise ControlLost(
            f"{job.job_id}: no launcher of this machine can be asked ({job.describe()}); `{PROGRAM} stop "
            f"{job.job_id}` asks its nodes"
        )
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client, _ = connect(Path(job.record.socket), events)
    try:
        ask(client)
        return _wait(job, events, kind)
    finally:
        client.close()


def _wait(job: KnownJob, events: queue.SimpleQueue[Any], kind: str) -> dict[str, Any]:
    """The first frame of a kind."""
    deadline = time.monotonic() + ANSWER_S
    while (left_s := deadline - time.monotonic()) > 0:
        try:
            event = events.get(timeout=left_s)
        except queue.Empty:
            break
        if not isinstance(event, Frame):
            raise ControlLost(f"{job.job_id}: its launcher is gone: {event.reason}")
        if event.kind == "refused":
            raise ControlLost(f"{job.job_id}: its launcher refused: {event.fields.get('reason')}")
        if event.kind == kind:
            return event.fields
    raise ControlLost(f"{job.job_id}: its launcher has not answered for {ANSWER_S:.0f} s")
