# SPDX-License-Identifier: Apache-2.0
"""The engine for Slurm: srun starts one callback agent per node of an allocation, which salloc or sbatch obtains.

A job of --detach is submitted with sbatch, and requeued after a preemption or at its time limit; its launcher then runs
on the job's first node, inside the allocation.
"""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paddle_cluster.config.settings import Settings
from paddle_cluster.engines import slurm_allocation
from paddle_cluster.engines.callback_agents import CallbackAgents, sampled
from paddle_cluster.engines.callback_engine import CallbackEngine
from paddle_cluster.engines.slurm_allocation import asked, why_never
from paddle_cluster.engines.tool_process import Tool, ToolProcess, check_hosts
from paddle_cluster.errors import PreflightError, UsageError
from paddle_cluster.plan.plan import Plan
from paddle_cluster.text.wrapping import visible
from paddle_node.contract.classes import NamedTuple, regex, replace

_NODE_ADDR = regex(r"\bNodeAddr=(\S+)")
SUBMIT_S = 60.0
WARNING_S = 120  # before the time limit; Slurm's clock can make it 60 s more
OUTPUT = "paddle-%j.out"

# The shell waits in a loop: `wait` returns for each signal. A job that Slurm warned and that can resume is requeued,
# except right after its start: a time limit hardly longer than the warning would requeue it forever.
_SCRIPT = """\
#!/bin/sh
begun=$(date +%s)
{command} &
launcher=$!
warned=
trap 'warned=1; kill -TERM $launcher' USR1
trap 'kill -TERM $launcher' TERM INT
while wait $launcher; code=$?; kill -0 $launcher 2>/dev/null; do :; done
if [ -n "$warned" ] && [ $code -eq 143 ] && [ -n '{again}' ]; then
    ran=$(($(date +%s) - begun))
    left=$(squeue -h -j "$SLURM_JOB_ID" -o %L)
    case ${{SLURM_RESTART_COUNT:-0}},$ran,$left in
    [1-9]*,[0-9],[0-3]:* | [1-9]*,[1-5][0-9],[0-3]:*)
        echo "paddle: Slurm ends this job after $ran s. The job is not requeued, because its time limit is too short"
        echo "paddle: to make progress; ask for 5 minutes or more, with --time in SLURM_OPTIONS"
        ;;
    *)
        echo "paddle: Slurm ends this job; requeueing it to continue from its checkpoint"
        scontrol requeue "$SLURM_JOB_ID"
        ;;
    esac
fi
exit $code
"""


class SlurmEngine(CallbackEngine):
    """The engine that starts callback agents with srun, in this process's allocation or in one that it requests."""

    @classmethod
    def allocation(
        cls, settings: Settings, report: Callable[[str], None]
    ) -> contextlib.AbstractContextManager[Mapping[str, str]]:
        """Return a context that requests nodes with salloc, unless this process is inside an allocation."""
        if not settings.engines.waits_for_nodes:
            return contextlib.nullcontext({})
        timeout_s = settings.engines.slurm_queue_timeout_s
        return slurm_allocation.allocated(slurm_allocation.salloc(settings), timeout_s, report)

    @classmethod
    def submitted(cls, own: Sequence[str], argv: Sequence[str], settings: Settings) -> str:
        """Submit the job with sbatch, unless this process is inside an allocation; return its location, or ""."""
        if not settings.engines.waits_for_nodes:
            return ""
        return submit(batch(own, argv, settings))

    @classmethod
    def described(cls, text: str, plan: Plan) -> str:
        """Return the plan's text with the command that requests the nodes."""
        if not plan.settings.engines.waits_for_nodes:
            return text
        return (
            f"{text}\n"
            "The nodes come from a Slurm allocation: "
            f"{shlex.join(slurm_allocation.salloc(plan.settings))}\n"
        )

    @classmethod
    def time_limit(
        cls, settings: Settings, events: queue.SimpleQueue[Any]
    ) -> contextlib.AbstractContextManager[None]:
        """Return a context that stops the job before the allocation's time limit ends it."""
        return slurm_allocation.stopped_in_time(settings.engines.slurm_job, events)

    def callback_agents(self) -> CallbackAgents:
        """Return the starter that runs srun in this allocation. Raises UsageError if there is no allocation."""
        settings = self._plan.settings
        if settings.engines.waits_for_nodes:
            raise UsageError(
                "this is not a Slurm allocation (SLURM_JOB_NODELIST is not set); start one with "
                f"`salloc --nodes={len(self._names)}`"
            )
        check_hosts("slurm", settings.cluster.hosts)
        return ToolProcess(replace(srun(self._names), routes=node_addresses(self._names)), self._names)


ENGINE = SlurmEngine


def srun(hosts: Sequence[str]) -> Tool:
    """Return the srun command for use inside an allocation; its step shares the CPUs with other steps."""
    count = str(len(hosts))
    argv = (
        *("srun", f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", "--distribution=block"),
        *(f"--nodelist={','.join(hosts)}", "--overlap", "--cpu-bind=none", "--mem=0", "--mpi=none"),
        *("--unbuffered", "--kill-on-bad-exit=0", "--no-kill", "--quit-on-interrupt", "--job-name=paddle"),
        "--export=ALL",  # the invitation must reach the nodes: `sbatch --export=NONE` also applies to srun
    )
    return Tool("srun", argv, ("SLURM_PROCID",))


def node_addresses(hosts: Sequence[str]) -> tuple[str, ...]:
    """Return Slurm's NodeAddr of some nodes, because node names may not resolve."""
    answer = asked("scontrol", "--oneliner", "show", "node", ",".join(sampled(hosts)))
    return tuple(_NODE_ADDR.findall(answer))


class Batch(NamedTuple):
    """The script for sbatch, and the variables that must not appear in it.

    Attributes:
        env: variables that sbatch's environment needs in addition to this process's; secret.
    """

    argv: tuple[str, ...]
    script: str
    env: Mapping[str, str]


def batch(own: Sequence[str], argv: Sequence[str], settings: Settings) -> Batch:
    """Build the sbatch script that runs a job's launcher.

    Args:
        own: the command that runs this program.
        argv: the job's command line.
    """
    words, env = without_values(argv)
    words.remove("--detach")
    flags = dict(settings.job.flags)
    has_checkpoints = settings.job.mode.has_pserver_command and "checkpoint_dir" in flags
    if has_checkpoints and "resume" not in flags:
        words.insert(0, "--resume=auto")
    can_go_on = has_checkpoints or "--requeue" in settings.engines.slurm_options
    again = ("--requeue", f"--signal=B:USR1@{WARNING_S}") if can_go_on else ()
    return Batch(
        argv=(
            *("sbatch", f"--nodes={len(settings.cluster.hosts)}", "--job-name=paddle", "--export=ALL"),
            *("--parsable", f"--output={OUTPUT}", "--open-mode=append", *again),
            *settings.engines.slurm_options,
        ),
        script=_SCRIPT.format(command=shlex.join([*own, *words]), again="yes" if can_go_on else ""),
        env=env,
    )


def without_values(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Replace `--env=NAME=VALUE` with `--env=NAME`, because Slurm shows scripts; return the values separately."""
    words: list[str] = []
    env: dict[str, str] = {}
    ours = True
    for word in argv:
        ours = ours and word != "--"
        pair = word.removeprefix("--env=") if word.startswith("--env=") else ""
        if words[-1:] == ["--env"]:
            pair = word
        name, equals, value = pair.partition("=")
        if ours and equals:
            env[name] = value
            words.append(word.removesuffix(f"={value}"))
        else:
            words.append(word)
    return words, env


def submit(made: Batch) -> str:
    """Submit a job to Slurm with sbatch.

    Returns:
        Its location, for the user.

    Raises:
        PreflightError: Slurm refuses; the message contains the reason.
        UsageError: sbatch is not installed.
    """
    try:
        done = subprocess.run(
            made.argv,
            input=made.script,
            env={**os.environ, **made.env},
            capture_output=True,
            text=True,
            timeout=SUBMIT_S,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise UsageError(
            f"cannot run sbatch: {error}; run --engine=slurm on a machine that can submit jobs to Slurm"
        ) from error
    job = done.stdout.strip().partition(";")[0]
    if done.returncode or not re.fullmatch("[0-9]+", job):
        words = visible(" | ".join((done.stderr or done.stdout).splitlines()))
        raise PreflightError(f"Slurm refused the job: {words}")
    never = why_never(job)
    if never:
        asked("scancel", job)
        raise PreflightError(f"Slurm can never start this job: {never}")
    state = asked("squeue", "-h", "-j", job, "-o", "%T: %r")
    output = OUTPUT.replace("%j", job)
    return (
        f"submitted to Slurm as job {job}" + (f" ({visible(state)})" if state else "") + "\n"
        f"  follow it:  squeue -j {job}, tail -F {output}\n"
        f"  stop it:    scancel {job}"
    )
