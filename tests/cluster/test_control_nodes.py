# SPDX-License-Identifier: Apache-2.0
"""Jobs on real hosts that are seen and ended from elsewhere: without their launcher, without its state directory."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher import known_jobs
from launcher.known_jobs import KnownJob
from launcher.state_dir import StatePlaces
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.job import JobRunner
from tests.cluster.oracle import Oracle

pytestmark = pytest.mark.cluster

LIMIT_S = 60.0
HOLD = ("--mode=collective", "--act=hold")
Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def where(cluster: Cluster) -> StatePlaces:
    """The state of jobs that the gate submits."""
    home = Path(cluster.launcher_env()["HOME"])
    shutil.rmtree(home / ".paddle", ignore_errors=True)
    return StatePlaces(home / ".paddle" / "jobs", Path("/tmp/paddle-0"))


@pytest.fixture
def conf(cluster: Cluster, tmp_path: Path) -> Path:
    return cluster.write_conf(tmp_path / "conf.py", STOP_GRACE_S=1, LEASE_S=30, CONNECT_TIMEOUT_S=4)


@pytest.fixture
def command(cluster: Cluster) -> Command:
    """Runs paddle.py on the gate."""

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        return cluster.run([sys.executable, str(ROOT / "paddle.py"), *args], check=False, timeout_s=LIMIT_S)

    return run


@pytest.fixture
def detach(
    where: StatePlaces, conf: Path, command: Command, workspace: Path
) -> Iterator[Callable[[], KnownJob]]:
    """Starts detached jobs that hold; what is left of them ends with the test."""
    count = 0

    def start() -> KnownJob:
        nonlocal count
        count += 1
        copy = workspace.with_name(f"ws{count}")
        shutil.copytree(workspace, copy)
        done = command("-p", str(copy), f"--conf={conf}", "--detach", *HOLD)
        assert done.returncode == 0, done.stdout + done.stderr
        found = re.search(r"(JOB\S+) goes on", done.stdout)
        assert found is not None
        return known_jobs.find(where, found[1])

    yield start
    for job in known_jobs.all_jobs(where):
        if job.running:
            os.kill(job.record.launcher.pid, signal.SIGKILL)


def processes(cluster: Cluster, job: KnownJob) -> dict[str, int]:
    """How many of a job's processes each host runs."""
    return {name: len(found) for name, found in cluster.job_processes(job.job_id).items()}


def test_stop_ends_one_of_two_jobs_on_the_same_nodes(
    cluster: Cluster, oracle: Oracle, detach: Callable[[], KnownJob], command: Command
) -> None:
    one, other = detach(), detach()
    before = processes(cluster, other)
    assert len(before) == 3
    done = command("stop", one.job_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert processes(cluster, one) == {}
    assert processes(cluster, other) == before
    assert command("stop").returncode == 0
    oracle.check_clean()


def test_with_the_launcher_killed_and_its_state_lost_a_job_is_found_and_ended_on_its_nodes(
    cluster: Cluster,
    oracle: Oracle,
    detach: Callable[[], KnownJob],
    command: Command,
    conf: Path,
    where: StatePlaces,
) -> None:
    job, other = detach(), detach()
    assert len(processes(cluster, job)) == 3
    os.kill(job.record.launcher.pid, signal.SIGSTOP)  # nobody leads it, and no connection tells its nodes
    shutil.rmtree(job.directory)
    assert command("status", job.job_id).returncode == 2

    listed = command("status", "--nodes", f"--conf={conf}")
    assert listed.returncode == 0, listed.stdout + listed.stderr
    for host in cluster.hosts:
        line = next(line for line in listed.stdout.splitlines() if job.job_id in line and host.name in line)
        assert "running" in line
        assert f"pid {job.record.launcher.pid} on" in line
    rebuilt = known_jobs.find(where, job.job_id)
    assert rebuilt.record.rebuilt
    assert rebuilt.record.collected == job.record.collected
    assert {node.host for node in rebuilt.record.nodes} == {node.host for node in job.record.nodes}

    shutil.rmtree(job.directory)
    done = command("stop", "--nodes", job.job_id, f"--conf={conf}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("its agent stopped it") == 3
    assert processes(cluster, job) == {}
    assert len(processes(cluster, other)) == 3
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    assert command("stop", other.job_id).returncode == 0
    oracle.check_clean()


def test_stop_of_a_job_whose_launcher_was_killed_makes_sure_on_its_nodes(
    cluster: Cluster, oracle: Oracle, detach: Callable[[], KnownJob], command: Command
) -> None:
    job = detach()
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    assert "launcher gone" in command("status").stdout
    done = command("stop", job.job_id[-6:])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "its launcher is gone; asking its nodes" in done.stdout
    oracle.check_clean()


def test_what_the_agent_cannot_end_any_more_is_found_by_the_jobs_id(
    cluster: Cluster, oracle: Oracle, detach: Callable[[], KnownJob], command: Command
) -> None:
    job = detach()
    host = cluster.hosts[1]
    stray = host.popen(
        [sys.executable, "-c", "import signal; signal.pause()"], env={"PADDLE_JOB_ID": job.job_id}
    )
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    wait_for("the nodes to end the job", lambda: sum(processes(cluster, job).values()) <= 1, LIMIT_S)
    done = command("stop", job.job_id)
    assert done.returncode == 0, done.stdout + done.stderr
    host.end(stray)
    oracle.check_clean()


def test_a_node_that_cannot_be_asked_is_told_and_the_others_are_ended(
    cluster: Cluster, oracle: Oracle, detach: Callable[[], KnownJob], command: Command
) -> None:
    job = detach()
    dark = cluster.hosts[2]
    os.kill(job.record.launcher.pid, signal.SIGSTOP)
    dark.kill()
    done = command("stop", "--nodes", job.job_id)
    assert done.returncode == 7, done.stdout + done.stderr
    assert re.search(rf"! .*{dark.name}: could not be asked", done.stdout)
    assert done.stdout.count("its agent stopped it") == 2
    listed = json.loads(command("status", "--nodes", "--json", job.job_id).stdout)
    assert [dark.name in name for name in listed["failed"]] == [True]
    os.kill(job.record.launcher.pid, signal.SIGKILL)
    oracle.check_clean(unreachable=[dark])


def test_a_nodes_record_is_for_its_user_alone_and_marked_when_the_job_ended(
    cluster: Cluster, job: JobRunner, oracle: Oracle, where: StatePlaces
) -> None:
    launch = job.start(*HOLD)
    job.wait_until_holding(launch)
    (path,) = cluster.hosts[0].path("/root/.paddle/jobs").glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    record = json.loads(path.read_text())
    assert record["processes"] == [{"name": "trainer-0", "role": "trainer", "rank": 0}]
    assert record["submitter"]["pid"] == known_jobs.newest(where).record.launcher.pid
    assert record["ended"] is None
    launch.send(signal.SIGTERM)
    oracle.check(launch, 143)
    assert json.loads(path.read_text())["ended"]["how"] == "its launcher ended it"


def test_the_key_of_a_job_is_in_none_of_its_files(
    cluster: Cluster, job: JobRunner, oracle: Oracle, where: StatePlaces
) -> None:
    launch = job.start("--act=hold")
    trainers = job.wait_for_role("TRAINER")
    key = next(iter(trainers.values())).environ["PADDLE_JOB_KEY"]
    wait_for("the status", lambda: known_jobs.newest(where).status.get("processes"), LIMIT_S)
    launch.send(signal.SIGTERM)
    oracle.check(launch, 143)
    oracle.check_secret(key, where.jobs, *(host.path("/root/.paddle/jobs") for host in cluster.hosts))
