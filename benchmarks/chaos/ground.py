# SPDX-License-Identifier: Apache-2.0
"""Runs and observes jobs, on three hosts with an sshd each or on three embedded nodes of one host.

A job is observed on the hosts: by process tables, and by files that its trainers write outside the job.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.host import HOME, Host
from tests.cluster.hosts import ROOT, Cluster
from tests.cluster.jobs.oracle import CANARY_ID, Oracle, strangers
from tests.cluster.launch import Launch
from tests.cluster.processes import HostProcess

NODES = 3
LEASE_S = 8.0
_DISK_MB = 512
_WORKSPACE = Path(__file__).with_name("workspace")
_CONF: dict[str, object] = {
    "LEASE_S": LEASE_S,
    "STOP_GRACE_S": 1,
    "CONNECT_TIMEOUT_S": 4,
    "HEARTBEAT_TIMEOUT_S": 3,
    "RESTART_BACKOFF_S": 0.2,
    "STEP_TIMEOUT_S": 20,
}
_EMBEDDED: dict[str, object] = {
    "HOSTS": ["local"] * NODES,
    **dict.fromkeys(("PADDLE_NIC", "SSH_CONFIG", "SSH_KNOWN_HOSTS", "SSH_IDENTITY_FILES")),
}


@dataclass(frozen=True)
class Job:
    """The job of a run.

    Attributes:
        entry: train.py trains with parameter servers, ranks.py is a collective program.
        batches: per pass, of three passes.
        files: number of small files that trainer 0 writes to output/ at its end.
        hostile: whether trainers have grandchildren that escape.
    """

    entry: str
    batches: int
    files: int
    hostile: bool


class Ground:
    """A cluster with a canary on each host, and the jobs on it; a context manager.

    The workspaces of the jobs are on a separate file system, which `freeze` stalls.

    Args:
        where: "ssh", or "local" for embedded nodes.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        # not /tmp, which each host has separately
        self._scratch = Path(tempfile.mkdtemp(prefix="paddle-chaos-", dir="/var/tmp"))
        self._disk = self._scratch / "disk"
        self._mount_disk()  # before the hosts copy the mount table
        self._cluster = Cluster(NODES if where == "ssh" else 1)
        self._oracle = Oracle(self._cluster)
        self._count = 0

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_: object) -> None:
        self._oracle.close()
        self._cluster.close()
        self.thaw()
        subprocess.run(["umount", "--lazy", self._disk], check=True)
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _mount_disk(self) -> None:
        image = self._scratch / "disk.img"
        image.touch()
        os.truncate(image, _DISK_MB << 20)
        self._disk.mkdir()
        subprocess.run(["mkfs.ext4", "-q", "-N", "100000", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, self._disk], check=True)

    # -- one job

    def start(self, job: Job) -> Launch:
        """Start a job with its own workspace."""
        self._count += 1
        for host in self._cluster.hosts:
            for pattern in ("beats-*", "leave-*", "parameters-*", "JOB*"):
                for path in host.path(HOME).glob(pattern):
                    if path.name != CANARY_ID:
                        shutil.rmtree(path) if path.is_dir() else path.unlink()
        shutil.rmtree(self.workspace, ignore_errors=True)
        shutil.copytree(_WORKSPACE, self.workspace)
        conf = self._scratch / f"conf-{self._count}.py"
        self._cluster.write_conf(conf, **_CONF, **({} if self.where == "ssh" else _EMBEDDED))
        args = [
            f"--conf={conf}",
            f"--job_dispatch_package={self.workspace}",
            *((f"--entry={job.entry}", "--mode=collective") if job.entry != "train.py" else ()),
            "--",  # the following arguments are the script's
            f"--batches={job.batches}",
            f"--files={job.files}",
            f"--places={HOME}",
            f"--hostile={int(job.hostile)}",
        ]
        if self.where == "ssh":
            return self._cluster.launch(args, cwd=self._scratch)
        command = [sys.executable, str(ROOT / "paddle.py"), *args]
        return Launch(
            self._cluster.hosts[0].inside.command(command),
            cwd=self._scratch,
            env={**self._cluster.launcher_env(), "HOME": HOME},
            log=self._scratch / f"launch-{self._count}.out",
        )

    @property
    def workspace(self) -> Path:
        """Return the workspace of the running or last job."""
        return self._disk / "ws"

    def freeze(self) -> None:
        """Block all writes to the workspace's disk until `thaw`."""
        subprocess.run(["fsfreeze", "--freeze", self._disk], check=True)

    def thaw(self) -> None:
        """Unblock writes to the workspace's disk; does nothing to a disk that is not frozen."""
        subprocess.run(["fsfreeze", "--unfreeze", self._disk], capture_output=True, check=False)

    def launcher(self, launch: Launch) -> int | None:
        """Return the process ID of a launcher, or None before its start and after its end."""
        if self.where == "ssh":
            return launch.pid
        found = (one for one in self._cluster.hosts[0].processes() if "paddle.py" in " ".join(one.argv[:2]))
        return min((one.pid for one in found if one.job_id is None), default=None)

    # -- what is observed on the hosts

    def host(self, node: int) -> Host:
        """Return the host of a node of the job."""
        return self._cluster.hosts[node if self.where == "ssh" else 0]

    def label(self, node: int) -> str:
        """Return the launcher's name for a node."""
        return f"root@{self._cluster.hosts[node].name}" if self.where == "ssh" else f"local-{node}"

    def beats(self) -> int:
        """Return the number of steps of all trainers so far."""
        return sum(_size(self.host(node).path(f"{HOME}/beats-{node}")) for node in range(NODES))

    def parameters(self) -> set[str]:
        """Return the digests of the trainers' final parameters; an incomplete one is shorter."""
        paths = [self.host(node).path(f"{HOME}/parameters-{node}") for node in range(NODES)]
        return {
            path.read_text() if path.exists() else f"trainer {node} has no process"
            for node, path in enumerate(paths)
        }

    def process(self, name: str, node: int) -> HostProcess | None:
        """Return the process of the job named like "trainer-1", without its children, or None."""
        found = [
            one
            for one in self.host(node).processes()
            if one.environ.get("PADDLE_PROC") == name and one.job_id not in (None, CANARY_ID)
        ]
        pids = {one.pid for one in found}
        return next((one for one in found if one.ppid not in pids and _is_program(one)), None)

    def agent(self, node: int) -> list[int]:
        """Return a node's agent, its guard and its watcher, innermost first; fewer if some have exited."""
        trainer = self.process(f"trainer-{node}", node)
        parents = {one.pid: one.ppid for one in self.host(node).processes()}
        found: list[int] = []
        pid = parents.get(trainer.pid) if trainer else None
        while pid in parents and len(found) < 3 and pid is not None:
            found.append(pid)
            pid = parents[pid]
        return found

    def wait_for_clean(self, within_s: float) -> None:
        """Wait until nothing of the job remains on any host; the canaries must be unchanged.

        Raises:
            AssertionError: something remains, or a canary was affected.
        """
        self._oracle.check_clean(within_s)

    def wait_for_clean_without_cable(self, node: int, within_s: float) -> None:
        """Wait until nothing of the job remains on an unreachable host, then connect its cable again.

        Raises:
            AssertionError: something remains.
        """
        host = self.host(node)
        known = {one.pid for one in host.job_processes(CANARY_ID)}
        # sshd itself waits for its broken connection until TCP times out
        wait_for(
            f"the end of the job on the unreachable host {host.name}",
            lambda: all("sshd: " in each for each in strangers(host, known)),
            within_s,
        )
        host.drop_connections()
        host.heal()

    def sweep(self) -> None:
        """End all processes that a failed run left, so that the next run starts clean."""
        self._cluster.end_launches()
        self._oracle.close()
        self._cluster.reset(keep_runtime=True)
        self._oracle = Oracle(self._cluster)

    def heal(self) -> None:
        """Reconnect all cables, reopen all paths, and unblock the disk."""
        self.thaw()
        for host in self._cluster.hosts:
            host.heal()
            for other in self._cluster.hosts:
                host.rejoin(other.address)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process of a host."""
    os.kill(pid, number)


def wait_for_beats(ground: Ground, launch: Launch, more_than: int, within_s: float) -> bool:
    """Wait until the trainers have made more than the given number of steps; return whether the job still ran."""
    wait_for(
        f"more than {more_than} steps",
        lambda: ground.beats() > more_than or launch.poll() is not None,
        within_s,
        0.005,
    )
    return launch.poll() is None


def first_error(output: str) -> str:
    """Return the cause named by a launcher, or ""."""
    found = re.search(r"^FIRST ERROR: (.*)$", output, re.MULTILINE)
    return found.group(1) if found else ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def _is_program(process: HostProcess) -> bool:
    """Return whether a process was started by the agent and is not an escaped grandchild."""
    return any(word in process.argv for word in ("train.py", "ranks.py", "pserver"))
