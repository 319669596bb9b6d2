# SPDX-License-Identifier: Apache-2.0
"""Fluid scripts on real hosts: one script in both roles, its ends, and failures of a trainer on the way."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

SCRIPT = Path(__file__).with_name("workspaces") / "fluid"
LISTENS = "import socket, signal; s = socket.create_server(('', 7164)); signal.pause()"


def fluid(job: JobRunner) -> None:
    """Have the job run the Fluid script, with pservers on the first two hosts."""
    shutil.rmtree(job.workspace)
    shutil.copytree(SCRIPT, job.workspace)
    job.conf_tail = "PSERVERS = [0, 1]\n"


def last_cost(job: JobRunner, rank: int) -> float:
    (cost,) = re.findall(rf"TRAINER {rank} is done, cost ([\d.]+)", job.log(rank, "train.log"))
    return float(cost)


@scenarios.add
def pservers_share_a_port_that_is_free_on_both_and_end_by_themselves(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    fluid(job)
    host = cluster["node-b"]
    squatter = host.popen([sys.executable, "-c", LISTENS])
    wait_for("the squatter", lambda: 7164 in host.listening(), 5)
    try:
        launch = job.start("--mode=fluid", "--steps=200")
        assert launch.wait(60) == 0, launch.output
    finally:
        host.end(squatter)
    oracle.check(launch, 0, r"node-b: port: 7164 is in use by")
    assert max(last_cost(job, rank) for rank in range(3)) < 0.1
    for rank in range(2):
        assert re.search(rf"PSERVER {rank} serves at [\d.]+:7165$", job.log(rank, "server.log"), re.M)


@scenarios.add
def jobs_that_start_simultaneously_have_ports_of_their_own(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    fluid(job)
    copies = [shutil.copytree(job.workspace, job.workspace.parent / f"copy_{number}") for number in range(2)]
    arguments = ("--mode=fluid", "--steps=60")
    launches = [job.start(*arguments)] + [
        job.start(f"--job_dispatch_package={copy}", *arguments, package=False) for copy in copies
    ]
    for launch in launches:
        assert launch.wait(90) == 0, launch.output
    ports = [re.findall(r"2 pservers ready at :(\d+)", launch.output) for launch in launches]
    assert len({*map(tuple, ports)}) == len(launches)
    oracle.check_clean()


@scenarios.add
def a_killed_pserver_is_started_again_with_its_state(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    fluid(job)
    launch = job.start("--mode=fluid", "--steps=150", "--pause=0.02")
    launch.wait_for_line("TRAINER 0 life 0 step 10", 40)
    os.kill(job.processes("PSERVER")["node-b"].pid, signal.SIGKILL)
    oracle.check(
        launch,
        0,
        r"pserver 1 on root@node-b: signal 9 \(SIGKILL\); restarting pserver 1 from saved state",
        never=["FIRST ERROR"],
        within_s=60,
    )
    assert max(last_cost(job, rank) for rank in range(3)) < 0.1


@scenarios.add
def a_killed_trainer_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    fluid(job)
    launch = job.start("--mode=fluid", "--steps=100000", "--die=2:30")
    oracle.check(launch, 1, r"FIRST ERROR: trainer 2 on root@node-c: signal 9")


@scenarios.each("sync", "async")
def a_killed_trainer_is_started_again(kind: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    fluid(job)
    arguments = ("--steps=120", "--die=2:30", "--max_restarts=1", f"--async={int(kind == 'async')}")
    oracle.check(job.start("--mode=fluid", *arguments), 0, r"restarting trainer 2")
    assert "TRAINER 2 life 1 step 0" in job.log(2, "train.log")
    assert max(last_cost(job, rank) for rank in range(3)) < 1


@scenarios.add
def a_trainer_that_is_left_out_is_not_waited_for(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    fluid(job)
    launch = job.start("--mode=fluid", "--steps=120", "--die=2:30", "--min_trainers=2")
    oracle.check(launch, 0, r"^WARNING: trainer 2 on root@node-c is dropped")
    assert max(last_cost(job, rank) for rank in range(2)) < 1


@scenarios.add
def a_pserver_that_ends_before_it_serves_is_told(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    fluid(job)
    launch = job.start("--mode=fluid", "--early=1")
    oracle.check(launch, 5, r"FIRST ERROR: pserver . on .*never answered as a pserver")


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
