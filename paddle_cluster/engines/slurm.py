# SPDX-License-Identifier: Apache-2.0
"""The engine of Slurm: srun starts one task per node of an allocation. A table entry."""

from __future__ import annotations

import contextlib
import queue
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import slurm_allocation, slurm_batch
from paddle_cluster.engines.addresses import sampled
from paddle_cluster.engines.porter_engine import PorterEngine
from paddle_cluster.engines.porters import Porters
from paddle_cluster.engines.slurm_allocation import asked
from paddle_cluster.engines.tool_process import Tool, ToolProcess, check_hosts
from paddle_cluster.errors import UsageError
from paddle_cluster.plan.plan import Plan

_NODE_ADDR = re.compile(r"\bNodeAddr=(\S+)")


class SlurmEngine(PorterEngine):
    """Starts srun in the allocation of this process, or in one of its own."""

    @classmethod
    def allocation(
        cls, settings: Settings, report: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[Mapping[str, str]]:
        """Outside an allocation: salloc."""
        if not settings.engines.waits_for_nodes:
            return contextlib.nullcontext({})
        timeout_s = settings.engines.slurm_queue_timeout_s
        return slurm_allocation.allocated(slurm_allocation.salloc(settings), timeout_s, report)

    @classmethod
    def submitted(cls, own: Sequence[str], argv: Sequence[str], settings: Settings) -> str:
        """Outside an allocation: sbatch."""
        if not settings.engines.waits_for_nodes:
            return ""
        return slurm_batch.submit(slurm_batch.batch(own, argv, settings))

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """With the command that requests the nodes."""
        if not plan.settings.engines.waits_for_nodes:
            return text
        return f"{text}\nSlurm is asked for the nodes: {shlex.join(slurm_allocation.salloc(plan.settings))}\n"

    @classmethod
    def time_limit(
        cls, settings: Settings, events: queue.SimpleQueue[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """That of the allocation."""
        return slurm_allocation.stopped_in_time(settings.engines.slurm_job, events)

    def porters(self) -> Porters:
        """One srun."""
        settings = self._plan.settings
        if settings.engines.waits_for_nodes:
            raise UsageError(
                "this needs an allocation of Slurm, and here is none (SLURM_JOB_NODELIST is not set); begin with "
                f"`salloc --nodes={len(self._names)}`"
            )
        check_hosts("slurm", settings.cluster.hosts)
        return ToolProcess(replace(srun(self._names), routes=node_addresses(self._names)), self._names)


ENGINE = SlurmEngine


def srun(hosts: Sequence[str]) -> Tool:
    """Slurm inside an allocation; takes no CPU from other steps."""
    count = str(len(hosts))
    argv = (
        *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--distribution=block"),
        *(f"--nodelist={','.join(hosts)}", "--overlap", "--cpu-bind=none", "--mem=0", "--mpi=none"),
        *("--unbuffered", "--kill-on-bad-exit=0", "--no-kill", "--quit-on-interrupt", "--job-name=paddle"),
    )
    return Tool("srun", argv, ("SLURM_PROCID",))


def node_addresses(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return Slurm's NodeAddr of some nodes, because node names need not resolve."""
    told = asked("scontrol", "--oneliner", "show", "node", ",".join(sampled(hosts)))
    return tuple(_NODE_ADDR.findall(told))
