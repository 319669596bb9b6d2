# SPDX-License-Identifier: Apache-2.0
"""Debian's Slurm on test hosts: a controller and munge on the launcher's side, a slurmd on each host."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.hosts import Cluster

TOOLS = ("munged", "slurmctld", "slurmd", "salloc", "srun", "scontrol", "scancel")
UP_S = 60.0
PORT = 6818  # of every slurmd

CONF = """\
ClusterName=test
SlurmctldHost={controller}({gate})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
SlurmdPort={port}
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
KillWait=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing_slurm() -> str:
    """Says what is missing for a Slurm, or returns an empty string."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    return f"needs {', '.join(missing)} (Debian: slurm-wlm munge)" if missing else ""


class Slurm:
    """A Slurm that runs, with one allocation of all its nodes.

    Attributes:
        env: what a program needs to be inside the allocation.
    """

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.env = {"SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, *argv: str) -> str:
        """What a command of Slurm answers."""
        words = [f"{name}={value}" for name, value in self.env.items()]
        done = self._cluster.run(["env", *words, *argv], check=False)
        return done.stdout + done.stderr

    def allocate(self) -> None:
        """Take all nodes."""
        count = len(self._cluster.hosts)
        granted = self.run("salloc", f"--nodes={count}", "--no-shell")
        found = re.search(r"Granted job allocation (\d+)", granted)
        assert found, granted
        nodes = self.run("squeue", "-h", "-j", found[1], "-o", "%N").strip()
        self.env |= {"SLURM_JOB_ID": found[1], "SLURM_JOBID": found[1], "SLURM_JOB_NODELIST": nodes}
        self.env["SLURM_EXPORT_ENV"] = "NONE"  # what a batch job of `--export=NONE` finds

    def cancel(self) -> None:
        """Take the nodes away."""
        self.run("scancel", self.env["SLURM_JOB_ID"])

    def steps(self) -> str:
        """The steps that run, as `squeue` lists them."""
        return self.run("squeue", "-s", "-h", "-o", "%i %j").strip()


@contextlib.contextmanager
def slurm(cluster: Cluster) -> Iterator[Slurm]:
    """A Slurm over the hosts of a cluster for a while."""
    # below none of the directories that each host has for itself
    with (
        tempfile.TemporaryDirectory(dir="/var/tmp", prefix="paddle-slurm-") as name,
        contextlib.ExitStack() as ends,
    ):
        folder = Path(name)
        folder.chmod(0o755)
        for each in ("state", *(host.name for host in cluster.hosts)):
            (folder / each).mkdir()
        _write_files(cluster, folder)
        made = Slurm(cluster, folder)
        conf = made.env["SLURM_CONF"]
        ends.enter_context(
            _ended(subprocess.Popen(_munged(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        )
        wait_for("munge", (folder / "munge.socket").exists, UP_S)
        ends.enter_context(
            _ended(cluster.popen(["setpriv", "--pdeathsig", "KILL", "slurmctld", "-D", "-f", conf]))
        )
        for host in cluster.hosts:
            child = host.popen(["slurmd", "-D", "-N", host.name, "-f", conf], env={"SLURM_CONF": conf})
            ends.callback(host.end, child)
        count = len(cluster.hosts)
        wait_for("idle nodes", lambda: made.run("sinfo", "-h", "-o", "%n %t").count(" idle\n") == count, UP_S)
        yield made


def _write_files(cluster: Cluster, folder: Path) -> None:
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    (folder / "cgroup.conf").write_text(
        "CgroupPlugin=cgroup/v1\n"
    )  # hosts have none, and it is not looked for
    conf = CONF.format(controller=socket.gethostname(), gate=cluster.gate_address, folder=folder, port=PORT)
    nodes = "".join(
        f"NodeName={host.name} NodeAddr={host.address} CPUs={os.cpu_count()}\n" for host in cluster.hosts
    )
    (folder / "slurm.conf").write_text(nodes + conf)


def _munged(folder: Path) -> list[str]:
    files = [f"--{what}-file={folder}/munge.{what}" for what in ("key", "pid", "log", "seed")]
    return [
        *("setpriv", "--pdeathsig", "KILL", "munged", "--foreground", "--force"),
        f"--socket={folder}/munge.socket",
        *files,
    ]


@contextlib.contextmanager
def _ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        child.terminate()
        try:
            child.wait(10)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait(10)
