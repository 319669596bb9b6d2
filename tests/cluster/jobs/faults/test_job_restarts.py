# SPDX-License-Identifier: Apache-2.0
"""Processes that fail and are started again, as often as the user allows."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

CRASHES = "import no_such_module_anywhere\n"
AGAIN = """
import os, sys, time
rank, life = os.environ["RANK"], int(os.environ["PADDLE_RESTART_COUNT"])
print(f"rank {rank} of {os.environ['WORLD_SIZE']} in life {life}", flush=True)
if rank == "1" and life < 2:
    sys.exit(3)
if life < 2:
    time.sleep(1000)
"""


def script(job: JobRunner, text: str) -> None:
    """Have the job run this as its train.py."""
    (job.workspace / "train.py").write_text(text)


@scenarios.each("trainer 0, sync", "trainer 2, async")
def a_killed_trainer_is_started_again_and_ends_its_passes_with_the_others(
    case: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    _, victim, kind = case.replace(",", "").split()
    job.learn()
    how = f"--die={victim}:6:kill"
    launch = job.start("--passes=4", how, f"--async={int(kind == 'async')}", "--max_restarts=1")
    end = oracle.check(
        launch,
        0,
        rf"^trainer {victim} on root@node-[ac]: signal 9 \(SIGKILL\); restarting trainer {victim} in",
        rf"trainer {victim} life 1 is done",
        within_s=90,
        never=["FIRST ERROR"],
    )
    log = job.log(int(victim), "train.log")
    assert f"---- trainer {victim} restarted (restart 1) ----" in log
    passes = re.findall(rf"trainer {victim} life (\d): end of pass (\d)", log)
    assert passes == [("0", "0"), ("1", "1"), ("1", "2"), ("1", "3")], end.output


@scenarios.add
def restarts_come_to_an_end(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["RESTART_BACKOFF_S"] = 0.2
    job.learn()
    launch = job.start("--passes=100", "--die=1:2:exit_3", "--lives=9", "--max_restarts=2")
    oracle.check(
        launch,
        1,
        r"--max_restarts=2 was reached",
        r"FIRST ERROR: trainer 1 on root@node-b: exit code 3",
        r"  earlier: .*restart 2 of 2",
        within_s=90,
    )
    assert [each["kind"] for each in job.failure()["incidents"]] == ["restart", "restart"]


@scenarios.add
def a_pserver_that_keeps_no_state_is_never_started_again(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    launch = job.start("--passes=1000", "--max_restarts=5", "--state_dir=")
    launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
    os.kill(job.wait_for_role("PSERVER")["node-b"].pid, signal.SIGKILL)
    oracle.check(
        launch,
        5,
        r"the job ends: the state of a pserver is lost",
        r"FIRST ERROR: pserver 1 on root@node-b: signal 9",
        within_s=40,
    )


@scenarios.add
def in_collective_mode_all_ranks_start_again_together(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["RESTART_BACKOFF_S"] = 0.2
    script(job, AGAIN)
    launch = job.start("--mode=collective", "--max_restarts=2")
    oracle.check(launch, 0, r"exit code 3; restarting all 3 trainers in .*\(restart 2 of 2\)", within_s=60)
    for rank in range(3):
        assert re.findall(r"rank . of . in life \d", job.log(rank, "train.log")) == [
            f"rank {rank} of 3 in life {life}" for life in range(3)
        ]


@scenarios.add
def trainers_that_all_die_of_the_same_are_told_once(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["RESTART_BACKOFF_S"] = 0.2
    script(job, CRASHES)
    launch = job.start("--mode=collective", "--max_restarts=2")
    end = oracle.check(
        launch, 1, r"FIRST ERROR: trainer \d", r"^  and 2 more with the same last line: ", within_s=60
    )
    *report, last = end.output[end.output.index("FIRST ERROR") :].splitlines()
    assert "\n".join(report).count("ModuleNotFoundError") == 1
    assert "ModuleNotFoundError" in last
    assert (
        job.failure()["first_cause"]["error"]
        == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    )
    assert len(job.failure()["same"]) == 2


@scenarios.add
def ctrl_c_while_a_restart_waits_for_its_time_ends_the_job(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["RESTART_BACKOFF_S"] = 25
    script(job, AGAIN)
    launch = job.start("--mode=collective", "--max_restarts=2")
    launch.wait_for_line("restarting all", 40)
    launch.interrupt()
    oracle.check(launch, 130, within_s=20)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
