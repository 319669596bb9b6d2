# SPDX-License-Identifier: Apache-2.0
"""Processes that live and do not get on: found within seconds, told as the cause, with everybody's stacks."""

from __future__ import annotations

import os
import re
import signal
import time

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

TOLD_S = 10.0
PATH_TOLD_S = 15.0  # some 10 s, on a machine that has nothing else to do


@scenarios.add
def a_frozen_trainer_is_told_within_seconds_and_ends_the_job_after_its_lease(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    launch = job.start("--passes=1000")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    os.kill(job.wait_for_role("TRAINER")["node-c"].pid, signal.SIGSTOP)
    launch.wait_for_line(r"^trainer 2 on root@node-c is frozen: stopped by a signal \(state T\)", TOLD_S)
    oracle.check(
        launch, 1, r"FIRST ERROR: trainer 2 on root@node-c: frozen: stopped by a signal", within_s=40
    )
    found = job.failure()
    assert found["first_cause"]["kind"] == "frozen"
    assert found["first_cause"]["process"] == "trainer-2"
    # the others wait for it, in the middle of a step or where a pass begins or ends
    assert re.search("push_pull|start_pass|finish_pass", found["stacks"]["trainer-0"]), found["stacks"][
        "trainer-0"
    ]


@scenarios.add
def a_frozen_pserver_is_named_and_another_goes_on_in_its_place(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    launch = job.start("--passes=100000")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    os.kill(job.wait_for_role("PSERVER")["node-b"].pid, signal.SIGSTOP)
    launch.wait_for_line(r"^pserver 1 on root@node-b is frozen", TOLD_S)
    launch.wait_for_line(r"restart 1 of 3", 40)
    before = len(re.findall("trainer 2 life 0: end of pass", launch.output))
    launch.wait_for_line(rf"trainer 2 life 0: end of pass {before + 5}\b", 40)
    launch.interrupt()
    oracle.check(launch, 130)


@scenarios.add
def a_process_that_goes_on_again_is_forgiven(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 20
    job.learn()
    launch = job.start("--passes=3", "--batches=40")
    launch.wait_for_line("trainer 1 life 0: end of pass 0", 40)
    pid = job.wait_for_role("TRAINER")["node-b"].pid
    os.kill(pid, signal.SIGSTOP)
    launch.wait_for_line("^trainer 1 on root@node-b is frozen", TOLD_S)
    os.kill(pid, signal.SIGCONT)
    launch.wait_for_line("^trainer 1 on root@node-b continues", TOLD_S)
    oracle.check(launch, 0, within_s=60)


@scenarios.each("0", "2")
def a_trainer_that_waits_for_itself_is_the_cause_whoever_was_told_first(
    rank: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["STEP_TIMEOUT_S"] = 4
    job.learn()
    launch = job.start("--passes=1000", f"--die={rank}:6:hang")
    oracle.check(launch, 1, rf"FIRST ERROR: trainer {rank} on root@node-[abc]: hung: ", within_s=60)
    found = job.failure()
    assert {echo["why"] for echo in found["echoes"]} <= {"it waits for its peers"}
    stacks = {name: text for name, text in found["stacks"].items() if name.startswith("trainer")}
    assert len(stacks) == 3
    assert "wait_for_the_other_lock" in stacks.pop(f"trainer-{rank}")
    assert all("push_pull" in text for text in stacks.values())
    assert "wait_for_the_other_lock" in job.log(int(rank), "train.log")


@scenarios.add
def a_broken_path_between_two_nodes_is_named_within_seconds_and_so_is_its_end(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    launch = job.start("--passes=60")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    host, other = cluster["node-c"], cluster["node-a"]
    host.part(other.address)
    launch.wait_for_line("^root@node-c cannot reach root@node-a at .*: no answer within 2 s", PATH_TOLD_S)
    host.rejoin(other.address)
    launch.wait_for_line("^root@node-c reaches root@node-a again", 3 * PATH_TOLD_S)
    oracle.check(launch, 0, never=["cannot reach root@node-b"], within_s=120)


@scenarios.add
def a_broken_path_is_the_cause_of_a_job_that_hangs_because_of_it(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["STEP_TIMEOUT_S"] = 14
    job.learn()
    launch = job.start("--passes=1000")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    cluster["node-c"].part(cluster["node-a"].address)
    oracle.check(launch, 5, "^FIRST ERROR: node root@node-.: it cannot reach root@node-. at .*", within_s=90)
    assert {echo["why"] for echo in job.failure()["echoes"]} <= {"it waits for its peers"}
    cluster["node-c"].rejoin(cluster["node-a"].address)


@scenarios.add
def a_hung_trainer_is_killed_and_started_again(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["STEP_TIMEOUT_S"] = 4
    job.learn()
    launch = job.start("--passes=4", "--die=1:6:hang", "--max_restarts=3")
    oracle.check(launch, 0, r"trainer 1 life [1-3] is done", within_s=120)


@scenarios.add
def a_stopped_process_of_a_script_that_is_not_ours_is_found(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--mode=collective")
    job.wait_until_holding(launch)
    os.kill(job.wait_for_role("TRAINER")["node-a"].pid, signal.SIGSTOP)
    told = time.monotonic()
    launch.wait_for_line("^trainer 0 on root@node-a is frozen", TOLD_S)
    assert time.monotonic() - told < TOLD_S
    oracle.check(launch, 1, r"FIRST ERROR: trainer 0 on root@node-a: frozen", within_s=40)
    assert "in hold" in job.failure()["stacks"]["trainer-1"]


@scenarios.add
def nodes_are_not_blamed_for_a_launcher_that_did_not_run(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--mode=collective", "--act=hold")
    job.wait_until_holding(launch)
    launch.send(signal.SIGSTOP)  # as Ctrl+Z does
    wait_for("nodes to stop the job", lambda: not job.processes("TRAINER"), 20)
    launch.send(signal.SIGCONT)
    oracle.check(
        launch,
        5,
        r"^FIRST ERROR: node root@node-.: no message from the launcher for 6 s",
        never=[r"no message for"],
        within_s=30,
    )


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
