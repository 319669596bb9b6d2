# SPDX-License-Identifier: Apache-2.0
"""Jobs of any script on real hosts: several processes a node, programs and modules, secrets, ports, two examples."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import JobRunner
from tests.cluster.jobs.oracle import CANARY_ID, Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.network import NIC

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(BESIDE_S)]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

FIRST_PORT, MIDDLE_PORT = 20000, 26384
SECRET = "s3ntinel-b4f1c0de-value"
HIDDEN = "an0ther-value"  # which a command line may show for a moment
INTERFACES = """
import fcntl, os, socket, struct
name = os.environ["GLOO_SOCKET_IFNAME"]
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asker:
    reply = fcntl.ioctl(asker.fileno(), 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
assert socket.inet_ntoa(reply[20:24]) == os.environ["POD_IP"], name
print("rank", os.environ["RANK"], "uses", name, os.environ["NCCL_SOCKET_IFNAME"], os.environ["TP_SOCKET_IFNAME"])
"""
LISTENS = """
import os, signal, socket
port = int(os.environ["MASTER_PORT"])
print("master port", port, flush=True)
if os.environ["RANK"] == "0":
    server = socket.create_server((os.environ["MASTER_ADDR"], port))
print("holding", flush=True)
signal.pause()
"""


def put(job: JobRunner, name: str, text: str, mode: int = 0o644) -> Path:
    path = job.workspace / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@scenarios.add
def numpy_processes_in_a_ring_find_the_weights_of_one_process(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    scratch = job.workspace.parent
    shutil.copy(ROOT / "examples" / "numpy_allreduce.py", job.workspace)
    alone = subprocess.run(
        [sys.executable, job.workspace / "numpy_allreduce.py"],
        cwd=scratch,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    launch = job.start("--entry=numpy_allreduce.py", "--mode=collective", "--nproc_per_node=2")
    oracle.check(launch, 0, r"process 5 of 6: 1000 of 6000 samples")

    def weights(text: str) -> list[float]:
        return [float(word) for word in re.findall(r"^weights (.*)$", text, re.MULTILINE)[0].split()]

    found = [weights(job.log(node_id, f"train.{local}.log")) for node_id in range(3) for local in range(2)]
    assert all(one == found[0] for one in found)  # bit for bit
    expected = weights(alone)
    assert max(abs(got - want) for got, want in zip(found[0], expected, strict=True)) < 1e-6
    saved = (job.workspace / "output/weights.txt").read_text().split()
    assert [float(text) for text in saved] == found[0]


@scenarios.add
def two_trainers_a_node_train_with_pservers(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    oracle.check(job.start("--nproc_per_node=2"), 0)
    for node_id in range(3):
        for local in range(2):
            rank = 2 * node_id + local
            assert f"trainer {rank} is done" in job.log(node_id, f"train.{local}.log")


@scenarios.add
def a_program_and_a_module_run_as_they_are(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    put(job, "run.sh", '#!/bin/sh\nexec "$PADDLE_PYTHON" -m pkg.work "$@"\n', 0o755)
    put(
        job, "pkg/work.py", "import os, sys\nprint('worked', os.environ['RANK'], sys.argv[1:], __package__)\n"
    )
    for entry in ("./run.sh", "-mpkg.work"):
        oracle.check(job.start(f"--entry={entry}", "--mode=collective", "--title=a b", "--x=$(id)"), 0)
        for node_id in range(3):
            line = f"worked {node_id} ['--title=a b', '--x=$(id)'] pkg"
            assert line in job.log(node_id, "train.log"), entry


@scenarios.add
def every_process_is_told_the_interface_of_its_own_node(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    put(job, "interfaces.py", INTERFACES)
    other = cluster.hosts[2]
    for command in (f"link set {NIC} down", f"link set {NIC} name lan9", "link set lan9 up"):
        other.run(["ip", *command.split()])
    job.conf["PADDLE_NIC"] = f"{NIC},lan9"
    options = ("--entry=interfaces.py", "--mode=collective", "--nproc_per_node=2")
    output = oracle.check(job.start(*options), 0).output
    for rank, nic in enumerate((NIC, NIC, NIC, NIC, "lan9", "lan9")):
        assert f"rank {rank} uses {nic} ={nic} {nic}" in output
    output = oracle.check(job.start(*options, "--env=NCCL_SOCKET_IFNAME=mine"), 0).output
    assert f"rank 0 uses {NIC} mine {NIC}" in output


@scenarios.add
def taken_ports_make_the_trainers_use_others(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    put(job, "listens.py", LISTENS)
    squatter = squat(
        cluster.hosts[0], range(FIRST_PORT, MIDDLE_PORT)
    )  # half of the ports that a job may take
    try:
        for _ in range(3):
            launch = job.start("--entry=listens.py", "--mode=collective")
            job.wait_until_holding(launch)
            (port,) = set(re.findall(r"master port (\d+)", launch.output))
            assert int(port) >= MIDDLE_PORT
            launch.interrupt()
            assert launch.wait(30) == 130
    finally:
        cluster.hosts[0].end(squatter)
    oracle.check_clean()


@scenarios.add
def two_jobs_on_the_same_nodes_have_ports_of_their_own(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    scratch = job.workspace.parent
    put(job, "listens.py", LISTENS)
    arguments = ("--entry=listens.py", "--mode=collective")
    copy = shutil.copytree(job.workspace, scratch / "copy")
    launches = [
        job.start(*arguments),
        job.start(f"--job_dispatch_package={copy}", *arguments, package=False),
    ]
    for launch in launches:
        job.wait_until_holding(launch)
    ports = [set(re.findall(r"master port (\d+)", launch.output)) for launch in launches]
    assert all(len(one) == 1 for one in ports)
    assert ports[0] != ports[1]
    for launch in launches:
        launch.interrupt()
        assert launch.wait(30) == 130
    oracle.check_clean()


def secret_places(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    yield cluster.state / "launcher_home"
    for host in cluster.hosts:
        yield from (
            host.files.fs / place for place in ("root", "tmp")
        )  # without what is mounted there, read-only
        yield from (host.path(place) for place in ("/run", "/dev/shm"))


def holding_file(place: Path, secret: bytes, but: set[Path]) -> Path | None:
    for path in place.rglob("*"):
        if path.is_file() and not path.is_symlink() and path not in but and secret in path.read_bytes():
            return path
    return None


def in_a_command_line(secret: bytes) -> str | None:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes()
        except OSError:
            continue
        if secret in line:
            return line.replace(b"\0", b" ").decode(errors="replace")
    return None


@scenarios.add
def a_secret_reaches_the_processes_and_nothing_else(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    scratch = job.workspace.parent
    mine = {scratch / "prod.env", put(job, ".env", f"WORKSPACE_TOKEN='{SECRET}'\n")}
    (scratch / "prod.env").write_text(f'export FILE_TOKEN="{SECRET}"\nGREETING="two\\nlines"\n')
    put(job, "hold.py", "import signal\nprint('holding', flush=True)\nsignal.pause()\n")
    launch = job.start(
        "--entry=hold.py",
        "--env=OWN_TOKEN",
        f"--env_file={scratch / 'prod.env'}",
        "--env",
        "PYTHONPATH=/opt/mine",
        env={"OWN_TOKEN": SECRET, "OTHER": "stays here"},
        forked=False,
    )
    job.wait_until_holding(launch)
    for role in ("TRAINER", "PSERVER"):
        for process in job.wait_for_role(role).values():
            for name in ("WORKSPACE_TOKEN", "FILE_TOKEN", "OWN_TOKEN"):
                assert process.environ[name] == SECRET, role
            assert process.environ["GREETING"] == "two\nlines"
            assert process.environ["PYTHONPATH"].endswith(":/opt/mine")
            assert "OTHER" not in process.environ
    secret = SECRET.encode()
    assert in_a_command_line(secret) is None
    for place in secret_places(cluster, scratch):
        assert holding_file(place, secret, mine) is None
    for host in cluster.hosts:
        assert not (job.job_dir(host) / ".env").exists()
        for process in host.processes():  # the agent was told, but does not have it in its own environment
            if process.job_id is None:
                assert SECRET not in process.environ.values()
    launch.interrupt()
    end = oracle.check(launch, 130)
    assert SECRET not in end.output
    for place in secret_places(cluster, scratch):
        assert holding_file(place, secret, mine) is None


@scenarios.add
def a_value_on_the_launchers_command_line_is_hidden_from_ps(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    put(job, "hold.py", "import signal\nprint('holding', flush=True)\nsignal.pause()\n")
    launch = job.start("--entry=hold.py", "--mode=collective", f"--env=TOKEN={HIDDEN}", forked=False)
    job.wait_until_holding(launch)
    assert {p.environ["TOKEN"] for p in job.wait_for_role("TRAINER").values()} == {HIDDEN}
    line = Path(f"/proc/{launcher_pid(launch.pid)}/cmdline").read_bytes()
    assert b"--env=TOKEN=***" in line
    assert HIDDEN.encode() not in line
    launch.interrupt()
    oracle.check(launch, 130)


def launcher_pid(pid: int) -> int:
    """The paddle.py below setpriv and nsenter, which may or may not have stayed."""
    line = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    if Path(line[0].decode()).name.startswith("python"):
        return pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return launcher_pid(int(child))


@scenarios.add
def a_variable_of_the_job_is_refused_before_any_connection(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    oracle.check(job.start("--env=RANK=0"), 2, r"--env RANK: RANK cannot be set: it is derived from")
    assert not [path for path in cluster.hosts[0].path("/root").glob("JOB*") if path.name != CANARY_ID]


def squat(host: Host, ports: range) -> subprocess.Popen[bytes]:
    code = (
        "import resource, signal, socket\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({len(ports) + 100}, {len(ports) + 100}))\n"
        f"kept = [socket.create_server(('', port)) for port in range({ports.start}, {ports.stop})]\n"
        "signal.pause()\n"
    )
    squatter = host.popen([sys.executable, "-c", code])
    wait_for("the squatter", lambda: ports[-1] in host.listening(), 20)
    return squatter


KEEPS = """
import os, stat
found = {name: oct(stat.S_IMODE(os.stat(name).st_mode)) for name in ("tool.sh", "key", "empty")}
assert found == {"tool.sh": "0o755", "key": "0o600", "empty": "0o750"}, found
if os.environ["RANK"] == "0":
    os.makedirs("output/empty/inside")
    os.rename("tool.sh", "output/tool.sh")
    os.rename("key", "output/key")
    os.chmod("output/empty", 0o750)
    os.utime("output/empty/inside", (10**9, 10**9))
"""


@scenarios.add
def permissions_times_and_empty_directories_travel_both_ways(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    put(job, "train.py", KEEPS)
    put(job, "tool.sh", "#!/bin/sh\n", 0o755)
    put(job, "key", "secret", 0o600)
    (job.workspace / "empty").mkdir(mode=0o750)
    job.conf["JOB_UMASK"] = 0o022
    oracle.check(job.start("--mode=collective"), 0)
    output = job.workspace / "output"
    found = {name: oct((output / name).stat().st_mode & 0o7777) for name in ("tool.sh", "key", "empty")}
    assert found == {"tool.sh": "0o755", "key": "0o600", "empty": "0o750"}
    assert (output / "empty/inside").stat().st_mtime == 10**9


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
