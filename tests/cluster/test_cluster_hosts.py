# SPDX-License-Identifier: Apache-2.0
"""The test hosts themselves: if these fail, no other cluster test means anything."""

from __future__ import annotations

import contextlib
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cluster import hosts, network
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.processes import HostProcess

pytestmark = pytest.mark.cluster

SLEEP = [sys.executable, "-c", "import signal; signal.pause()"]


def can_connect(cluster: Cluster, address: str, port: int = 22, timeout_s: float = 1.0) -> str:
    code = (
        "import socket, sys\n"
        "address, port, timeout_s = sys.argv[1:]\n"
        "try: socket.create_connection((address, int(port)), float(timeout_s)).close(); print('yes')\n"
        "except TimeoutError: print('silence')\n"
        "except OSError as error: print(error.strerror)\n"
    )
    return cluster.run([sys.executable, "-c", code, address, str(port), str(timeout_s)]).stdout.strip()


def test_each_host_answers_openssh_with_its_own_name(cluster: Cluster) -> None:
    names = [cluster.ssh(host, "cat", "/proc/sys/kernel/hostname").stdout.strip() for host in cluster.hosts]
    assert names == ["node-a", "node-b", "node-c"]


def test_the_interpreter_of_the_tests_works_over_ssh(cluster: Cluster) -> None:
    done = cluster.ssh(
        cluster.hosts[0],
        shlex.quote(sys.executable),
        "-c",
        "'import zmq, numpy; print(numpy.arange(3).sum())'",
    )
    assert done.stdout == "3\n"


def test_a_password_is_not_asked_for_when_the_key_is_wrong(cluster: Cluster) -> None:
    (cluster.hosts[0].path("/root/.ssh/authorized_keys")).write_text("")
    done = cluster.ssh(cluster.hosts[0], "true", check=False)
    assert done.returncode == 255
    assert "Permission denied (publickey)" in done.stderr


def test_hosts_reach_each_other_by_name(cluster: Cluster) -> None:
    code = (
        "import socket; s = socket.create_connection(('node-b', 22), 5); print(s.recv(4).decode()); s.close()"
    )
    assert cluster["node-a"].run([sys.executable, "-c", code]).stdout == "SSH-\n"


def test_hosts_do_not_share_root_tmp_or_processes(cluster: Cluster) -> None:
    first, second = cluster.hosts[:2]
    name = f"mine-{os.getpid()}"
    for path in (f"/root/{name}", f"/tmp/{name}"):
        first.path(path).write_text("a")
        assert not second.path(path).exists()
        assert not Path(path).exists()
    child = first.popen(SLEEP, env={"PADDLE_JOB_ID": "J1"})
    try:
        wait_for("the process", lambda: [list(p.argv) for p in first.job_processes("J1")] == [SLEEP], 5)
        assert cluster.job_processes("J1").keys() == {"node-a"}
    finally:
        first.end(child)


def test_process_one_reaps_orphans(cluster: Cluster) -> None:
    host = cluster.hosts[0]
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(0.1); os._exit(0)"
    host.run([sys.executable, "-c", code])
    look = ["sh", "-c", "cat /proc/[0-9]*/stat"]  # one may end meanwhile
    wait_for("no zombie", lambda: ") Z " not in host.run(look, check=False).stdout, 5)


def test_a_cut_host_is_unreachable_until_it_is_healed(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    assert can_connect(cluster, host.address) == "yes"
    host.cut()
    assert can_connect(cluster, host.address) in ("No route to host", "silence")
    assert can_connect(cluster, cluster.hosts[0].address) == "yes"
    host.heal()
    wait_for("the link", lambda: can_connect(cluster, host.address) == "yes", 10)


def test_a_black_hole_is_silent_for_longer_than_arp(cluster: Cluster) -> None:
    host = cluster.hosts[1]
    host.blackhole()
    assert can_connect(cluster, host.address, timeout_s=4) == "silence"
    host.heal()
    wait_for("the link", lambda: can_connect(cluster, host.address) == "yes", 10)


def test_a_parted_host_still_reaches_the_others(cluster: Cluster) -> None:
    first, second = cluster.hosts[:2]
    first.part(cluster.gate_address)
    assert can_connect(cluster, first.address) == "silence"
    first.run(
        [
            sys.executable,
            "-c",
            f"import socket; socket.create_connection(('{second.address}', 22), 5).close()",
        ]
    )
    first.rejoin(cluster.gate_address)
    wait_for("the answer", lambda: can_connect(cluster, first.address) == "yes", 10)


def test_power_off_leaves_no_process_and_power_on_keeps_the_disk(cluster: Cluster) -> None:
    host = cluster.hosts[2]
    child = host.popen(["sh", "-c", "trap '' TERM HUP; setsid sleep 1000 & sleep 1000"])
    pids = wait_for("two sleepers", lambda: sleepers(host.processes()), 5)
    host.path("/root/kept").write_text("kept")
    host.kill()
    child.wait(timeout=5)
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []
    assert host.processes() == []
    host.start()
    assert cluster.ssh(host, "cat", "/root/kept").stdout == "kept"


def sleepers(processes: list[HostProcess]) -> list[int]:
    found = [process.pid for process in processes if process.argv[:1] == ("sleep",)]
    return found if len(found) == 2 else []


def test_a_slow_host_is_slow(cluster: Cluster) -> None:
    slow, fast = cluster.hosts[:2]
    slow.slow(mbit=2)

    def took_s(host: Host) -> float:
        begun = time.monotonic()
        assert cluster.ssh(host, "head", "-c", "250000", "/dev/zero").stdout == "\0" * 250_000
        return time.monotonic() - begun

    slowest = took_s(slow)
    assert slowest > 0.75  # 2 Mbit at 2 Mbit/s take 1 s
    # a machine with other work may start a process late, but not every time
    wait_for("a faster turn", lambda: took_s(fast) < slowest, 30)


def test_a_slow_gate_is_slow_to_all_and_what_leaves_it_is_counted(cluster: Cluster) -> None:
    host = cluster.hosts[0]
    sent_before, received_before = cluster.gate_bytes()
    cluster.slow(2)
    begun = time.monotonic()
    assert cluster.ssh(host, "head", "-c", "250000", "/dev/zero").stdout == "\0" * 250_000
    assert time.monotonic() - begun > 0.75  # 2 Mbit at 2 Mbit/s take 1 s
    cluster.slow(None)
    sent, received = cluster.gate_bytes()
    assert 250_000 < received - received_before < 400_000
    assert sent - sent_before < 100_000


def test_a_full_disk_refuses_and_a_read_only_one_too(cluster: Cluster) -> None:
    host = cluster.hosts[0]
    host.small_disk("/root/paddle", "1m")
    host.fill_disk("/root/paddle")
    assert "No space left" in cluster.ssh(host, "echo more > /root/paddle/x", check=False).stderr
    host.run(["mkdir", "/root/fixed"])
    host.make_read_only("/root/fixed")
    assert "Read-only" in cluster.ssh(host, "touch /root/fixed/x", check=False).stderr


def test_a_stopped_sshd_refuses_and_a_frozen_one_says_nothing(cluster: Cluster) -> None:
    stopped, frozen = cluster.hosts[:2]
    stopped.stop_sshd()
    assert can_connect(cluster, stopped.address) == "Connection refused"
    frozen.freeze_sshd()
    code = (
        "import socket\ns = socket.create_connection(('node-b', 22), 1)\n"
        "try: print(s.recv(4))\nexcept TimeoutError: print('silence')\nfinally: s.close()"
    )
    assert cluster.run([sys.executable, "-c", code]).stdout == "silence\n"


def test_dropping_connections_ends_an_open_session(cluster: Cluster) -> None:
    host = cluster.hosts[0]
    argv = ["ssh", "-F", str(cluster.ssh_config), host.name, "echo up; sleep 1000"]
    with cluster.popen(argv, stdout=subprocess.PIPE) as session:
        assert session.stdout is not None
        assert session.stdout.readline() == b"up\n"
        assert host.drop_connections() >= 1
        assert session.wait(timeout=10) == 255


def test_two_clusters_run_beside_each_other(cluster: Cluster) -> None:
    with Cluster(1) as other:
        assert other.hosts[0].address != cluster.hosts[0].address
        assert other.ssh(other.hosts[0], "cat", "/proc/sys/kernel/hostname").stdout == "node-a\n"
    assert not other.state.exists()
    assert cluster.ssh(cluster.hosts[0], "true").returncode == 0


def test_hosts_die_with_a_killed_test_process_and_its_directory_is_swept(tmp_path: Path) -> None:
    code = (
        "import time\nfrom tests.cluster.hosts import Cluster\nc = Cluster(3)\n"
        "print(c.state, c.hosts[0].inside.pid, c.hosts[2].inside.pid, flush=True)\ntime.sleep(1000)\n"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        directory, *pids = owner.stdout.readline().decode().split()
        spaces = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in pids for kind in ("mnt", "net", "pid")}
        assert len(spaces) == 6
        owner.send_signal(signal.SIGKILL)
        owner.wait(timeout=5)
    wait_for("the end of the hosts", lambda: not spaces & namespaces_in_use(), 5)
    assert Path(directory).exists()
    assert Path(directory) in hosts.sweep()
    assert not Path(directory).exists()


def namespaces_in_use() -> set[str]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        for kind in ("mnt", "net", "pid"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(process / "ns" / kind))
    return found


def test_more_hosts_than_letters_have_names_and_addresses_of_their_own_and_know_each_other() -> None:
    count = 30
    with Cluster(count) as many:
        names = [host.name for host in many.hosts]
        assert names[25:28] == ["node-z", "node-27", "node-28"]
        assert len({host.address for host in many.hosts}) == count
        code = "import socket; print(socket.create_connection(('node-28', 22), 5).recv(4).decode())"
        assert many["node-a"].run([sys.executable, "-c", code]).stdout == "SSH-\n"
        assert many.ssh(many["node-28"], "cat", "/proc/sys/kernel/hostname").stdout == "node-28\n"
        holders = {host.inside.pid for host in many.hosts}
    assert [pid for pid in holders if Path(f"/proc/{pid}").exists()] == []
    assert not many.state.exists()


@pytest.mark.parametrize("index", [0, 199, 200, 255, 256, network.MOST - 1])
def test_addresses_differ_at_every_seam_of_the_plan(index: int) -> None:
    others = [other for other in range(network.MOST) if other != index]
    assert network.host_address(1, index) not in {network.host_address(1, other) for other in others}
    assert network.host_mac(index) not in {network.host_mac(other) for other in others}
    assert network.host_name(index) not in {network.host_name(other) for other in others}


def test_a_cluster_that_the_kernel_has_no_room_for_is_refused_with_the_limit_and_its_remedy() -> None:
    with pytest.raises(
        RuntimeError, match=r"1024 hosts need 1024 ports of a bridge, here 1000 are allowed: make a smaller"
    ):
        Cluster(1024)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 100  # earlier tests of this process may keep some
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, most))
    try:
        with pytest.raises(
            RuntimeError, match=rf"open files \(ulimit -n\), here {few} are allowed: ulimit -n \d+"
        ):
            Cluster(200)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_the_test_process_keeps_its_own_network(cluster: Cluster) -> None:
    devices = {path.name for path in Path("/sys/class/net").iterdir()}
    assert not {
        name for name in devices if name.startswith(("p0b", "p1b", "p2b")) or name in ("br0", "gate0")
    }
