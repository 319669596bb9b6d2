# SPDX-License-Identifier: Apache-2.0
"""The middle of a job: start the pservers, then the trainers, and watch until all trainers are done or something fails.

Failures that arrive together are weighed together, so that the cause is told and not its echo.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from launcher import machines
from launcher import plan as planning
from launcher.dispatch import RUNTIME, WORKSPACE
from launcher.loop import ALARM_S, Loop
from launcher.plan import Process
from launcher.roster import ProcessRecord, ProcessState
from launcher.situation import Situation

SETTLE_S = 0.3  # failures that arrive within this time are weighed together


class JobFailed(Exception):
    """Something of the job failed; the roster holds the failures."""


class Watch:
    """The phases pservers, trainers and run.

    Args:
        key: the job's secret.
        enter: called with the name of each phase.
    """

    def __init__(self, situation: Situation, loop: Loop, key: str, enter: Callable[[str], None]) -> None:
        self._plan = situation.plan
        self._settings = situation.settings
        self._roster = situation.roster
        self._loop = loop
        self._key = key
        self._enter = enter

    def run(self) -> None:
        """Run the processes until all trainers are done.

        Raises:
            JobFailed: something of the job failed.
        """
        self._start_pservers()
        self._start_trainers()
        self._watch()

    def _start_pservers(self) -> None:
        processes = planning.pserver_processes(self._plan, self._addresses(), self._machines())
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
        processes = planning.trainer_processes(self._plan, self._addresses(), endpoints, self._machines())
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
                secret_env={
                    **self._settings.variables.revealed(node.trees[RUNTIME]),
                    "PADDLE_JOB_KEY": self._key,
                },
                cwd=job_dir,
                log=process.log,
                log_limit=self._settings.log_limit_mb << 20,
            )
        return records

    def _addresses(self) -> dict[int, str]:
        return {r.node.node_id: str((r.probed or {})["address"]) for r in self._roster.all()}

    def _machines(self) -> machines.Machines:
        return machines.read(
            self._plan.service_ports, {r.node.node_id: r.probed or {} for r in self._roster.all()}
        )
