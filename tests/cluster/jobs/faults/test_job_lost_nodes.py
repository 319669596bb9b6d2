# SPDX-License-Identifier: Apache-2.0
"""Nodes that are lost for good: the job continues without their trainers while enough remain."""

from __future__ import annotations

import os
import re
import signal

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

HOLD_UNTIL_FEWER = """
import os, time
print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "in life", os.environ["PADDLE_RESTART_COUNT"],
      "holding", flush=True)
if os.environ["WORLD_SIZE"] == "3":
    time.sleep(1000)
"""


def learn(job: JobRunner) -> None:
    """Have the job learn something, with one parameter server, on node-a."""
    job.learn()
    job.conf_tail = "PSERVERS = [0]\nTRAINERS = [0, 1, 2]\n"


def lose(cluster: Cluster, name: str) -> None:
    """A host without power: there is no "connection reset" either."""
    cluster[name].cut()
    cluster[name].kill()


@scenarios.each("sync", "async")
def parameter_servers_no_longer_wait_for_a_trainer_whose_node_is_lost(
    kind: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["LEASE_S"] = 5
    learn(job)
    # the asynchronous ones go on meanwhile, and must not be done before the lease is
    passes = {"sync": 12, "async": 45}[kind]
    launch = job.start(f"--passes={passes}", f"--async={int(kind == 'async')}", "--min_trainers=2")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    lose(cluster, "node-c")
    oracle.check(
        launch,
        0,
        r"^trainer 2 on root@node-c is dropped: .*; the job continues with 2 trainers",
        r"^WARNING: trainer 2 on root@node-c is dropped",
        r"trainer 0 life 0 is done",
        r"trainer 1 life 0 is done",
        within_s=120,
        unreachable=[cluster["node-c"]],
    )


@scenarios.add
def fewer_than_the_least_number_of_trainers_end_the_job_as_lost(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["LEASE_S"] = 5
    learn(job)
    launch = job.start("--passes=1000", "--min_trainers=3")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    lose(cluster, "node-c")
    oracle.check(
        launch,
        5,
        r"the job ends: 2 trainers would remain, fewer than --min_trainers=3",
        r"FIRST ERROR: node root@node-c",
        within_s=60,
        unreachable=[cluster["node-c"]],
    )


@scenarios.add
def a_node_with_a_pserver_cannot_be_left_out(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 5
    launch = job.start("--act=hold", "--min_trainers=1")
    job.wait_until_holding(launch)
    lose(cluster, "node-c")
    oracle.check(launch, 5, r"the job ends: .*pserver", within_s=60, unreachable=[cluster["node-c"]])


@scenarios.add
def in_collective_mode_those_that_have_finished_do_not_start_again(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(LEASE_S=5, RESTART_BACKOFF_S=0.2)
    (job.workspace / "train.py").write_text(
        "import os, signal\nprint('starts', flush=True)\n"
        "if os.environ['RANK'] == '1':\n    print('holds', flush=True)\n    signal.pause()\n"
    )
    launch = job.start("--mode=collective", "--min_trainers=2")
    launch.wait_for_line("holds", 30)
    wait_for("the other trainers have finished", lambda: len(job.processes("TRAINER")) == 1, 30)
    lose(cluster, "node-b")
    oracle.check(
        launch,
        0,
        r"^WARNING: trainer 1 on root@node-b is dropped",
        never=["restarting"],
        within_s=90,
        unreachable=[cluster["node-b"]],
    )
    assert [job.log(rank, "train.log").count("starts") for rank in (0, 2)] == [1, 1]


@scenarios.add
def in_collective_mode_those_that_remain_start_again_with_new_ranks(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(LEASE_S=5, RESTART_BACKOFF_S=0.2)
    (job.workspace / "train.py").write_text(HOLD_UNTIL_FEWER)
    launch = job.start("--mode=collective", "--min_trainers=2")
    job.wait_for_role("TRAINER")
    launch.wait_for_line("rank 2 of 3", 30)
    lose(cluster, "node-b")
    oracle.check(
        launch,
        0,
        r"^trainer 1 on root@node-b is dropped",
        r"^WARNING: trainer 1 on root@node-b",
        within_s=90,
        unreachable=[cluster["node-b"]],
    )
    assert re.findall("rank . of . in life .", job.log(2, "train.log")) == [
        "rank 2 of 3 in life 0",
        "rank 1 of 2 in life 1",
    ]


@scenarios.add
def a_trainer_that_cannot_be_saved_is_left_out_and_named(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    learn(job)
    launch = job.start("--passes=4", "--min_trainers=2", "--die=1:5:exit_3")
    oracle.check(launch, 0, r"^WARNING: trainer 1 on root@node-b is dropped: exit code 3", within_s=90)


@scenarios.add
def a_killed_agent_under_the_policy_is_a_lost_node(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    learn(job)
    launch = job.start("--passes=12", "--min_trainers=2")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    os.kill(job.wait_for_role("TRAINER")["node-b"].ppid, signal.SIGKILL)
    oracle.check(launch, 0, r"^WARNING: trainer 1 on root@node-b is dropped: lost", within_s=90)


@scenarios.add
def a_lost_jump_host_is_named_as_the_reason_why_the_nodes_behind_it_are(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(LEASE_S=8, HOSTS=["root@node-b", "root@node-c"], SSH_JUMP="root@node-a")
    launch = job.start("--act=hold")
    job.wait_until_holding(launch, 2)
    lose(cluster, "node-a")
    oracle.check(
        launch,
        5,
        r"^FIRST ERROR: node root@node-[bc]: no message for 8 s; cannot reconnect: jump host root@\S+: no answer from",
        *(f"^NOT CLEANED: root@node-{letter}: jump host " for letter in "bc"),
        within_s=60,
        unreachable=cluster.hosts,  # their sshd still waits for the jump host
    )
    job_id = launch.wait_for_line(r"^(JOB2[^:]+):", 1)[1]
    wait_for("the nodes to clean themselves", lambda: not cluster.job_processes(job_id), 20)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
