# SPDX-License-Identifier: Apache-2.0
"""The life of a job: connect, check, dispatch, start, watch, stop, collect.

Phases run one after the other on the main thread; while one waits, the loop handles every event. Whatever ends a
phase (success, an error, a signal), the shutdown runs and says what is left.
"""

from __future__ import annotations

import os
import queue
import secrets
import shutil
import time
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher import plan as planning
from launcher import preflight, signals
from launcher.cargo import TREES, Cargo
from launcher.claim import claimed
from launcher.collect import Collector
from launcher.console import Console
from launcher.dispatch import RUNTIME, WORKSPACE
from launcher.engines.ssh import SshEngine
from launcher.errors import ExitCode, LauncherError, PreflightError
from launcher.failure import first_cause, report
from launcher.loop import ALARM_S, Loop
from launcher.phases import PhaseClock
from launcher.plan import Plan, Process
from launcher.reactions import Reactions, Stopped
from launcher.roster import NodeRecord, ProcessRecord, ProcessState, Roster
from launcher.settings import Settings
from launcher.shutdown import Shutdown, Undone

SETTLE_S = 0.3  # failures that arrive within this time are weighed together


class JobFailed(Exception):
    """Something of the job failed; the roster holds the failures."""


def run(settings: Settings, console: Console) -> ExitCode:
    """Run one job from its settings to its last screen.

    Raises:
        WorkspaceError: the workspace cannot be dispatched; no connection was made.
        UsageError: another job collects into the same workspace.
    """
    clock = PhaseClock()
    clock.enter("config")
    plan = planning.build(settings, planning.new_job_id(datetime.now(), os.urandom(planning.ENTROPY_BYTES)))
    cargo = Cargo(plan)
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    with claimed(collected_in(plan), plan.job_id), signals.posted_to(events):
        return Job(plan, cargo, events, console, clock).run()


def collected_in(plan: Plan) -> Path:
    """The directory that gets log/ and output/: the workspace, or one named after a job that lies on the nodes."""
    settings = plan.settings
    return settings.package or Path(Path(settings.workspace or plan.job_id).name)


class Job:
    """One run of a plan."""

    def __init__(
        self, plan: Plan, cargo: Cargo, events: queue.SimpleQueue[Any], console: Console, clock: PhaseClock
    ) -> None:
        self._plan = plan
        self._settings = plan.settings
        self._cargo = cargo
        self._console = console
        self._clock = clock
        self._key = secrets.token_hex(32)
        self._collected = collected_in(plan)
        self._collector = Collector(self._collected)
        self._roster = Roster({node.node_id: NodeRecord(node) for node in plan.nodes}, self._collected)
        self._engine = SshEngine(plan, events)
        self._reactions = Reactions(
            plan, cargo, self._roster, self._engine, events, self._collector, console, clock
        )
        self._loop = Loop(events, self._roster, self._settings.lease_s, self._reactions.handlers())
        self._shutdown = Shutdown(
            self._settings,
            self._roster,
            self._loop,
            self._reactions,
            self._engine,
            self._collector,
            console,
            self._enter,
        )

    def run(self) -> ExitCode:
        """Run all phases; every way out goes through the shutdown."""
        code, lines = ExitCode.DONE, []
        self._console.nodes({record.node.node_id: record.name for record in self._roster.all()})
        try:
            self._connect_and_check()
            self._dispatch()
            self._start_pservers()
            self._start_trainers()
            self._watch()
        except Stopped as stop:
            code = stop.event.exit_code
            self._console.note(f"stopping: {stop}")
        except JobFailed:
            code, lines = first_cause(self._roster.failures).exit_code, report(self._roster.failures)
        except LauncherError as error:
            code, lines = error.exit_code, f"FIRST ERROR: {error}".splitlines()
        undone = self._shutdown.run()
        code = self._weigh(code, undone)
        self._console.times(self._clock.times())
        self._console.summary(
            job_id=self._plan.job_id,
            code=code,
            logs=self._collected / "log" if any(r.used for r in self._roster.all()) else None,
            output=self._collected / "output" if self._collector.has_output else None,
            lines=[*undone.unclean, *undone.missing, *lines],
        )
        return code

    def _weigh(self, code: ExitCode, undone: Undone) -> ExitCode:
        """The exit code after the shutdown; a job that failed keeps the code of its failure."""
        if code not in (ExitCode.DONE, ExitCode.INTERRUPTED, ExitCode.TERMINATED, ExitCode.HANGUP):
            return code
        if undone.unclean:
            return ExitCode.NOT_CLEAN
        asked = self._reactions.asked_again
        if code is ExitCode.DONE and asked is not None:  # the job was done, its results were on their way
            return asked.exit_code
        return ExitCode.NOT_CLEAN if code is ExitCode.DONE and undone.missing else code

    # Phases

    def _enter(self, phase: str) -> None:
        self._clock.enter(phase)
        self._console.phase(phase)

    def _connect_and_check(self) -> None:
        settings = self._settings
        self._enter("connect")
        for record in self._roster.all():
            self._reactions.connect(record)
        self._loop.until(
            lambda: all(record.error or record.login_s for record in self._roster.all()),
            settings.connect_timeout_s + settings.preflight_timeout_s,
        )
        self._enter("preflight")
        self._loop.until(
            lambda: all(record.probed is not None for record in self._roster.live()),
            settings.preflight_timeout_s,
        )
        self._ask_for_routes()
        replies = [_reply(record, self._roster) for record in self._roster.all()]
        verdict = preflight.judge(replies, self._demands())
        self._console.table(preflight.HEADERS, verdict.rows, verdict.red)
        for remark in verdict.remarks:
            self._console.note(remark)
        if verdict.problems:
            raise PreflightError("preflight\n  " + "\n  ".join(verdict.problems))

    def _demands(self) -> preflight.Demands:
        settings = self._settings
        return preflight.Demands(
            modules=preflight.needed_modules(settings.mode),
            port_is_explicit=settings.port_is_explicit,
            allow_mismatch=settings.allow_mismatch,
            python=settings.python or "python3",
        )

    def _ask_for_routes(self) -> None:
        asked = [record for record in self._roster.live() if (record.probed or {}).get("listen_port")]
        peers = [
            (r.node.node_id, (r.probed or {})["address"], (r.probed or {})["listen_port"]) for r in asked
        ]
        for record in asked:
            record.send("reach", peers=[peer for peer in peers if peer[0] != record.node.node_id])
        self._loop.until(
            lambda: all(record.reached is not None or record.link is None for record in asked),
            self._settings.preflight_timeout_s,
        )

    def _dispatch(self) -> None:
        self._enter("dispatch")
        nodes = self._roster.all()
        for record in nodes:
            self._reactions.offer(record)
        self._loop.until(lambda: all(record.trees.keys() == TREES for record in nodes))
        sent = sum(dispatch.bytes_sent for record in nodes for dispatch in record.dispatches.values())
        self._console.note(
            f"{self._cargo.describe()}: on {len(nodes)} nodes, {preflight.megabytes(sent)} sent"
        )
        for earlier in (self._collected / "log").glob("node_*"):  # of a job that may have had more nodes
            if earlier.name.removeprefix("node_").isdigit():
                shutil.rmtree(earlier, ignore_errors=True)

    def _start_pservers(self) -> None:
        processes = planning.pserver_processes(self._plan, self._addresses(), self._cpus())
        if not processes:
            return
        self._enter("pservers")
        records = self._start(processes)
        timeout_s = self._settings.ready_timeout_s
        self._loop.until(lambda: bool(self._roster.failures) or all(r.endpoints for r in records), timeout_s)
        if not self._roster.failures:
            for record in records:
                if record.endpoints is None:
                    self._roster.fail_process(record, f"did not answer on its ports within {timeout_s:g} s")
        self._raise_failures()

    def _start_trainers(self) -> None:
        self._enter("trainers")
        endpoints = {
            record.process.node_id: record.endpoints
            for record in self._roster.processes.values()
            if record.endpoints is not None
        }
        processes = planning.trainer_processes(self._plan, self._addresses(), endpoints, self._cpus())
        records = self._start(processes)
        self._loop.until(
            lambda: bool(self._roster.failures) or all(r.state is not ProcessState.STARTING for r in records)
        )
        self._raise_failures()

    def _watch(self) -> None:
        self._enter("run")
        trainers = self._roster.trainers()
        self._loop.until(
            lambda: bool(self._roster.failures) or all(r.state is ProcessState.EXITED for r in trainers)
        )
        self._raise_failures()

    def _raise_failures(self) -> None:
        """Wait for what fails together, so that the cause is told and not its echo.

        Every node is asked for a word; one that stays silent for ALARM_S is itself the likeliest cause.
        """
        if not self._roster.failures:
            return
        asked_at = time.monotonic()
        self._loop.ping()
        self._loop.until(lambda: False, SETTLE_S)
        self._loop.until(lambda: all(r.heard_at > asked_at for r in self._roster.live()), ALARM_S)
        for record in self._roster.live():
            if record.heard_at <= asked_at:
                self._roster.fail_node(record, f"no word for {time.monotonic() - record.heard_at:.0f} s")
        raise JobFailed

    # Facts and steps

    def _start(self, processes: Iterable[Process]) -> list[ProcessRecord]:
        records = []
        for process in processes:
            node = self._roster.nodes[process.node_id]
            node.used = True
            record = self._roster.processes[process.name] = ProcessRecord(process)
            records.append(record)
            job_dir = node.trees[WORKSPACE]
            node.send(
                "start",
                proc=process.name,
                role=process.role.value,
                rank=process.rank,
                argv=list(process.argv),
                env={**process.env, "PADDLE_JOB_DIR": job_dir, "PYTHONPATH": node.trees[RUNTIME]},
                secret_env={"PADDLE_JOB_KEY": self._key},
                cwd=job_dir,
                log=process.log,
            )
        return records

    def _addresses(self) -> dict[int, str]:
        return {r.node.node_id: str((r.probed or {})["address"]) for r in self._roster.all()}

    def _cpus(self) -> dict[int, int]:
        return {r.node.node_id: int((r.probed or {}).get("cpus") or 1) for r in self._roster.all()}


def _reply(record: NodeRecord, roster: Roster) -> preflight.Reply:
    """What preflight judges of a node."""
    error = ""
    if record.error is not None:
        error = str(record.error).removeprefix(f"{record.name}: ")
    elif record.probed is None:
        error = "it did not answer in time"
    unreachable = tuple(
        f"{roster.nodes[node_id].name}: {text}" for node_id, ok, text in record.reached or () if not ok
    )
    return preflight.Reply(
        record.name,
        error,
        record.probed or {},
        unreachable,
        record.clock_offset_s,
        record.login_s,
        record.hostname,
    )
