# SPDX-License-Identifier: Apache-2.0
"""The end of a job while somebody waits: results that take long to come back, and users who do not wait."""

from __future__ import annotations

import time

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.test_job_stop import wait_for_orphans

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

MODEL_SIZE = 3_000_000


@scenarios.add
def a_model_that_takes_long_to_come_back_comes_back_whole(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["COLLECT_TIMEOUT_S"] = 2  # far less than the 6 s that 4 Mbit/s take
    cluster["node-a"].slow(mbit=4)
    launch = job.start("--act=model", "--mode=collective")
    oracle.check(launch, 0, never=["NOT COLLECTED"])
    assert (job.workspace / "output" / "model.bin").stat().st_size == MODEL_SIZE


@scenarios.add
def a_model_that_stops_coming_is_told_and_is_no_success(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(COLLECT_TIMEOUT_S=2, LEASE_S=30)
    host = cluster["node-a"]
    host.slow(mbit=2)
    launch = job.start("--act=model", "--mode=collective")
    launch.wait_for_line("^== collect", 30)
    host.part(cluster.gate_address)
    oracle.check(
        launch,
        7,
        r"^NOT COLLECTED from root@node-a: .* /root/JOB2",
        within_s=20,
        unreachable=[host],
    )
    host.rejoin(cluster.gate_address)
    oracle.check_clean(within_s=40)


@scenarios.add
def ctrl_c_while_a_model_comes_back_ends_soon_and_says_where_it_is(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-a"].slow(mbit=2)  # 12 s; a slower cable would owe the word that all is stopped, too
    launch = job.start("--act=model", "--mode=collective")
    launch.wait_for_line("^== collect", 30)
    launch.interrupt()
    oracle.check(launch, 130, r"^NOT COLLECTED from root@node-a", within_s=10)


@scenarios.add
def a_second_ctrl_c_kills_at_once_and_that_is_a_clean_end(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["STOP_GRACE_S"] = 60
    launch = job.start("--act=orphan", "--mode=collective")
    wait_for_orphans(cluster, launch)
    launch.interrupt()
    launch.wait_for_line("^== stop", 10)
    launch.interrupt()
    oracle.check(launch, 130, never=["NOT CLEANED", "NOT COLLECTED"], within_s=10)


@scenarios.add
def nobody_waits_for_a_login_after_the_last_line(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    cluster["node-b"].freeze_sshd()
    job.conf["CONNECT_TIMEOUT_S"] = 60
    launch = job.start("--act=hold")
    launch.wait_for_line("^== connect", 10)
    started = time.monotonic()
    launch.interrupt()
    oracle.check(launch, 130, within_s=20)
    assert time.monotonic() - started < 20


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
