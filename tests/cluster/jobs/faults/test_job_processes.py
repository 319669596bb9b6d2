# SPDX-License-Identifier: Apache-2.0
"""Processes, nodes and connections that fail while a job runs: the cause is told first, nothing is left."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cached
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

# A job with parameter servers starts twice as many processes: one case of each kind has them.
ALONE = "--mode=collective"
ENDS = {
    "raise": (r"exit code 1", r"ValueError: trainer 1 does not like its data"),
    "segv": (r"signal 11 \(SIGSEGV\)", r"Segmentation fault"),
    "kill": (r"signal 9 \(SIGKILL\)", r"trainer 1 is about to die"),
}


@scenarios.each(*ENDS)
def a_trainer_that_fails_ends_the_job_and_is_named(
    act: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    how, last_words = ENDS[act]
    launch = job.start("--act=hold", f"--act_of_1={act}", *([] if act == "raise" else [ALONE]))
    oracle.check(launch, 1, rf"FIRST ERROR: trainer 1 on root@node-b: {how}", last_words)
    assert last_words.split(r"\(")[0].replace("\\", "") in job.log(1, "train.log")
    assert "trainer 0 runs in" in job.log(0, "train.log")


@scenarios.add
def a_trainer_that_forks_without_end_fails_alone_and_all_its_children_go(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--act_of_1=multiply", ALONE)
    said = r"trainer 1 could fork no more: Resource temporarily unavailable"
    oracle.check(launch, 1, r"FIRST ERROR: trainer 1 on root@node-b: exit code 1", said, within_s=60)


@scenarios.add
def processes_that_a_script_leaves_in_the_background_are_reported_before_they_are_stopped(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=done", "--act_of_1=background", ALONE)
    end = oracle.check(launch, 0, r"root@node-b: .* 2 processes .* pid \d+ \(sh -c sleep 1000; echo never\)")
    assert "root@node-a: " not in end.output


@scenarios.add
def a_trainer_that_is_killed_from_outside_is_named(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    launch = job.start("--act=hold", ALONE)
    job.wait_until_holding(launch)
    os.kill(job.wait_for_role("TRAINER")["node-c"].pid, signal.SIGKILL)
    oracle.check(launch, 1, r"FIRST ERROR: trainer 2 on root@node-c: signal 9", within_s=20)


@scenarios.add
def a_trainer_that_is_done_early_lets_the_others_go_on(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--act_of_0=done", ALONE)
    job.wait_until_holding(launch, 2)
    wait_for("the end of trainer 0", lambda: len(job.processes("TRAINER")) == 2, 10)
    assert launch.poll() is None
    launch.interrupt()
    oracle.check(launch, 130)


@scenarios.add
def a_killed_pserver_that_keeps_no_state_ends_the_job_as_lost(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--state_dir=")
    job.wait_until_holding(launch)
    os.kill(job.wait_for_role("PSERVER")["node-b"].pid, signal.SIGKILL)
    oracle.check(launch, 5, r"FIRST ERROR: pserver 1 on root@node-b: signal 9", within_s=20)


@scenarios.add
def a_pserver_that_cannot_start_is_named_with_its_log(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--ports_num=1")
    job.wait_for_role("PSERVER", 1)
    for process in job.processes("PSERVER").values():
        os.kill(process.pid, signal.SIGABRT)
    oracle.check(launch, 5, r"FIRST ERROR: pserver \d on root@node-[abc]: signal 6", within_s=30)


def agents_of(cluster: Cluster, name: str, job: JobRunner) -> list[int]:
    """The agent of the job on a host and its guard: the parent of a process of the job, and that one's parent."""
    host = cluster[name]
    by_pid = {process.pid: process for process in host.processes()}
    trainer = job.processes("TRAINER")[name]
    agent = by_pid[trainer.ppid]
    return [agent.pid, agent.ppid]


@scenarios.each("agent", "guard", "guard, agent")
def a_killed_agent_takes_its_processes_along(
    killed: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    launch = job.start("--act=hold", "--act_of_1=orphan", *([] if killed == "agent" else [ALONE]))
    job.wait_until_holding(launch)
    agent, guard = agents_of(cluster, "node-b", job)
    for which in killed.split(", "):
        os.kill(agent if which == "agent" else guard, signal.SIGKILL)
    oracle.check(launch, 5, r"FIRST ERROR: node root@node-b", within_s=30)


@scenarios.each("SIGKILL", "SIGSTOP")
def watcher_guard_and_agent_that_are_hit_together_leave_nothing(
    number: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["LEASE_S"] = 12  # longer than until its silence is told
    launch = job.start("--act=hold", "--act_of_1=bare", ALONE)
    job.wait_until_holding(launch)
    agent, guard = agents_of(cluster, "node-b", job)
    watcher = next(process.ppid for process in cluster["node-b"].processes() if process.pid == guard)
    stubborn = job.job_dir(cluster["node-b"]) / "log" / "stubborn"
    wait_for("the orphan", stubborn.exists, 10)
    for pid in (watcher, guard, agent):
        os.kill(pid, signal.Signals[number])
    never = ["NOT CLEANED", "connected again"]
    oracle.check(launch, 5, r"FIRST ERROR: node root@node-b", within_s=45, never=never)


@scenarios.add
def a_node_that_loses_power_is_named(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 5
    launch = job.start("--act=hold", ALONE)
    job.wait_until_holding(launch)
    host = cluster["node-b"]
    host.cut()  # without power there is no "connection reset" either
    host.kill()
    oracle.check(launch, 5, r"FIRST ERROR: node root@node-b", within_s=45, unreachable=[host])
    assert "trainer 0 runs in" in job.log(0, "train.log")


@scenarios.add
def a_short_cut_of_the_network_is_survived(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = 20
    launch = job.start("--act=hold", ALONE)
    job.wait_until_holding(launch)
    host = cluster["node-b"]
    host.part(cluster.gate_address)
    with pytest.raises(AssertionError):
        launch.wait(3)
    host.rejoin(cluster.gate_address)
    os.kill(job.wait_for_role("TRAINER")["node-b"].pid, signal.SIGTERM)  # it is there to tell the tale
    oracle.check(launch, 1, r"FIRST ERROR: trainer 1 on root@node-b: signal 15", within_s=30)


def big_workspace(job: JobRunner, size: int) -> Path:
    path = job.workspace / "big.bin"
    path.write_bytes(os.urandom(size))
    return path


@scenarios.add
def a_connection_lost_during_dispatch_is_made_again_from_where_it_was(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    path = big_workspace(job, 3_000_000)
    host = cluster["node-b"]
    host.slow(mbit=8)
    launch = job.start("--mode=collective")
    wait_for("half of the file", lambda: cached(host) > 1_000_000, 30)
    assert list(host.path("/root").glob("JOB2*")) == []  # no half job directory is ever seen
    assert host.drop_connections() >= 1
    oracle.check(launch, 0)
    assert (job.job_dir(host) / "big.bin").read_bytes() == path.read_bytes()


@scenarios.add
def a_disk_that_fills_during_dispatch_is_told_and_left_as_it_was(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    big_workspace(job, 8_000_000)
    job.conf["ROOT_DIR"] = "/root/jobs"
    host = cluster["node-b"]
    host.small_disk("/root/jobs", "90m")
    host.slow(mbit=16)
    launch = job.start("--mode=collective")
    launch.wait_for_line("^== dispatch", 20)
    host.fill_disk("/root/jobs")
    oracle.check(launch, 4, r"node-b.*(?i:no space|full|needed)")
    left = [p for p in host.path("/root/jobs").rglob("*") if p.is_file() and p.name != "filler"]
    assert [p for p in left if "JOB" in str(p)] == []


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
