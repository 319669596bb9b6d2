# SPDX-License-Identifier: Apache-2.0
"""A workspace on its way from node to node in a real job: what leaves the launcher, and who fails meanwhile."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, cached
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

SIZE = 22_000_000  # of which two copies more are worth a relay
OVERHEAD = 4_000_000  # logins, agents, the runtime, and twice what TCP and SSH add


def add_big_file(job: JobRunner, size: int = SIZE) -> Path:
    path = job.workspace / "big.bin"
    path.write_bytes(os.urandom(size))
    return path


def whole_everywhere(cluster: Cluster, job: JobRunner, path: Path) -> None:
    for host in cluster.hosts:
        assert (job.job_dir(host) / path.name).read_bytes() == path.read_bytes(), host


@scenarios.add
def no_more_than_two_copies_leave_the_launcher(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    path = add_big_file(job)
    before, _ = cluster.gate_bytes()
    oracle.check(job.start("--mode=collective"), 0)
    after, _ = cluster.gate_bytes()
    assert SIZE < after - before < 2 * SIZE + OVERHEAD
    whole_everywhere(cluster, job, path)


def lose_its_connection(cluster: Cluster, host: Host) -> None:
    assert host.drop_connections() >= 1


def part_from_the_others(cluster: Cluster, host: Host) -> None:
    """What it sends to other hosts vanishes; the launcher still reaches it."""
    for other in cluster.hosts:
        if other is not host:
            host.part(other.address)


FAULTS: dict[str, Callable[[Cluster, Host], None]] = {
    "loses its connection": lose_its_connection,
    "is parted from the others": part_from_the_others,
}


@scenarios.each(*(f"node-{letter} {fault}" for fault in FAULTS for letter in "abc"))
def whoever_fails_to_pass_on_is_gone_round(
    case: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    name, _, fault = case.partition(" ")
    path = add_big_file(job)
    cluster.slow(mbit=80)
    launch = job.start("--mode=collective")
    host = cluster[name]
    launch.wait_until("a third of the file", lambda: cached(host) > SIZE // 3, 30)
    FAULTS[fault](cluster, host)
    oracle.check(launch, 0, within_s=60)
    whole_everywhere(cluster, job, path)


@scenarios.add
def a_node_that_is_cut_off_while_it_passes_on_is_named(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    add_big_file(job)
    cluster.slow(mbit=80)
    launch = job.start("--mode=collective")
    host = cluster["node-b"]
    launch.wait_until("a third of the file", lambda: cached(host) > SIZE // 3, 30)
    host.cut()
    oracle.check(launch, 4, r"FIRST ERROR: root@node-b: no message for", within_s=60, unreachable=[host])


def empty_it(path: Path) -> None:
    path.write_bytes(b"")


def remove_it_all(path: Path) -> None:
    shutil.rmtree(path.parent)


CHANGES: dict[str, Callable[[Path], None]] = {"emptied": empty_it, "removed": remove_it_all}


@scenarios.each(*CHANGES)
def a_workspace_that_changes_while_it_is_passed_on_ends_the_job(
    change: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    path = add_big_file(job)
    cluster.slow(mbit=80)
    launch = job.start("--mode=collective")
    launch.wait_until("some of the file", lambda: cached(cluster["node-a"]) > SIZE // 8, 30)
    CHANGES[change](path)
    oracle.check(launch, 4, r"FIRST ERROR: root@node-.: the workspace did not arrive", within_s=30)


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
