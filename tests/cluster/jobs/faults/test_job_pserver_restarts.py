# SPDX-License-Identifier: Apache-2.0
"""Parameter servers that are killed are started again with their state; trainers notice a pause and nothing else."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
from functools import partial

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, learnt, learnt_over_ssh
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

SHORT = ("--passes=4", "--batches=10", "--pause=0.02")
# No job is over before its kill: trainers wait before their last batches until the test lets them go on.
GO_ON = "/root/go_on"
HELD = (*SHORT, f"--wait=38:{GO_ON}")


def another_than(job: JobRunner, pid: int) -> bool:
    """Whether another process than `pid` serves on node-b."""
    now = job.processes("PSERVER").get("node-b")
    return now is not None and now.pid != pid


def prepare(job: JobRunner) -> None:
    job.learn()
    job.conf["RESTART_BACKOFF_S"] = 0.2


def kill(job: JobRunner, *hosts: str) -> None:
    """Kills pservers as they are found; one that is just being started again counts as killed."""
    found = job.processes("PSERVER")
    for host in hosts:
        if host in found:
            os.kill(found[host].pid, signal.SIGKILL)


def let_go_on(cluster: Cluster) -> None:
    for host in cluster.hosts:
        host.path(GO_ON).touch()


def hold(cluster: Cluster) -> None:
    for host in cluster.hosts:
        host.path(GO_ON).unlink(missing_ok=True)


def values(parameters: list[str]) -> set[str]:
    """The different values that the three trainers ended with."""
    assert len(parameters) == 3, parameters
    return {line.partition(" parameters ")[2] for line in parameters}


def state_left(cluster: Cluster) -> str:
    """What lies in the memory of the hosts, which have a /dev/shm each."""
    return "".join(host.run(["ls", "/dev/shm"]).stdout for host in cluster.hosts)


@scenarios.add
def a_synchronous_job_ends_with_the_same_bits_when_pservers_are_killed(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    expected, _ = learnt_over_ssh(job, oracle, *SHORT)
    prepare(job)
    assert len(values(expected)) == 1
    rng = random.Random(5)
    for _ in range(2):
        hold(cluster)
        launch = job.start(*HELD)
        launch.wait_for_line(f"end of pass {rng.randrange(3)}", 40)
        assert "paddle-JOB" in state_left(cluster)
        kill(job, rng.choice(["node-a", "node-b", "node-c"]))
        let_go_on(cluster)
        oracle.check(
            launch,
            0,
            r"pserver \d on root@node-[abc]: signal 9 \(SIGKILL\); restarting pserver \d from saved state",
            never=["FIRST ERROR"],
            within_s=60,
        )
        assert learnt(launch.output) == expected
    wait_for("no state left in memory", lambda: not state_left(cluster), 5)


@scenarios.add
def all_pservers_killed_at_once_come_back(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    prepare(job)
    hold(cluster)
    launch = job.start(*HELD, "--async=1")
    launch.wait_for_line("end of pass 0", 40)
    kill(job, "node-a", "node-b", "node-c")
    let_go_on(cluster)
    oracle.check(launch, 0, r"restart 1 of 3", never=["FIRST ERROR"], within_s=60)
    assert len(values(learnt(launch.output))) == 1


@scenarios.add
def a_pserver_that_dies_again_and_again_ends_the_job(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    prepare(job)
    launch = job.start("--passes=1000", "--checkpoint_dir=/root/checkpoints")
    launch.wait_for_line("end of pass 0", 40)
    for number in range(1, 5):
        found = job.wait_for_role("PSERVER")
        os.kill(found["node-b"].pid, signal.SIGKILL)
        if number < 4:
            launch.wait_for_line(f"restart {number} of 3", 20)
            wait_for("another process", partial(another_than, job, found["node-b"].pid), 20)
    oracle.check(
        launch,
        5,
        r"the job ends: a pserver has used up its restarts",
        r"FIRST ERROR: pserver 1 on root@node-b: signal 9",
        r"run the same command again, with --resume=latest",
        within_s=40,
    )
    wait_for("no state left in memory", lambda: not state_left(cluster), 5)


@scenarios.add
def a_lost_job_goes_on_from_its_last_checkpoint_and_ends_with_the_same_bits(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    expected, _ = learnt_over_ssh(job, oracle, *SHORT)
    prepare(job)
    kept = ("--checkpoint_dir=/root/checkpoints", "--checkpoint_period=7", "--checkpoint_keep=10")
    hold(cluster)
    launch = job.start(*HELD, *kept, "--state_dir=")
    wait_for(
        "the checkpoint of batch 21 on every node",
        lambda: all(list(host.path("/root/checkpoints").glob("v*21.*/part-*")) for host in cluster.hosts),
        40,
    )
    kill(job, "node-a", "node-b", "node-c")
    oracle.check(launch, 5, r"run the same command again, with --resume=latest", within_s=40)
    # every node has its own folder; this one came no further than batch 14
    for later in cluster.hosts[2].path("/root/checkpoints").glob("v*"):
        if int(later.name[1:13]) > 14:
            shutil.rmtree(later)
    listing = job.start(kept[0], "--json", package=False, command="checkpoints")
    assert listing.wait(40) == 0, listing.output
    told = json.loads(listing.output)["checkpoints"]
    whole = {one["batch"] for one in told if one["whole"]}
    assert (max(whole), {one["batch"]: one["nodes_without"] for one in told}[21]) == (14, [2])
    launch = job.start(*SHORT, *kept, "--resume=latest")
    oracle.check(
        launch,
        0,
        r"batch \d+ is not on root@node-c.*: the job continues from batch 14, the newest one complete on all nodes",
        never=["FIRST ERROR", r"end of pass 0"],
        within_s=60,
    )
    assert learnt(launch.output) == expected


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
