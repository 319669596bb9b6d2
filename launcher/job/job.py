# SPDX-License-Identifier: Apache-2.0
"""The life of a job: connect, check, dispatch, start, watch, stop, collect.

Phases run one after the other on the main thread; while one waits, the loop handles every event. Whatever ends a
phase (success, an error, a signal), the shutdown runs and says what is left.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import shutil
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher.config.settings import Settings
from launcher.connection.event_queue import Events
from launcher.control.control import Control
from launcher.errors import ExitCode, LauncherError
from launcher.files.collector_thread import Collection
from launcher.files.payload import Cargo
from launcher.job import ending
from launcher.job.arrival import Arrival
from launcher.job.causes import first_cause
from launcher.job.context import Situation
from launcher.job.handlers.dispatch import DispatchReactions
from launcher.job.handlers.nodes import NodeReactions
from launcher.job.handlers.processes import ProcessReactions
from launcher.job.handlers.stop import Stopped
from launcher.job.handlers.table import handlers
from launcher.job.recovery import JobFailed
from launcher.job.shutdown import Shutdown, Undone
from launcher.job.watch import Watch
from launcher.nodes.loop import Loop
from launcher.nodes.phases import PhaseClock
from launcher.nodes.roster import NodeRecord, Roster
from launcher.plan import plan as planning
from launcher.plan import pserver_state
from launcher.plan.plan import Plan
from launcher.screen.console import Console
from launcher.screen.job_log import JobLog
from launcher.ssh.connector import SshEngine, prepare
from launcher.system import signals
from launcher.system.descriptors import make_room
from launcher.system.workspace_lock import claimed


def run(settings: Settings, console: Console, first: socket.socket | None = None) -> ExitCode:
    """Run one job from its settings to its last screen.

    Args:
        first: a connection of somebody who looks on from the start, or None.

    Raises:
        WorkspaceError: the workspace cannot be dispatched; no connection was made.
        UsageError: another job collects into the same workspace.
    """
    clock = PhaseClock()
    clock.enter("config")
    plan = planning.build(settings, planning.new_job_id(datetime.now(), os.urandom(planning.ENTROPY_BYTES)))
    make_room(len(plan.nodes))
    prepare(plan)
    cargo = Cargo(plan)
    events = Events()
    collected = collected_in(plan)
    with (
        claimed(collected, plan.job_id),
        signals.posted_to(events),
        Control(plan, collected, events, console, first) as control,
    ):
        return Job(plan, cargo, events, console, clock, control).run()


def collected_in(plan: Plan) -> Path:
    """The directory that gets log/ and output/: the workspace, or one named after a job that lies on the nodes."""
    settings = plan.settings
    return settings.package or Path(Path(settings.workspace or plan.job_id).name)


class Job:
    """One run of a plan."""

    def __init__(
        self,
        plan: Plan,
        cargo: Cargo,
        events: queue.SimpleQueue[Any],
        console: Console,
        clock: PhaseClock,
        control: Control,
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._cargo = cargo
        self._console = console
        self._clock = clock
        self._control = control
        self._key = secrets.token_hex(32)
        self._collected = collected_in(plan)
        self._collector = Collection(self._collected, events)
        self._job_log = JobLog(self._settings.log_limit_mb << 20)
        console.watch(self._job_log.take)
        self._roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, self._collected)
        self._engine = SshEngine(plan, events)
        self._situation = Situation(
            plan, cargo, self._roster, self._engine, events, self._collector, console, clock
        )
        self._to_dispatch = DispatchReactions(self._situation)
        self._to_nodes = NodeReactions(self._situation, self._to_dispatch)
        to_processes = ProcessReactions(self._situation, self._to_dispatch)
        table = handlers(self._situation, self._to_nodes, self._to_dispatch, to_processes)
        table = control.observe(table, self._roster)
        self._loop = Loop(events, self._roster, self._settings.lease_s, table)
        self._shutdown = Shutdown(self._situation, self._loop, self._to_nodes, self._enter)

    def run(self) -> ExitCode:
        """Run all phases; every way out goes through the shutdown."""
        code, lines, has_failed = ExitCode.DONE, list[str](), False
        self._console.nodes({record.node.node_id: record.name for record in self._roster.all()})
        try:
            Arrival(self._situation, self._loop, self._to_nodes, self._enter).run()
            self._dispatch()
            Watch(self._situation, self._loop, self._key, self._enter).run()
        except Stopped as stop:
            code = stop.event.exit_code
            self._console.note(f"stopping: {stop}")
        except JobFailed:
            code, has_failed = first_cause(self._roster.failures).exit_code, True
        except LauncherError as error:
            code, lines = error.exit_code, ending.explain_error(error, self._roster, self._plan.job_id)
        undone = self._shutdown.run()
        if has_failed:  # the shutdown brings news of who died with it
            lines = ending.explain(self._roster, self._plan.job_id, code)
            lines += pserver_state.resume_hint(self._settings) if code is ExitCode.LOST else []
        else:
            lines += ending.warnings(self._roster)
        code = self._weigh(code, undone)
        discards = ending.discards(self._roster)
        self._console.times(self._clock.times())
        self._console.summary(
            job_id=self._plan.job_id,
            code=code,
            logs=self._collected / "log" if any(r.used for r in self._roster.all()) else None,
            output=self._collected / "output" if self._collector.has_output else None,
            lines=[*undone.excused, *undone.unclean, *undone.missing, *lines, *discards],
        )
        self._job_log.close()
        self._control.end(code, (*undone.unclean, *undone.missing), lines)
        return code

    def _weigh(self, code: ExitCode, undone: Undone) -> ExitCode:
        """The exit code after the shutdown; a job that failed keeps the code of its failure."""
        if code is not ExitCode.DONE and code not in signals.EXIT_CODES.values():
            return code
        if undone.unclean:
            return ExitCode.NOT_CLEAN
        asked = self._situation.asked_again
        if code is ExitCode.DONE and asked is not None:  # the job was done, its results were on their way
            return asked.exit_code
        return ExitCode.NOT_CLEAN if code is ExitCode.DONE and undone.missing else code

    # Phases

    def _enter(self, phase: str) -> None:
        self._clock.enter(phase)
        self._console.phase(phase)

    def _dispatch(self) -> None:
        self._enter("dispatch")
        for record in self._roster.all():
            self._to_dispatch.offer(record)
        self._loop.until(self._to_dispatch.is_over)
        self._console.note(self._to_dispatch.finish())
        ending.forget_earlier(self._collected / "log")
        for earlier in (self._collected / "log").glob("node_*"):  # of a job that may have had more nodes
            if earlier.name.removeprefix("node_").isdigit():
                _remove(earlier)
        self._job_log.begin(self._collected / "log" / "job.log")


def _remove(earlier: Path) -> None:
    """Remove what an earlier job left; a link is not followed."""
    if earlier.is_symlink() or not earlier.is_dir():
        with contextlib.suppress(OSError):
            earlier.unlink()
    else:
        shutil.rmtree(earlier, ignore_errors=True)
