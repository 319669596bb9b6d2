# SPDX-License-Identifier: Apache-2.0
"""Agents that wait on their nodes for the next job: who is served, who is not, what they hold, and when they go."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest

from paddle_cluster.system import job_certificate
from paddle_cluster.system.digests import cache_file, load_cached
from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import JobRunner, learnt
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.processes import HostProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

LIMIT_S = 60.0
QUICK = ("--mode=collective",)
HOLD = ("--mode=collective", "--act=hold")
SECRET = "a sentinel that nobody may keep 5b1f"
# Twenty who say nothing, and one of each who says something else.
STRANGERS = """
import socket, sys
address, port = sys.argv[1], int(sys.argv[2])
silent = [socket.create_connection((address, port), 5) for _ in range(20)]
for said in (b"GET / HTTP/1.1\\r\\n\\r\\n", bytes(range(256)) * 64, b'{"nonce": "00", "wait_s": 1}\\n'):
    with socket.create_connection((address, port), 5) as peer:
        peer.settimeout(5)
        try:
            peer.sendall(said)
            while peer.recv(4096):
                pass
        except OSError:
            pass
"""


def is_resident(process: HostProcess) -> bool:
    """Whether it is an agent that waits, and not one of a job that it forked."""
    try:
        return Path(f"/proc/{process.pid}/comm").read_text() == "paddle-resident\n"
    except OSError:  # it has ended
        return False


def residents(cluster: Cluster) -> dict[str, HostProcess]:
    """The agents that wait, by host name."""
    marked = [
        (host.name, one)
        for host in cluster.hosts
        for one in host.processes()
        if "_PADDLE_RESIDENT" in one.environ
    ]
    return {name: one for name, one in marked if is_resident(one)}


def logins(hosts: Sequence[Host]) -> int:
    """How many logins there have been."""
    return sum((host.files.etc / "sshd.log").read_text().count("Accepted") for host in hosts)


def run(job: JobRunner, *args: str) -> str:
    """Runs a job that goes well; returns what it said."""
    launch = job.start(*args)
    assert launch.wait(LIMIT_S) == 0, launch.output
    return launch.output


def run_once_and_wait(cluster: Cluster, job: JobRunner, *args: str) -> dict[str, HostProcess]:
    """Runs a job that logs in; returns the agents that wait afterwards."""
    job.conf.setdefault("RESIDENT_S", 300)
    run(job, *(args or QUICK))
    count = len(cluster.hosts)
    found = wait_for(
        f"{count} agents that wait", lambda: len(there := residents(cluster)) == count and there, 20
    )
    assert isinstance(found, dict)
    return found


def told(job: JobRunner) -> str:
    """What log/job.log says."""
    return (job.workspace / "log" / "job.log").read_text()


def command(cluster: Cluster, *args: str) -> subprocess.CompletedProcess[str]:
    """Runs paddle.py on the gate, which must succeed."""
    done = cluster.run([sys.executable, str(ROOT / "paddle.py"), *args], check=False, timeout_s=LIMIT_S)
    assert done.returncode == 0, done
    return done


def port_of(resident: HostProcess) -> int:
    return int(resident.environ["_PADDLE_RESIDENT"].split()[1])


@scenarios.add
def the_next_job_logs_in_nowhere_and_learns_the_same_bits(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.learn()
    job.conf["RESIDENT_S"] = 300
    by_login = run(job)
    wait_for("agents that wait", lambda: len(residents(cluster)) == 3, LIMIT_S)
    before = logins(cluster.hosts)
    output = run(job)
    assert learnt(output) == learnt(by_login) != []
    assert logins(cluster.hosts) == before
    conf = str(cluster.write_conf(job.workspace.with_name("conf.py")))

    def waiting() -> bool:
        listed = command(cluster, "status", "--nodes", f"--conf={conf}").stdout
        return len(re.findall(r"node-\w: a resident agent \(pid \d+\) .* waits 300 s", listed)) == 3

    wait_for("agents that wait again", waiting, LIMIT_S)
    cleaned = command(cluster, "clean", f"--conf={conf}")
    assert cleaned.stdout.count("a resident agent") == 3, cleaned
    wait_for("the end of all", lambda: not residents(cluster), 10)
    before = logins(cluster.hosts)
    assert learnt(run(job)) == learnt(by_login)
    assert logins(cluster.hosts) == before + 3
    assert "no resident agent at" in told(job)
    wait_for("agents that wait again", lambda: len(residents(cluster)) == 3, LIMIT_S)
    command(cluster, "clean", f"--conf={conf}")
    wait_for("the end of all", lambda: not residents(cluster), 10)
    oracle.check_clean()


@scenarios.add
def it_keeps_no_data_of_a_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    there = run_once_and_wait(cluster, job, *QUICK, f"--env=SENTINEL={SECRET}")
    before = logins(cluster.hosts)
    run(job, *QUICK, f"--env=SENTINEL={SECRET}")
    assert logins(cluster.hosts) == before
    for host in cluster.hosts:
        resident = there[host.name]
        open_files = {os.readlink(path) for path in Path(f"/proc/{resident.pid}/fd").iterdir()}
        assert {name.split(":")[0] for name in open_files} <= {"/dev/null", "pipe", "socket"}
        wait_for("the end of what it forked for the job", partial(has_no_child, host, resident.pid), LIMIT_S)
        assert os.readlink(f"/proc/{resident.pid}/cwd") == "/"
        assert "SENTINEL" not in resident.environ
        assert "PADDLE_JOB_ID" not in resident.environ
        memory = memory_of(resident.pid)
        assert SECRET.encode() not in memory
        assert b"PRIVATE KEY" in memory or b"paddle job" in memory  # the key is there: this is its memory
        assert re.search(rb"JOB\d{14}-[0-9a-f]{6}|PADDLE_JOB_KEY=[0-9a-f]", memory) is None


def has_no_child(host: Host, pid: int) -> bool:
    return all(one.ppid != pid for one in host.processes())


def memory_of(pid: int) -> bytes:
    """All that a process can write to."""
    found = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            bounds, rights = line.split()[:2]
            if rights.startswith("rw"):
                begin, end = (int(bound, 16) for bound in bounds.split("-"))
                memory.seek(begin)
                found.append(memory.read(end - begin))
    return b"".join(found)


@scenarios.add
def peers_without_the_right_key_start_nothing_and_the_owner_is_still_served(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    there = run_once_and_wait(cluster, job)
    host, resident = cluster["node-a"], there["node-a"]
    argv = [sys.executable, "-c", STRANGERS, host.address, str(port_of(resident))]
    sizes = []
    for _ in range(4):  # the first ones touch code and buffers of TLS that no job has needed
        cluster["node-b"].run(argv, timeout_s=LIMIT_S)
        sizes.append(resident_bytes(resident.pid))
    assert sizes[-1] < sizes[1] + (1 << 20)
    assert len([one for one in host.processes() if "_PADDLE_RESIDENT" in one.environ]) == 1
    count = logins(cluster.hosts)
    run(job, *QUICK)
    assert logins(cluster.hosts) == count
    # another key in the record of node-a alone
    (record,) = [path for path in records(cluster) if host.address in load_cached(path).decode()]  # type: ignore[union-attr]
    fields = json.loads(load_cached(record) or b"")
    other = job_certificate.make()
    cache_file(record, json.dumps({**fields, "certificate": other.certificate, "key": other.key}).encode())
    run(job, *QUICK)
    assert logins(cluster.hosts) == count + 1
    # known hosts that changed since: a login might not be made any more
    with cluster.known_hosts.open("a") as file:
        file.write("# changed\n")
    run(job, *QUICK)
    assert logins(cluster.hosts) == count + 4
    assert told(job).count("the known hosts have changed") == 3


def records(cluster: Cluster) -> list[Path]:
    return list(Path(cluster.launcher_env()["HOME"], ".paddle", "jobs", ".residents").iterdir())


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@scenarios.add
def a_cut_is_survived_and_a_killed_launcher_leaves_nothing(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    there = run_once_and_wait(cluster, job)
    before = logins(cluster.hosts)
    launch = job.start(*HOLD)
    job.wait_until_holding(launch)
    assert logins(cluster.hosts) == before
    # one that is busy turns others away: these log in
    beside = [one for one in cluster["node-a"].processes() if one.ppid == there["node-a"].pid]
    (carrier,) = [one.pid for one in beside if os.getsid(one.pid) != one.pid]
    os.kill(carrier, signal.SIGKILL)
    launch.wait_for_line("node-a: the connection was lost.*; the job continues over a new connection", 30)
    launch.send(signal.SIGKILL)
    wait_for("the end of the job", lambda: not job.processes("TRAINER"), 20)
    wait_for("the end of its agents", lambda: not any(map(marked, cluster.hosts)), 20)
    ports = {port_of(one) for one in there.values()}
    assert all(not host.listening() & ports for host in cluster.hosts)
    run(job, *QUICK)


def marked(host: Host) -> list[HostProcess]:
    """All processes that an agent which waits began."""
    return [one for one in host.processes() if "_PADDLE_RESIDENT" in one.environ]


@scenarios.add
def it_goes_when_its_time_is_over(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["RESIDENT_S"] = 0.5
    run(job, *QUICK)
    wait_for("the end of all", lambda: not residents(cluster) and not any(map(listens, cluster.hosts)), 20)
    oracle.check_clean()
    before = logins(cluster.hosts)
    run(job, *QUICK)
    assert logins(cluster.hosts) == before + 3


def listens(host: Host) -> bool:
    return bool(host.listening() - {22})


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
