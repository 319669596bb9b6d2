# SPDX-License-Identifier: Apache-2.0
"""Jobs that a user's own mpirun starts with start_mpi_train.sh: the job of paddle.py, and as little left of it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.beside import Outcomes, Scenarios
from tests.cluster import sshd
from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.job import LEARN, STARTED_S, JobRunner
from tests.cluster.jobs.oracle import Oracle
from tests.cluster.jobs.own_hosts import BESIDE_S, own_hosts
from tests.cluster.launch import Launch

LACKING = "" if shutil.which("mpirun") else "needs mpirun (Debian: openmpi-bin)"
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(BESIDE_S),
    pytest.mark.skipif(bool(LACKING), reason=LACKING),
]

scenarios = Scenarios(own_hosts)
outcomes = scenarios.fixture()

TEMPLATE = ROOT / "workspace_template"
WS = "/root/ws"
LOGS = {"server.log", "train.log", "paddle_pserver2.INFO", "paddle_trainer.INFO"}
TEXT = "the cat sat on the mat\na dog ran to the door\n" * 60
HOLDS = "--wait=1:/root/go-on"
# Rank 2 goes on when the others are done.
LAST_GOES_ON = """
import os, runpy, time
learnt = runpy.run_path("learn.py", run_name="__main__")
if os.environ["OMPI_COMM_WORLD_RANK"] == "2":
    while not os.path.exists("/root/go-on"):
        time.sleep(0.01)
    learnt["trainer"].train(learnt["reader"], num_passes=1)
    print("went on")
"""


class FromMpirun:
    """A job of this kind on a cluster: what its user copies to the hosts, and the mpirun on the gate.

    Attributes:
        given: variables that mpirun hands on.
    """

    def __init__(self, cluster: Cluster, *, by_name: bool = False) -> None:
        self._cluster = cluster
        self.machines = "".join(f"{host.name if by_name else host.address}\n" for host in cluster.hosts)
        self.given = {
            "PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT / "runtime"),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "PADDLE_RESTART_COUNT": "0",  # the script of LEARN asks for it
        }
        (cluster.state / "machines").write_text(self.machines)
        self._config = cluster.state / "by_address"
        self._config.write_text(ssh_config(cluster, cluster.identity, cluster.known_hosts))

    def copy(self, workspace: Path, *shared: str) -> None:
        """To every host what the manual says: the script, train.py, the hostfile, its own piece of the data."""
        for rank, host in enumerate(self._cluster.hosts):
            folder = host.path(WS)
            folder.mkdir()
            (folder / "machines").write_text(self.machines)
            shutil.copy(TEMPLATE / "start_mpi_train.sh", folder)
            for name in ("train.py", *shared):
                shutil.copy(workspace / name, folder)
            for piece in workspace.glob(f"*.txt-{rank:05d}"):
                shutil.copy(piece, folder)

    def copy_learn(self) -> None:
        """A small job that learns, or waits, or dies as it is told."""
        self.copy(LEARN)

    def argv(self, *args: str, machines: Path, n: int = 3, mapping: tuple[str, ...] = ()) -> list[str]:
        """The command of the user."""
        variables = [word for name, text in self.given.items() for word in ("-x", f"{name}={text}")]
        count = ("--allow-run-as-root", "-hostfile", str(machines), "-n", str(n))
        return ["mpirun", *count, *mapping, *variables, "sh", f"{WS}/start_mpi_train.sh", *args]

    def start(self, *args: str, n: int = 3, mapping: tuple[str, ...] = ()) -> Launch:
        """mpirun, on the gate."""
        argv = self.argv(*args, machines=self._cluster.state / "machines", n=n, mapping=mapping)
        return self._cluster.start(argv, env=agent(self._config))

    def wait_for(self, role: str, count: int = 3) -> dict[str, int]:
        """Waits until so many hosts run a process of this role; returns its id by host."""

        def look() -> dict[str, int] | None:
            found = {host.name: pid for host in self._cluster.hosts if (pid := of_role(host, role))}
            return found if len(found) == count else None

        found = wait_for(f"{count} times {role}", look, STARTED_S)
        assert found is not None
        return found

    def wait_until_training(self) -> None:
        """Waits until every trainer has met the others at their parameter servers, and holds."""

        def all_there() -> bool:
            logs = [host.path(f"{WS}/logs/server.log") for host in self._cluster.hosts]
            return all(log.exists() and "setParameter" in log.read_text() for log in logs)

        wait_for("parameters on the servers", all_there, STARTED_S)
        self.wait_for("TRAINER")

    def log(self, host: Host, name: str) -> str:
        """A log of a host."""
        return host.path(f"{WS}/logs/{name}").read_text()


def ssh_config(cluster: Cluster, identity: Path, known_hosts: Path) -> str:
    """A configuration that reaches hosts by what `machines` has, addresses or names."""
    names = [(name, host.address) for host in cluster.hosts for name in (host.address, host.name)]
    return sshd.client_config(names, "root", identity, known_hosts)


def agent(config: Path) -> dict[str, str]:
    return {
        "OMPI_MCA_plm_rsh_agent": f"ssh -F {config} -o BatchMode=yes",
        # what docs/engines.md has the user write into mca-params.conf
        "OMPI_MCA_rmaps_base_mapping_policy": "ppr:1:node",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }


def of_role(host: Host, role: str) -> int:
    """The id of a host's process of a role, or 0."""
    found = [process.pid for process in host.processes() if process.environ.get("TRAINING_ROLE") == role]
    return found[0] if found else 0


def named(host: Host, name: str) -> list[int]:
    """The processes of a host that run a program."""
    return [process.pid for process in host.processes() if Path((*process.argv, "")[0]).name == name]


def parameters(model: Path) -> Mapping[str, bytes]:
    """What a model file holds, by name."""
    with tarfile.open(model) as tar:
        return {each.name: file.read() for each in tar if (file := tar.extractfile(each)) is not None}


def word2vec(folder: Path) -> None:
    """The template with the data of a small text, in three pieces."""
    shutil.rmtree(folder)
    shutil.copytree(TEMPLATE, folder)
    text = folder.with_name("text.txt")
    text.write_text(TEXT)
    prepare = [
        sys.executable,
        str(folder / "prepare.py"),
        f"--corpus={text}",
        "--split_count=3",
        f"--out={folder}",
    ]
    subprocess.run(prepare, check=True, capture_output=True, timeout=60)


@scenarios.add
def word2vec_learns_what_it_learns_over_ssh(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    word2vec(job.workspace)
    one_thread = ("--env=OMP_NUM_THREADS=1", "--env=OPENBLAS_NUM_THREADS=1")
    oracle.check(job.start("--num_passes=2", *one_thread), 0)
    over_ssh = parameters(job.workspace / "output/pass-00001/params.tar.gz")
    costs = re.findall(r"^Pass .*", job.log(1, "train.log"), re.M)
    mpi = FromMpirun(cluster)
    mpi.given["PADDLE_INIT_NUM_PASSES"] = "2"
    mpi.copy(job.workspace, "word_dict.pickle")
    oracle.check(mpi.start(), 0, r"trainer 2 of 3")  # the manual's command
    assert over_ssh == parameters(cluster["node-a"].path(f"{WS}/output/pass-00001/params.tar.gz"))
    assert re.findall(r"^Pass .*", mpi.log(cluster["node-b"], "train.log"), re.M) == costs
    for node, host in enumerate(cluster.hosts):
        ours = {path.name for path in host.path(f"{WS}/logs").iterdir()}
        theirs = {path.name for path in (job.workspace / f"log/node_{node}").iterdir()}
        assert ours & theirs >= LOGS, (ours, theirs)


@scenarios.add
def a_host_may_have_an_address_of_its_own_for_its_name(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    """As Debian's installer writes it: 127.0.1.1, where nobody else reaches it."""
    mpi = FromMpirun(cluster, by_name=True)
    mpi.copy_learn()
    files = [host.files.etc / "hosts" for host in cluster.hosts]
    before = [file.read_text() for file in files]
    try:
        for host, file, text in zip(cluster.hosts, files, before, strict=True):
            file.write_text(text.replace(f"{host.address} ", "127.0.1.1 "))
        oracle.check(mpi.start(), 0)
    finally:
        for file, text in zip(files, before, strict=True):
            file.write_text(text)
    assert "listening on all addresses" in mpi.log(cluster["node-a"], "server.log")


@scenarios.add
def signals_end_a_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    for number in (signal.SIGINT, signal.SIGTERM):
        launch = mpi.start(HOLDS)
        mpi.wait_until_training()
        launch.send(number)
        assert launch.wait(20) != 0
        oracle.check_clean()


@scenarios.add
def a_killed_mpirun_leaves_nothing(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    launch = mpi.start(HOLDS)
    mpi.wait_until_training()
    launch.send(signal.SIGKILL)
    assert launch.wait(5) == -signal.SIGKILL
    oracle.check_clean()


@scenarios.add
def a_killed_mpirun_leaves_nothing_on_its_own_host(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    """There is no orted on that one: nobody but the kernel tells its rank."""
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    head = cluster["node-a"]
    keys = Path("/root/.ssh")
    for file in (cluster.identity, cluster.known_hosts):
        shutil.copy(file, head.path(keys))
    head.path(keys / cluster.identity.name).chmod(0o600)
    config = ssh_config(cluster, keys / cluster.identity.name, keys / cluster.known_hosts.name)
    head.path(keys / "by_address").write_text(config)
    child = head.popen(mpi.argv(HOLDS, machines=Path(WS, "machines")), env=agent(keys / "by_address"))
    try:
        mpi.wait_until_training()
        assert not named(head, "orted")
        (mpirun,) = named(head, "mpirun")
        os.kill(mpirun, signal.SIGKILL)
        oracle.check_clean()
    finally:
        head.end(child)


@scenarios.add
def a_killed_orted_ends_the_job(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    launch = mpi.start(HOLDS)
    mpi.wait_until_training()
    for pid in named(cluster["node-b"], "orted"):
        os.kill(pid, signal.SIGKILL)
    assert launch.wait(30) != 0
    oracle.check_clean()


@scenarios.each("kill", "exit_3")
def the_trainer_that_fails_ends_all_and_is_named(
    how: str, cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    launch = mpi.start(f"--die=1:2:{how}")
    said = "killed by SIGKILL" if how == "kill" else "exit code 3"
    oracle.check(launch, 1, rf"trainer 1 failed: {said}", f"trainer 1 comes to grief: {how}")


@scenarios.add
def a_pserver_that_fails_ends_all_and_is_named(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    launch = mpi.start(HOLDS)
    mpi.wait_until_training()
    os.kill(of_role(cluster["node-c"], "PSERVER"), signal.SIGKILL)
    oracle.check(launch, 1, "pserver 2 failed: killed by SIGKILL")


@scenarios.add
def a_killed_rank_takes_its_pserver_and_its_trainer_with_it(
    cluster: Cluster, job: JobRunner, oracle: Oracle
) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    launch = mpi.start(HOLDS)
    mpi.wait_until_training()
    orted = named(cluster["node-b"], "orted")
    (rank,) = [process.pid for process in cluster["node-b"].processes() if process.ppid in orted]
    os.kill(rank, signal.SIGKILL)
    assert launch.wait(30) != 0
    oracle.check_clean()


@scenarios.add
def pservers_serve_until_the_last_trainer_is_done(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    (job.workspace / "train.py").write_text(LAST_GOES_ON)
    shutil.copy(LEARN / "train.py", job.workspace / "learn.py")
    mpi = FromMpirun(cluster)
    mpi.given["PADDLE_JOB_KEY"] = "5e" * 32
    mpi.copy(job.workspace, "learn.py")
    launch = mpi.start()

    def is_done(host: Host) -> bool:
        log = host.path(f"{WS}/logs/train.log")
        return log.exists() and "is done" in log.read_text() and not of_role(host, "TRAINER")

    wait_for("two trainers that are done", lambda: all(map(is_done, cluster.hosts[:2])), STARTED_S)
    assert set(mpi.wait_for("PSERVER")) == {host.name for host in cluster.hosts}
    assert launch.poll() is None, launch.output
    cluster["node-c"].path("/root/go-on").touch()
    oracle.check(launch, 0)
    assert "went on" in mpi.log(cluster["node-c"], "train.log")
    assert "not encrypted" not in mpi.log(cluster["node-c"], "server.log")


@scenarios.add
def a_script_that_never_trains_ends_all_the_same(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    (job.workspace / "train.py").write_text("print('nothing to learn')\n")
    mpi = FromMpirun(cluster)
    mpi.given |= {"PADDLE_INIT_BARRIER_TIMEOUT_S": "1", "SHARED_HOME": "1"}
    mpi.copy(job.workspace)
    oracle.check(mpi.start(), 0)
    for rank, host in enumerate(cluster.hosts):
        assert "nothing to learn" in mpi.log(host, f"node_{rank}/train.log")
        told = mpi.log(host, f"node_{rank}/server.log")
        assert "disconnected without a message: trainers 0 (never seen), 1 (never seen)" in told


@scenarios.add
def what_cannot_be_is_told_before_anything_starts(cluster: Cluster, job: JobRunner, oracle: Oracle) -> None:
    mpi = FromMpirun(cluster)
    mpi.copy_learn()
    packed = ("--map-by", "ppr:2:node")
    oracle.check(mpi.start(n=2, mapping=packed), 2, r"2 ranks on this host.* --map-by ppr:1:node")
    for host in cluster.hosts:
        host.path(f"{WS}/machines").write_text(f"# the head\nroot@{host.address} slots=1\n")
    oracle.check(mpi.start(), 2, r"mpirun starts 3 ranks, .*/root/ws/machines has 1 host")
    for host in cluster.hosts:
        host.path(f"{WS}/machines").write_text("10.9.9.1\n10.9.9.2\n10.9.9.3\n")
    oracle.check(mpi.start(), 2, r"none of 10\.9\.9\.1,.* is an address of this machine")
    assert not [host for host in cluster.hosts if host.path(f"{WS}/logs").exists()]


@pytest.mark.parametrize("scenario", scenarios)
def test_on_hosts_of_its_own(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
