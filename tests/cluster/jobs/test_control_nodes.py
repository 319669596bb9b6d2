# SPDX-License-Identifier: Apache-2.0
"""Jobs on real hosts that are seen and ended from elsewhere: without their launcher, without its state directory."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from paddle_cluster.control import store
from paddle_cluster.control.store import KnownJob
from paddle_cluster.system.state_dir import StatePlaces
from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

LIMIT_S = 60.0
HOLD = ("--mode=collective", "--act=hold")


class Desk:
    """Where jobs of one cluster are submitted, looked at and ended: its gate.

    Attributes:
        where: the state of the jobs.
        conf: a conf.py of the cluster.
        jobs: starts jobs in the foreground.
    """

    def __init__(self, cluster: Cluster, jobs: JobRunner) -> None:
        home = Path(cluster.launcher_env()["HOME"])
        shutil.rmtree(home / ".paddle", ignore_errors=True)
        self.where = StatePlaces(home / ".paddle" / "jobs", Path("/tmp/paddle-0"))
        self.conf = cluster.write_conf(
            jobs.workspace.with_name("conf.py"), STOP_GRACE_S=1, LEASE_S=120, CONNECT_TIMEOUT_S=4
        )
        self.jobs = jobs
        self._cluster, self._count = cluster, 0

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """Runs paddle.py on the gate."""
        argv = [sys.executable, str(ROOT / "paddle.py"), *args]
        return self._cluster.run(argv, check=False, timeout_s=LIMIT_S)

    def detach(self) -> KnownJob:
        """Starts a detached job that holds."""
        self._count += 1
        copy = self.jobs.workspace.with_name(f"ws{self._count}")
        shutil.copytree(self.jobs.workspace, copy)
        done = self.run("-p", str(copy), f"--conf={self.conf}", "--detach", *HOLD)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"(JOB\S+) continues", done.stdout)
        assert found is not None
        return store.find(self.where, found[1])

    def close(self) -> None:
        """Ends what is left of the detached jobs."""
        for job in store.all_jobs(self.where):
            if job.running:
                os.kill(job.record.launcher.pid, signal.SIGKILL)


def at_a_desk(scenario: Callable[[Cluster, Oracle, Desk], None]) -> Callable[..., None]:
    """A scenario in front of hosts of its own; a decorator."""

    @functools.wraps(scenario)
    def with_desk(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
        with contextlib.closing(Desk(cluster, job)) as desk:
            scenario(cluster, oracle, desk)

    return with_desk


def processes(cluster: Cluster, job: KnownJob) -> dict[str, int]:
    """How many of a job's processes each host runs."""
    return {name: len(found) for name, found in cluster.job_processes(job.job_id).items()}


@scenarios.add
@at_a_desk
def stop_ends_one_of_two_jobs_on_the_same_nodes(cluster: Cluster, oracle: Oracle, desk: Desk) -> None:
    one, other = desk.detach(), desk.detach()
    before = processes(cluster, other)
    assert len(before) == 3
    done = desk.run("stop", one.job_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes(cluster, one) == {}
    assert processes(cluster, other) == before
    assert desk.run("stop").returncode == 0
    oracle.check_clean()


@scenarios.add
@at_a_desk
def with_the_launcher_killed_and_its_state_lost_a_job_is_found_and_ended_on_its_nodes(
    cluster: Cluster, oracle: Oracle, desk: Desk
) -> None:
    job, other = desk.detach(), desk.detach()
    assert len(processes(cluster, job)) == 3
    os.kill(job.record.launcher.pid, signal.SIGSTOP)  # nobody leads it, and no connection tells its nodes
    shutil.rmtree(job.directory)
    assert desk.run("status", job.job_id).returncode == 2

    listed = desk.run("status", "--nodes", f"--conf={desk.conf}")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    for host in cluster.hosts:
        line = next(line for line in listed.stdout.splitlines() if job.job_id in line and host.name in line)
        assert "running" in line
        assert f"pid {job.record.launcher.pid} on" in line
    rebuilt = store.find(desk.where, job.job_id)
    assert rebuilt.record.rebuilt
    assert rebuilt.record.collected == job.record.collected
    assert {node.host for node in rebuilt.record.nodes} == {node.host for node in job.record.nodes}

    shutil.rmtree(job.directory)
    done = desk.run("stop", "--nodes", job.job_id, f"--conf={desk.conf}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("its agent stopped it") == 3
    assert processes(cluster, job) == {}
    assert len(processes(cluster, other)) == 3
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    assert desk.run("stop", other.job_id).returncode == 0
    oracle.check_clean()


@scenarios.add
@at_a_desk
def stop_of_a_job_whose_launcher_was_killed_makes_sure_on_its_nodes(
    cluster: Cluster, oracle: Oracle, desk: Desk
) -> None:
    job = desk.detach()
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    assert "launcher exited" in desk.run("status").stdout
    done = desk.run("stop", job.job_id[-6:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its launcher has exited; asking its nodes" in done.stdout
    oracle.check_clean()


@scenarios.add
@at_a_desk
def what_the_agent_cannot_end_any_more_is_found_by_the_jobs_id(
    cluster: Cluster, oracle: Oracle, desk: Desk
) -> None:
    job = desk.detach()
    host = cluster.hosts[1]
    stray = host.popen(
        [sys.executable, "-c", "import signal; signal.pause()"], env={"PADDLE_JOB_ID": job.job_id}
    )
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    wait_for("nodes to stop the job", lambda: sum(processes(cluster, job).values()) <= 1, LIMIT_S)
    done = desk.run("stop", job.job_id)
    assert done.returncode == 0, done.stdout + done.stderr
    host.end(stray)
    oracle.check_clean()


@scenarios.add
@at_a_desk
def a_node_that_cannot_be_asked_is_told_and_the_others_are_ended(
    cluster: Cluster, oracle: Oracle, desk: Desk
) -> None:
    job = desk.detach()
    dark = cluster.hosts[2]
    os.kill(job.record.launcher.pid, signal.SIGSTOP)
    dark.kill()
    with ThreadPoolExecutor(1) as beside:  # both are as slow as the node that does not answer
        listing = beside.submit(desk.run, "status", "--nodes", "--json", job.job_id)
        done = desk.run("stop", "--nodes", job.job_id)
    assert done.returncode == 7, done.stdout + done.stderr
    assert re.search(rf"! .*{dark.name}: could not be queried", done.stdout)
    assert done.stdout.count("its agent stopped it") == 2
    listed = json.loads(listing.result().stdout)
    assert [dark.name in name for name in listed["failed"]] == [True]
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    oracle.check_clean(unreachable=[dark])


@scenarios.add
@at_a_desk
def a_nodes_record_is_for_its_user_alone_and_marked_when_the_job_ended(
    cluster: Cluster, oracle: Oracle, desk: Desk
) -> None:
    launch = desk.jobs.start(*HOLD)
    desk.jobs.wait_until_holding(launch)
    (path,) = cluster.hosts[0].path("/root/.paddle/jobs").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    record = json.loads(path.read_text())
    assert record["processes"] == [{"name": "trainer-0", "role": "trainer", "rank": 0}]
    assert record["submitter"]["pid"] == store.newest(desk.where).record.launcher.pid
    assert record["ended"] is None
    launch.send(signal.SIGTERM)
    oracle.check(launch, 143)
    assert json.loads(path.read_text())["ended"]["how"] == "its launcher ended it"


@scenarios.add
@at_a_desk
def the_key_of_a_job_is_in_none_of_its_files(cluster: Cluster, oracle: Oracle, desk: Desk) -> None:
    launch = desk.jobs.start("--act=hold")
    trainers = desk.jobs.wait_for_role("TRAINER")
    key = next(iter(trainers.values())).environ["PADDLE_JOB_KEY"]
    wait_for("the status", lambda: store.newest(desk.where).status.get("processes"), LIMIT_S)
    launch.send(signal.SIGTERM)
    oracle.check(launch, 143)
    oracle.check_secret(key, desk.where.jobs, *(host.path("/root/.paddle/jobs") for host in cluster.hosts))


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
