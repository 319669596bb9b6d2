# SPDX-License-Identifier: Apache-2.0
"""Starts a job: checks that need no connection, then the connections, then everything else.

While logins wait for the network and the nodes, this process imports most of its modules and sets up the job's control.
"""

from __future__ import annotations

import contextlib
import gc
import os
import queue
import socket
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddle_cluster.config.settings import Settings
from paddle_cluster.connection.link import EventQueue
from paddle_cluster.engines.engine import entry
from paddle_cluster.errors import ExitCode
from paddle_cluster.files.payload import Payload
from paddle_cluster.nodes.connector import PREPARED_S, Connected, Connector, make_room, prepare
from paddle_cluster.nodes.phases import PhaseClock
from paddle_cluster.plan import plan as planning
from paddle_cluster.plan.plan import Plan
from paddle_cluster.screen.console import Console
from paddle_cluster.system import signals
from paddle_cluster.system.workspace_lock import locked, named

if TYPE_CHECKING:
    from paddle_cluster.control.control import Control


def run(settings: Settings, console: Console, first: socket.socket | None = None) -> ExitCode:
    """Run one job from its settings to its final screen; return the exit code.

    Args:
        first: a client connection that follows the job from the start, or None.

    Raises:
        WorkspaceError: the workspace cannot be dispatched; no connection was made.
        UsageError: another job has the name or collects into the same workspace, or an engine cannot be used; no
            connection was made.
        PreflightError: the nodes were not free in time (--queue); no connection was made.
    """
    clock = PhaseClock()
    clock.enter("config")
    plan = planning.build(settings, planning.new_job_id(datetime.now(), os.urandom(planning.ENTROPY_BYTES)))
    make_room(len(plan.nodes))
    engine = entry(settings).of(plan, is_job=True)
    prepared = prepare(plan, engine)
    payload = Payload(plan, console.note)
    events = EventQueue()
    collected = _collected_in(plan)
    name, waits = settings.job.name, settings.job.queue
    with (
        named(settings.state, name, plan.job_id) if name else contextlib.nullcontext(),
        contextlib.ExitStack() as held,
        signals.posted_to(events),
        signals.failures_posted_to(events),
        engine.time_limit(settings, events),
    ):

        def claim() -> None:
            held.enter_context(locked(collected, plan.job_id))

        if not waits:
            claim()
        engine.check()
        connector = Connector(events, engine)
        connector.begin(() if waits else plan.nodes)
        prepared.join(PREPARED_S)  # other imports at the same time would delay the first login
        try:
            payload.pack_runtime()
            from paddle_cluster.control.control import Control
            from paddle_cluster.job.job import Job

            with Control(plan, collected, events, console, first) as control:
                if waits:
                    _wait_for_nodes(settings, control, events, console, clock, claim)
                    payload = Payload(plan, console.note)  # of the workspace's current content
                    connector.begin(plan.nodes)
                gc.freeze()  # imports and the plan remain: the first collection would scan them for 11 ms
                return Job(plan, collected, payload, connector, events, console, clock, control).run()
        except BaseException:
            _hang_up(connector, events)
            raise


def _wait_for_nodes(
    settings: Settings,
    control: Control,
    events: EventQueue,
    console: Console,
    clock: PhaseClock,
    claim: Callable[[], None],
) -> None:
    from paddle_cluster.control import node_queue

    def enter() -> None:
        clock.enter(node_queue.PHASE)
        console.phase(node_queue.PHASE)

    timeout_s = settings.limits.queue_timeout_s
    node_queue.wait(settings.state, control.directory, events, enter, console.note, claim, timeout_s)


def _collected_in(plan: Plan) -> Path:
    """Return the directory that receives log/ and output/: the workspace, or one with its name if it is on nodes."""
    settings = plan.settings
    return settings.job.package or Path(Path(settings.job.workspace or plan.job_id).name)


def _hang_up(connector: Connector, events: queue.SimpleQueue[Any]) -> None:
    """Close connections that are no longer needed."""
    connector.close()
    while not events.empty():
        event = events.get()
        if isinstance(event, Connected):
            event.stream.close()
