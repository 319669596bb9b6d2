# SPDX-License-Identifier: Apache-2.0
"""Asks agents to start the plan's processes, and adds the values that are only known at run time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from paddle_cluster.files.dispatch import ENVIRONMENT, RUNTIME, WORKSPACE
from paddle_cluster.job.context import JobContext
from paddle_cluster.nodes.roster import ProcessRecord
from paddle_cluster.plan import machines
from paddle_cluster.plan import plan as planning
from paddle_cluster.plan.environment import pack_pieces, split_long
from paddle_cluster.plan.plan import Plan, Process, Role
from paddle_node.contract.classes import replace
from paddle_node.contract.names import JOB_DIR, JOB_KEY, RESTART_COUNT
from paddle_node.contract.to_launcher import Probed

HOOKS = "paddle/hooks"  # of the runtime; the first entry of PYTHONPATH


class Starter:
    """The client that sends start requests for one job's processes to the nodes' agents.

    Args:
        key: the job's secret.
    """

    def __init__(self, context: JobContext, key: str) -> None:
        self._settings = context.settings
        self._plan = context.plan
        self._roster = context.roster
        self._key = key
        self._port: int | None = None
        self._known: dict[int, set[str]] = {}  # node ID -> pieces of long values already sent to it

    def use_port(self, port: int) -> None:
        """Use this port, which the nodes have reserved, for every pserver."""
        self._port = port

    def pservers(self) -> tuple[Process, ...]:
        """Return the plan's pserver processes."""
        return planning.pserver_processes(self._plan, self._addresses(), self._machines())

    def trainers(self, plan: Plan) -> tuple[Process, ...]:
        """Return the trainer processes of a plan: this job's, or one with fewer trainers."""
        endpoints = {
            record.process.node_id: record.endpoints
            for record in self._roster.processes.values()
            if record.endpoints is not None
        }
        return planning.trainer_processes(plan, self._addresses(), endpoints, self._machines())

    def start(self, processes: Iterable[Process]) -> list[ProcessRecord]:
        """Start processes for the first time, and return their records."""
        return [self.again(process, 0) for process in processes]

    def again(self, process: Process, restarts: int) -> ProcessRecord:
        """Restart a process that was started `restarts` times before, and reset its record."""
        earlier = self._roster.processes.get(process.name)
        # a pserver restarts at the same endpoints
        record = ProcessRecord(process, restarts, None if earlier is None else earlier.endpoints)
        self._roster.processes[process.name] = record
        name = process.name.replace("-", " ", 1)
        banner = None
        if restarts:
            banner = f"---- {name} restarted (restart {restarts}) ----"
        self.send(
            process,
            {RESTART_COUNT: str(restarts)},
            heartbeat_timeout_s=self._settings.limits.heartbeat_timeout_s,
            step_timeout_s=self._settings.limits.step_timeout_s,
            banner=banner,
            patterns=self._settings.monitoring.progress if process.role is Role.TRAINER else (),
        )
        return record

    def send(self, process: Process, env: dict[str, str], **more: Any) -> None:
        """Send the `start` message of a process, with the values that are only known at run time."""
        node = self._roster.nodes[process.node_id]
        node.traces.use()
        self._roster.asked.add((process.node_id, process.name))
        job_dir, runtime = node.delivery.trees[WORKSPACE], node.delivery.trees[RUNTIME]
        python_path = f"{runtime}/{HOOKS}:{runtime}"
        if ENVIRONMENT in node.delivery.trees:
            python_path += f":{node.delivery.trees[ENVIRONMENT]}"
        variables = self._settings.variables_of(process.node_id)
        values = split_long(process.env)
        known = self._known.setdefault(process.node_id, set())
        body = pack_pieces(values, known)
        known.update(values.texts)
        node.send(
            "start",
            body=body,
            proc=process.name,
            role=process.role.value,
            rank=process.rank,
            argv=list(process.argv),
            env={**values.short, **env, JOB_DIR: job_dir, "PYTHONPATH": python_path},
            env_pieces=values.pieces,
            env_files=values.in_files,
            secret_env={**variables.revealed(python_path), JOB_KEY: self._key},
            cwd=job_dir,
            log=process.log,
            log_limit=self._settings.limits.log_limit_mb << 20,
            **more,
        )

    def _addresses(self) -> dict[int, str]:
        return {node_id: answer.address for node_id, answer in self._answers().items()}

    def _machines(self) -> machines.Machines:
        found = machines.read(self._plan.service_ports, self._plan.pserver_ports, self._answers())
        return found if self._port is None else replace(found, pserver_port=self._port)

    def _answers(self) -> dict[int, Probed]:
        return {r.node.node_id: r.reports.answer or Probed() for r in self._roster.all()}
