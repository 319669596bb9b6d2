# SPDX-License-Identifier: Apache-2.0
"""Jobs whose agents are started by the user's own `ssh`: SSH_CLIENT = "openssh" keeps what the default promises."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner, learnt
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.launch import Launch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

# conf.py is Python, and runs in the launcher: this one tells what was imported.
IMPORTED = """
import atexit, sys
atexit.register(lambda: print("imported:", {"paramiko", "fabric"} & set(sys.modules) or "neither"))
"""
RESUMED = r"^root@node-b: the connection was lost.*; the job continues over a new connection$"


def with_open_connections(cluster: Cluster, *words: str) -> list[str]:
    """What `ssh -O` says of each host's open connection, or opens it."""
    return [
        cluster.run(["ssh", "-F", str(cluster.ssh_config), *words, host.name]).stderr
        for host in cluster.hosts
    ]


@scenarios.add
def over_open_connections_a_job_learns_what_it_learns_otherwise(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    expected = learnt(oracle.check(job.start("--passes=3"), 0).output)
    assert len(expected) == 3
    with cluster.ssh_config.open("a") as file:
        file.write(f"Host *\n  ControlMaster auto\n  ControlPath {cluster.state}/%h\n  ControlPersist 120\n")
    with_open_connections(cluster, "-fN")
    job.conf["SSH_CLIENT"] = "openssh"
    job.conf_tail = IMPORTED
    launch = job.start("--passes=3", forked=False)
    assert launch.wait(60) == 0, launch.output
    assert all("Master running" in said for said in with_open_connections(cluster, "-O", "check"))
    with_open_connections(cluster, "-O", "exit")
    end = oracle.check(launch, 0, "^imported: neither$")
    assert learnt(end.output) == expected


@scenarios.each("cut", "killed session")
def a_connection_that_is_lost_for_less_than_the_lease_changes_nothing(
    fault: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf.update(SSH_CLIENT="openssh", LEASE_S=12)
    job.learn()
    launch = job.start("--passes=12")
    launch.wait_for_line("trainer 2 life 0: end of pass 1$", 40)
    host = cluster["node-b"]
    if fault == "killed session":
        assert host.drop_connections() >= 1
    else:
        host.part(cluster.gate_address)
        launch.wait_for_line("^root@node-b: .*silent|trainer 2 life 0: end of pass 9$", 30)
        host.rejoin(cluster.gate_address)
    end = oracle.check(launch, 0, *([RESUMED] if fault == "killed session" else []), within_s=60)
    assert len(set(re.findall("parameters (.*)$", end.output, re.MULTILINE))) == 1


@scenarios.each("Ctrl+C in connect", "Ctrl+C in run", "kill -9")
def no_ssh_outlives_the_launcher(how: str, cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf.update(SSH_CLIENT="openssh", LEASE_S=60, CONNECT_TIMEOUT_S=60)
    if how == "Ctrl+C in connect":
        cluster["node-b"].freeze_sshd()
    launch = job.start("--act=hold", "--mode=collective")
    if how == "Ctrl+C in connect":
        launch.wait_for_line("^== connect", 30)
    else:
        job.wait_until_holding(launch)
    ours = wait_for("an ssh for each host", lambda: sshs(launch), 20)
    if how == "kill -9":
        launch.send(signal.SIGKILL)
        assert launch.wait(5) == -signal.SIGKILL
    else:
        launch.interrupt()
        oracle.check(launch, 130, within_s=20)
    wait_for("the end of every ssh", lambda: not any(map(Path.exists, ours)), 10)
    oracle.check_clean(within_s=10)


def sshs(launch: Launch) -> list[Path]:
    """The /proc of the launcher's `ssh`, once there are three."""
    found = []
    for task in Path(f"/proc/{launch.pid}/task").iterdir():
        for pid in (task / "children").read_text().split():
            process = Path("/proc", pid)
            if process.joinpath("cmdline").read_bytes().startswith(b"ssh\0"):
                found.append(process)
    return found if len(found) == 3 else []


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
