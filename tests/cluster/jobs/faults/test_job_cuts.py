# SPDX-License-Identifier: Apache-2.0
"""Cuts between the launcher and a node: one shorter than the lease changes nothing, whatever the job was doing."""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cached
from tests.cluster.jobs.oracle import End, Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.launch import Launch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

LEASE_S = 12.0
RESUMED = r"^root@node-b: the connection was lost.*; the job continues over a new connection$"
COUNT = """
import os, random, sys, time
print("begun", flush=True)
for number in range(500):
    os.write(1, b"line %d\\n" % number)  # whole: the screen shows the beginning of a line that stops for long
    time.sleep(0.03)
if os.environ["PADDLE_NODE_ID"] == "0":
    with open("output/model", "wb") as file:
        file.write(random.Random(7).randbytes(5_120_000))
with open("log/late.txt", "wb") as file:
    file.write(random.Random(7).randbytes(5_120_000))
"""


def cut(host: Host, seconds: float) -> None:
    """Packets vanish for a while: nobody is told."""
    host.blackhole()
    began = time.monotonic()
    wait_for("the end of a cut", lambda: time.monotonic() - began >= seconds, seconds + 5)
    host.heal()


def kill_its_session(host: Host, seconds: float) -> None:
    assert host.drop_connections() >= 1


def in_dispatch(cluster: Cluster, job: JobRunner) -> Launch:
    (job.workspace / "big.bin").write_bytes(os.urandom(6_000_000))
    host = cluster["node-b"]
    host.slow(mbit=16)
    launch = job.start("--mode=collective")
    wait_for("a part of the file", lambda: cached(host) > 1_000_000, 30)
    return launch


def at_the_start(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--mode=collective")
    launch.wait_for_line("^== trainers", 30)
    return launch


def in_the_run(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--mode=collective")
    launch.wait_for_line("node-b.*line 100$", 40)
    return launch


def in_collect(cluster: Cluster, job: JobRunner) -> Launch:
    launch = job.start("--mode=collective")
    launch.wait_for_line("line 499$", 60)
    cluster["node-b"].slow(mbit=8)
    launch.wait_for_line("^== collect", 60)
    return launch


PHASES: dict[str, Callable[[Cluster, JobRunner], Launch]] = {
    "dispatch": in_dispatch,
    "start": at_the_start,
    "run": in_the_run,
    "collect": in_collect,
}
CUTS: dict[str, tuple[Callable[[Host, float], None], float]] = {
    "cut of 6 s": (cut, 6.0),
    "cut of 11 s": (cut, 11.0),
    "killed session": (kill_its_session, 0.0),
}


# By the end of 6 s after the start, the job runs.
CASES = [
    f"{phase}: {fault}" for phase in PHASES for fault in CUTS if (phase, fault) != ("start", "cut of 6 s")
]


@scenarios.each(*CASES)
def one_shorter_than_the_lease_changes_nothing(
    case: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    phase, _, fault = case.partition(": ")
    job.conf["LEASE_S"] = LEASE_S
    (job.workspace / "train.py").write_text(COUNT)
    launch = PHASES[phase](cluster, job)
    act, seconds = CUTS[fault]
    act(cluster["node-b"], seconds)
    told = [RESUMED] if act is kill_its_session else []  # TCP alone may bridge the others
    end = oracle.check(launch, 0, *told, within_s=90, never=["reconnecting"])
    all_came_once(job, end)


@scenarios.add
def one_that_tcp_would_not_come_back_from_before_the_lease_is_survived(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["LEASE_S"] = 40
    (job.workspace / "train.py").write_text(COUNT.replace("500", "1400", 1))
    launch = in_the_run(cluster, job)
    cut(cluster["node-b"], 27.0)  # TCP sends again after 25 s, and then only after 51 s
    all_came_once(job, oracle.check(launch, 0, within_s=90), 1400)


@scenarios.add
def parameters_are_those_of_a_job_without_a_cut(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["LEASE_S"] = LEASE_S
    job.learn()
    ends = []
    for seconds in (0.0, 8.0):
        launch = job.start("--passes=12")
        launch.wait_for_line("trainer 2 life 0: end of pass 1", 40)
        if seconds:
            cluster["node-b"].part(cluster.gate_address)
            cut(cluster["node-c"], seconds)
            cluster["node-b"].rejoin(cluster.gate_address)
        oracle.check(launch, 0, within_s=90)
        ends.append(re.findall("trainer 0 parameters .*", job.log(0, "train.log")))
    assert len(ends[0]) == 1
    assert ends[0] == ends[1]


def all_came_once(job: JobRunner, end: End, count: int = 500) -> None:
    lines = [f"line {number}" for number in range(count)]
    content = random.Random(7).randbytes(5_120_000)  # it takes seconds on a slow network, also compressed
    assert (job.workspace / "output/model").read_bytes() == content
    for node_id in range(3):
        assert re.findall("line .*", job.log(node_id, "train.log")) == lines
        assert (job.workspace / f"log/node_{node_id}/late.txt").read_bytes() == content
        shown = re.findall(rf"^\[trainer {node_id}[^\]]*\] (line .*)", end.output, re.MULTILINE)
        assert shown == lines, end.output


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
