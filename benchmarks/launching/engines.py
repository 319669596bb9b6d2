# SPDX-License-Identifier: Apache-2.0
"""Measures the time that `--engine=openmpi` and `--engine=slurm` add to mpirun and srun, compared with SSH."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.launching.our_jobs import OurJobs, times_of
from benchmarks.launching.rivals import Rivals, lacking
from benchmarks.launching.run import Run
from benchmarks.launching.start import timed
from benchmarks.timing import Contender, Samples, interleave
from tests.cluster.hosts import Cluster
from tests.cluster.slurm import missing_slurm, slurm

LIMIT_S = 300.0


@dataclass(frozen=True)
class _Side:
    """A tool that starts agents, and the same tool starting `true`."""

    env: Mapping[str, str]
    tool: tuple[str, ...]


def measure(run: Run, count: int) -> None:
    """Measure whole jobs of `true` on `count` hosts with each engine, and the start of agents and of its tool
    alone."""
    with Cluster(count) as cluster:
        jobs = OurJobs(cluster, run.scratch)
        for name, opened in (("openmpi", _openmpi), ("slurm", _slurm)):
            why = lacking("mpirun") if name == "openmpi" else missing_slurm()
            if why:
                run.report.lack(f"engine_{name}_{count}", why)
                continue
            with opened(cluster) as side:
                _compare(run, cluster, jobs, name, side)


def _compare(run: Run, cluster: Cluster, jobs: OurJobs, name: str, side: _Side) -> None:
    workspace = run.workspace("engines")
    label = f"{name}_{len(cluster.hosts)}"
    connects: dict[str, list[float]] = {"engine": [], "ssh": []}

    def job(kind: str, *options: str, env: Mapping[str, str]) -> Callable[[int], float]:
        def turn(_: int) -> float:
            launch = jobs.start(workspace, *options, env=env)
            launch.wait(LIMIT_S)
            connects[kind].append(times_of(launch)["connect"])
            return launch.age_s

        return turn

    found, failed = interleave(
        [
            Contender(f"job_{label}_engine", job("engine", f"--engine={name}", env=side.env)),
            Contender(f"job_{label}_ssh", job("ssh", env={})),
            Contender(f"start_{label}_tool", lambda _: timed(cluster, side.tool)),
        ],
        run.long_turns,
        warm_up=True,
    )
    for kind, seconds in connects.items():
        if f"job_{label}_{kind}" in found:
            found[f"start_{label}_{kind}"] = Samples(tuple(seconds[1:] or seconds))
    run.report.add_all(
        found,
        failed,
        "s",
        {
            f"job_{label}_engine": "the whole command: a script that prints one line on every host",
            f"start_{label}_engine": "from the tool's start to the hello of every agent",
            f"start_{label}_ssh": "the same by logins over SSH",
            f"start_{label}_tool": "`true` on every host by the tool alone",
        },
    )
    run.report.compare(f"start_{label}_vs_tool", f"start_{label}_engine", f"start_{label}_tool")
    run.report.compare(f"start_{label}_vs_ssh", f"start_{label}_engine", f"start_{label}_ssh")
    run.report.compare(f"job_{label}_vs_ssh", f"job_{label}_engine", f"job_{label}_ssh")


@contextlib.contextmanager
def _openmpi(cluster: Cluster) -> Iterator[_Side]:
    agent = f"ssh -F {cluster.ssh_config} -o BatchMode=yes"
    yield _Side({"OMPI_MCA_plm_rsh_agent": agent}, tuple(Rivals(cluster).mpirun(["true"])))


@contextlib.contextmanager
def _slurm(cluster: Cluster) -> Iterator[_Side]:
    with slurm(cluster) as running:
        running.allocate()
        words = [f"{name}={value}" for name, value in running.env.items()]
        count = str(len(cluster.hosts))
        yield _Side(
            running.env,
            (
                "env",
                *words,
                "srun",
                "--export=ALL",
                f"--nodes={count}",
                f"--ntasks={count}",
                "--overlap",
                "true",
            ),
        )
