# SPDX-License-Identifier: Apache-2.0
"""`paddle.py doctor` on real hosts: finds what is wrong between them, changes nothing, and says it readably."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import network, sshd
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.launch import Launch

pytestmark = pytest.mark.cluster

# An interpreter whose clock is two hours late. The agent runs with -I -S: only its own code can be changed.
OTHER_PYTHON = str(Path(sys.base_prefix, "bin", "python3"))  # wherever the clone and its environment lie
LATE_PYTHON = """#!{script_python}
import os, sys
late = "import time as t; now = t.time; t.time = lambda: now() - 7200\\n"
argv = [late + one if before == "-c" else one for before, one in zip(sys.argv, sys.argv[1:])]
os.execv({python!r}, ["python3", *argv])
"""

HUNG_MOUNT = """
import ctypes, os, signal, sys
server = os.open("/dev/fuse", os.O_RDWR)
options = b"fd=%d,rootmode=40000,user_id=0,group_id=0" % server
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"gone", sys.argv[1].encode(), b"fuse", 0, options):
    sys.exit(os.strerror(ctypes.get_errno()))
signal.pause()
"""


def doctor(job: JobRunner, *args: str, env: dict[str, str] | None = None) -> Launch:
    return job.start(*args, package=False, command="doctor", env=env)


def files(host: Host) -> set[str]:
    found: set[str] = set()
    for top in ("root", "tmp"):
        found |= {str(path) for path in (host.files.fs / top).rglob("*")}
    return found


def data(launch: Launch) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(launch.output)
    return found


def test_sound_hosts_are_ready_and_left_as_they_were(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    before = {host.name: files(host) for host in cluster.hosts}
    end = oracle.check(
        doctor(job, env={"COLUMNS": "80"}), 0, r"3 of 3 nodes answered", r"ready for a job.*\(exit 0\)"
    )
    assert {host.name: files(host) for host in cluster.hosts} == before
    assert max(len(line) for line in end.output.splitlines()) <= 80
    for host in cluster.hosts:
        assert host.name in end.output
        assert host.address in end.output


def test_everything_comes_as_data_too(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    before = time.time() - time.monotonic()
    launch = doctor(job, "--json")
    oracle.check(launch, 0)
    was_set_s = abs(time.time() - time.monotonic() - before)  # this machine's clock, meanwhile
    found = data(launch)
    assert found["ok"] is True
    assert found["problems"] == []
    assert [node["answer"]["address"] for node in found["nodes"]] == [host.address for host in cluster.hosts]
    for node in found["nodes"]:
        assert node["clock"]["error_s"] < 5
        assert abs(node["clock"]["offset_s"]) <= node["clock"]["error_s"] + was_set_s + 0.001
        assert node["answer"]["modules"]["numpy"]
        assert node["answer"]["root"]["free_bytes"] > 0
    routes = {(route["from"][-1], route["to"][-1]): route["ok"] for route in found["ways"]}
    assert routes == {(a, b): True for a in "abc" for b in "abc" if a != b}


def test_a_host_in_a_black_hole_is_named_after_one_timeout(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-b"].blackhole()
    launch = doctor(job)
    oracle.check(launch, 3, r"node-b", r"PROBLEM: .*node-b", never=(r"PROBLEM: .*node-[ac]",))
    assert launch.age_s < 30  # 5 s on an idle machine; TCP alone would wait for two minutes


def test_a_silent_way_between_two_hosts_is_told_with_both_ends(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    cluster["node-a"].part(cluster["node-c"].address)
    launch = doctor(job, "--json")
    oracle.check(launch, 3)
    assert launch.age_s < 30  # 5 s on an idle machine; TCP alone would wait for two minutes
    found = data(launch)
    failed = {(route["from"], route["to"]) for route in found["ways"] if not route["ok"]}
    assert failed == {("root@node-a", "root@node-c"), ("root@node-c", "root@node-a")}
    texts = [problem["text"] for problem in found["problems"]]
    assert any("cannot reach root@node-c" in text and "no answer within" in text for text in texts)


def test_an_interface_that_every_host_has_for_itself_is_not_chosen(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    for host in cluster.hosts:
        network.ip(
            host.inside,
            "link add docker0 type veth peer name inner0",
            "addr add 172.17.0.1/16 dev docker0",
            "link add own0 type veth peer name inner1",
            "addr add 192.168.122.1/24 dev own0",
            *(f"link set {nic} up" for nic in ("docker0", "inner0", "own0", "inner1")),
        )
    job.conf["PADDLE_NIC"] = ""
    launch = doctor(job, "--json")
    oracle.check(launch, 0)
    found = data(launch)
    assert [node["answer"]["address"] for node in found["nodes"]] == [host.address for host in cluster.hosts]
    assert "every node has an address in 10." in found["addresses"]


def test_the_first_interface_of_the_list_that_a_host_has_is_taken(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["PADDLE_NIC"] = f"ib0,{network.NIC}"
    oracle.check(doctor(job), 0, r"addresses: PADDLE_NIC ib0,eth0")


def test_an_interface_that_no_host_has_is_told_once_with_what_there_is(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["PADDLE_NIC"] = "ib0"
    oracle.check(doctor(job), 3, r"PROBLEM: .*nic: ib0 does not exist")


def test_a_clock_that_is_late_is_a_remark(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    host = cluster["node-b"]
    host.path("/root/bin").mkdir()
    script = host.path("/root/bin/python3")
    script.write_text(LATE_PYTHON.format(script_python=OTHER_PYTHON, python=sys.executable))
    script.chmod(0o755)
    host.path("/root/.bashrc").write_text("PATH=/root/bin:$PATH\n")
    launch = doctor(job, "--json")
    oracle.check(launch, 0)
    found = data(launch)
    (remark,) = [one for one in found["remarks"] if one["what"] == "clock"]
    assert remark["node"] == "root@node-b"
    assert " -7200 s " in remark["text"]


def test_ports_that_the_same_program_keeps_on_all_hosts_are_one_line(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    code = "import socket, signal; s = [socket.create_server(('', port)) for port in (7300, 7301)]; signal.pause()"
    squatters = [host.popen([sys.executable, "-c", code]) for host in cluster.hosts]
    for host in cluster.hosts:
        wait_for("the squatter", lambda host=host: {7300, 7301} <= host.listening(), 10)  # type: ignore[misc]
    launch = doctor(job, "--port=7300", env={"COLUMNS": "400"})
    try:
        assert launch.wait(30) == 3
    finally:
        for host, squatter in zip(cluster.hosts, squatters, strict=True):
            host.end(squatter)
    lines = [line for line in launch.output.splitlines() if line.startswith("PROBLEM")]
    assert len(lines) == 1
    assert "root@node-a, root@node-b, root@node-c: port: 7300-7301 are in use by" in lines[0]
    oracle.check_clean()


def hang(host: Host, path: str) -> subprocess.Popen[bytes]:
    """Mounts a file system at `path` whose server never answers; it ends with the process."""
    host.run(["mkdir", "-p", path])
    child = host.popen([sys.executable, "-c", HUNG_MOUNT, path])
    wait_for("the mount", lambda: f" {path} fuse" in host.run(["cat", "/proc/mounts"]).stdout, 10)
    return child


@pytest.mark.skipif(not os.path.exists("/dev/fuse"), reason="needs /dev/fuse for a mount that hangs")
def test_a_file_server_that_is_gone_delays_nothing_else(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    job.conf["ROOT_DIR"] = "/root/jobs"
    if str(Path(sys.prefix).resolve()).startswith("/tmp/"):  # it would hang with the rest of /tmp
        job.conf["PYTHON"] = OTHER_PYTHON
    servers = [(cluster["node-b"], "/root/jobs"), (cluster["node-c"], "/tmp")]
    running = [(host, hang(host, path)) for host, path in servers]
    try:
        launch = doctor(job, env={"COLUMNS": "400"})
        assert launch.wait(30) == 3, launch.output
        for says in (
            r"PROBLEM: root@node-b: root_dir: /root/jobs: no answer within",
            r"warning: root@node-c: /tmp: no answer within",
            "3 of 3 nodes answered",
        ):
            assert re.search(says, launch.output), launch.output
    finally:
        for host, server in running:
            host.end(server)
    oracle.check_clean()


def test_hosts_are_judged_for_the_mode(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    job.conf["PYTHON"] = "/root/bare-python"
    for host in cluster.hosts:  # without any package
        host.path("/root/bare-python").write_text(f'#!/bin/sh\nexec {OTHER_PYTHON} -S "$@"\n')
        host.path("/root/bare-python").chmod(0o755)
    fits = r"a job with --mode=v2 would not start \(exit 3\); one with --mode=collective would$"
    oracle.check(
        doctor(job, env={"COLUMNS": "400"}), 3, r"modules: /root/bare-python cannot import zmq", fits
    )
    oracle.check(doctor(job, "--mode=collective"), 0, r"ready for a job with --mode=collective.*\(exit 0\)")
    job.conf["PYTHON"] = "/root/no-python"
    end = oracle.check(doctor(job, env={"COLUMNS": "400"}), 3, r"python: ")
    assert "collective would" not in end.output


def test_an_unknown_option_is_refused(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    oracle.check(doctor(job, "--jsn"), 2, r"'--jsn'")


# -- jobs on hosts that doctor would have something to say about


@pytest.fixture
def shared_root() -> Iterator[Path]:
    """A directory that all hosts see, as one on a file server."""
    path = Path("/var/tmp/paddle-shared-root")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path, ignore_errors=True)


def test_hosts_that_share_root_dir_get_a_job_directory_each(
    cluster: Cluster, job: JobRunner, oracle: Oracle, shared_root: Path
) -> None:
    job.conf["ROOT_DIR"] = str(shared_root)
    launch = job.start("--mode=collective")
    oracle.check(launch, 0, rf"root_dir: root@node-a, root@node-b, root@node-c share {shared_root}")
    for node_id in range(3):
        (job_dir,) = (shared_root / f"node_{node_id}").glob("JOB*")
        assert (job_dir / "nodefile").read_text() == f"{node_id}\n"
        assert (job_dir / "log" / "train.log").stat().st_size
        assert job.log(node_id, "train.log")
    assert not list(shared_root.glob(".paddle-mark-*"))


def test_a_deployed_directory_that_hosts_share_is_refused(
    cluster: Cluster, job: JobRunner, oracle: Oracle, shared_root: Path
) -> None:
    shutil.copytree(job.workspace, shared_root / "ws")
    before = sorted(str(path) for path in shared_root.rglob("*"))
    launch = job.start(f"--job_workspace={shared_root}/ws", "--mode=collective", package=False)
    oracle.check(launch, 3, r"the same directory on a shared file system")
    assert sorted(str(path) for path in shared_root.rglob("*")) == before


def test_a_deployed_directory_without_the_script_is_named(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    for host in cluster.hosts:
        shutil.copytree(job.workspace, host.path("/root/ws"))
    cluster["node-b"].path("/root/ws/train.py").unlink()
    launch = job.start("--job_workspace=/root/ws", "--mode=collective", package=False)
    oracle.check(launch, 3, r"node-b: workspace: /root/ws/train\.py does not exist")


@pytest.fixture
def six(cluster: Cluster) -> Iterator[dict[str, str]]:
    """The hosts with IPv6 addresses alone, by name."""
    addresses = {host.name: f"fd77::{11 + index}" for index, host in enumerate(cluster.hosts)}
    network.ip(cluster._gate, f"addr add fd77::1/64 dev {network.GATE_NIC} nodad")
    for host in cluster.hosts:
        host.stop_sshd()
        config = host.path("/tmp/sshd_config")
        config.write_text(sshd.SSHD_CONFIG.replace("AddressFamily inet", "AddressFamily any"))
        network.ip(
            host.inside,
            f"addr add {addresses[host.name]}/64 dev {network.NIC} nodad",
            f"addr del {host.address}/16 dev {network.NIC}",
        )
        host.run(["/usr/sbin/sshd", "-E", "/run/host/sshd.log", "-f", "/tmp/sshd_config"])
        wait_for("sshd", lambda host=host: 22 in host.listening(), 10)  # type: ignore[misc]
    yield addresses
    network.ip(cluster._gate, f"addr del fd77::1/64 dev {network.GATE_NIC}", check=False)


@pytest.mark.parametrize("mode", ["v2", "collective"])
def test_hosts_that_have_ipv6_alone_train(
    mode: str, cluster: Cluster, job: JobRunner, oracle: Oracle, six: dict[str, str]
) -> None:
    known = [sshd.known_hosts_line((six[host.name],), host.key) for host in cluster.hosts]
    cluster.known_hosts.write_text("".join(known))
    job.conf["HOSTS"] = [f"root@[{six[host.name]}]:22" for host in cluster.hosts]
    job.conf["PADDLE_NIC"] = ""
    oracle.check(job.start(f"--mode={mode}"), 0)
    env = json.loads((job.workspace / "log/node_1/seen.json").read_text())["env"]
    assert env["POD_IP"] == six["node-b"]
    assert env["PADDLE_TRAINER_ENDPOINTS"].split(",")[2].startswith(f"[{six['node-c']}]:")
