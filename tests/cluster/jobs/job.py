# SPDX-License-Identifier: Apache-2.0
"""Starts jobs on a test cluster and waits for their phases, seen from the hosts rather than from the screen."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.jobs.oracle import CANARY_ID, Oracle
from tests.cluster.launch import Launch
from tests.cluster.processes import HostProcess

STARTED_S = 30.0
ACTS = Path(__file__).with_name("workspaces") / "acts"
LEARN = ACTS.with_name("learn")
_over_ssh: dict[tuple[str, ...], tuple[list[str], list[str]]] = {}  # by arguments
_one_over_ssh = threading.Lock()


class JobRunner:
    """Runs one workspace on one cluster.

    Attributes:
        conf: assignments of conf.py that differ from `Cluster.write_conf`; change it before `start`.
        conf_tail: Python that is added to conf.py.
        workspace: the directory that is dispatched.
    """

    def __init__(self, cluster: Cluster, workspace: Path, scratch: Path) -> None:
        self.conf: dict[str, object] = {"STOP_GRACE_S": 1, "LEASE_S": 6, "CONNECT_TIMEOUT_S": 4}
        self.conf_tail = ""
        self.workspace = workspace
        self._cluster = cluster
        self._scratch = scratch
        self._count = 0

    def start(
        self,
        *args: str,
        package: bool = True,
        env: dict[str, str] | None = None,
        command: str = "",
        forked: bool = True,
    ) -> Launch:
        """Starts a job, or a command such as "doctor"; without `package` the arguments must say what runs.

        Without `forked` its command line is that of paddle.py.
        """
        self._count += 1
        conf = self._cluster.write_conf(self._scratch / f"conf_{self._count}.py", **self.conf)
        with conf.open("a") as file:
            file.write(self.conf_tail)
        given = [f"--job_dispatch_package={self.workspace}"] if package else []
        words = [command] if command else []
        words += [f"--conf={conf}", *given, *args]
        return self._cluster.launch(words, cwd=self._scratch, env=env, forked=forked)

    def learn(self) -> None:
        """Have the job learn something, with parameter servers of ours, instead of acting as it is told."""
        shutil.rmtree(self.workspace)
        shutil.copytree(LEARN, self.workspace)

    def failure(self) -> dict[str, Any]:
        """What the job wrote about its failure."""
        return dict(json.loads((self.workspace / "log" / "failure.json").read_text()))

    def processes(self, role: str) -> dict[str, HostProcess]:
        """Returns the job's process of a role ("PSERVER", "TRAINER") by host name."""
        found = {}
        for host in self._cluster.hosts:
            for process in (here := host.processes()):
                mine = process.job_id not in (None, CANARY_ID)
                if mine and process.environ.get("TRAINING_ROLE") == role and _is_top(process, here):
                    found[host.name] = process
        return found

    def wait_for_role(self, role: str, count: int = 3) -> dict[str, HostProcess]:
        """Waits until at least `count` hosts run a process of this role."""

        def enough() -> dict[str, HostProcess] | None:
            found = self.processes(role)
            return found if len(found) >= count else None

        found = wait_for(f"{count} processes of role {role}", enough, STARTED_S)
        assert found is not None
        return found

    def wait_until_holding(self, launch: Launch, count: int = 3) -> None:
        """Waits until so many trainers of a launch say that they hold."""
        wait_for(
            f"{count} trainers that hold",
            lambda: (
                launch.poll() is not None or len(re.findall(r"\] holding$", launch.output, re.M)) >= count
            ),
            STARTED_S,
        )
        assert launch.poll() is None, launch.output

    def job_dir(self, host: Host) -> Path:
        """The job directory on a host: there must be one beside the canary's."""
        (found,) = [path for path in host.path("/root").glob("JOB*") if path.name != CANARY_ID]
        return found

    def log(self, node_id: int, name: str) -> str:
        """A collected log."""
        return (self.workspace / "log" / f"node_{node_id}" / name).read_text()


def learnt(output: str) -> list[str]:
    """The digests of the parameters that each trainer ended with."""
    # a line of more than 256 KiB ends on the screen where a read of the pipe happened to end
    return sorted(re.findall(r"trainer \d parameters .*?(?= \.\.\. \(\d+ more characters|$)", output, re.M))


def files(folder: Path) -> list[str]:
    """What lies in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def learnt_over_ssh(job: JobRunner, oracle: Oracle, *args: str) -> tuple[list[str], list[str]]:
    """What the learning job ends with over SSH, and its logs; only the first scenario that asks runs it with `args`.

    The workspace is then that of the learning job, without results.
    """
    with _one_over_ssh:
        if args not in _over_ssh:
            job.learn()
            end = oracle.check(job.start(*args), 0)
            _over_ssh[args] = (learnt(end.output), files(job.workspace / "log"))
    job.learn()
    return _over_ssh[args]


def cut_off(host: Host) -> None:
    """Kill what carries the agent's connection; the callback agent that started it reconnects."""
    callback_agents = {
        process.pid: process for process in host.processes() if "_PADDLE_PORTER" in process.environ
    }
    carriers = [
        pid
        for pid, process in callback_agents.items()
        if process.ppid in callback_agents and process.argv == callback_agents[process.ppid].argv
    ]
    assert carriers, callback_agents
    for pid in carriers:
        os.kill(pid, signal.SIGKILL)


def cached(host: Host) -> int:
    """Bytes below a host's cache of sent files, half files included."""
    found = 0
    # not the trees beside it: they are renamed while one walks through them
    for file in host.path("/root/.paddle/cache").rglob("*"):
        try:
            found += file.stat().st_size if file.is_file() else 0
        except FileNotFoundError:  # it was renamed just now
            continue
    return found


def _is_top(process: HostProcess, here: Sequence[HostProcess]) -> bool:
    """Whether a process of this host was started by the agent and not by another process of the job."""
    parent = next((p for p in here if p.pid == process.ppid), None)
    return parent is None or "TRAINING_ROLE" not in parent.environ
