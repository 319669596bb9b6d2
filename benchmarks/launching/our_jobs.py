# SPDX-License-Identifier: Apache-2.0
"""Runs paddle.py on a test cluster as a user does and reads the times that it prints at the end."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.host import HOME
from tests.cluster.hosts import Cluster
from tests.cluster.launch import Launch

TIMES = re.compile(r"^times: (.*)$", re.MULTILINE)
PHASE = re.compile(r"([a-z ]+) ([\d.]+) s")
TO_THE_DISPATCH = ("start", "config", "connect", "preflight", "dispatch")
LIMIT_S = 900.0
BIG_FILE = 1 << 20
# Many hosts share few cores here: what a real machine answers in a second can take a minute.
PATIENCE: dict[str, object] = {"CONNECT_TIMEOUT_S": 120, "PREFLIGHT_TIMEOUT_S": 180, "LEASE_S": 50}


@dataclass(frozen=True)
class JobTimes:
    """The durations of one whole command.

    Attributes:
        wall_s: from the command to its end.
        phases: seconds by phase, as reported by paddle.py.
        gate_sent: bytes that left the launcher's machine.
    """

    wall_s: float
    phases: dict[str, float]
    gate_sent: int

    @property
    def dispatched_s(self) -> float:
        """Return the seconds from the command until the workspace is published on every node, without omissions.

        The later phases are subtracted from the wall clock, instead of adding up the earlier ones, so that time outside
        of phases is included.
        """
        known = sum(self.phases[name] for name in TO_THE_DISPATCH)
        return self.wall_s - (self.phases["total"] - known)

    @property
    def sending_s(self) -> float:
        """Return the seconds of logins and files alone, without interpreter, imports, digests and preflight."""
        return self.phases["connect"] + self.phases["dispatch"]


class OurJobs:
    """Starts jobs on all hosts of a cluster.

    Args:
        conf: assignments of conf.py.
    """

    def __init__(self, cluster: Cluster, scratch: Path, **conf: object) -> None:
        self._cluster = cluster
        self._scratch = scratch
        self._conf = {**PATIENCE, **conf}

    def start(
        self,
        workspace: Path,
        *args: str,
        root: str = "ours",
        mode: str = "collective",
        env: Mapping[str, str] | None = None,
    ) -> Launch:
        """Start a job.

        Args:
            root: directory below the hosts' /root that is ROOT_DIR.
            env: added to the launcher's environment.
        """
        conf = self._cluster.write_conf(self._scratch / "conf.py", ROOT_DIR=f"{HOME}/{root}", **self._conf)
        command = [f"--conf={conf}", f"--job_dispatch_package={workspace}", f"--mode={mode}", *args]
        return self._cluster.launch(command, cwd=self._scratch, env=env)

    def run(self, workspace: Path, *args: str, root: str = "ours") -> JobTimes:
        """Run a job to its end.

        Raises:
            RuntimeError: it failed; the message ends with its output.
        """
        sent_before, _ = self._cluster.gate_bytes()
        launch = self.start(workspace, *args, root=root)
        launch.wait(LIMIT_S)
        wall_s = launch.age_s
        sent, _ = self._cluster.gate_bytes()
        return JobTimes(wall_s, times_of(launch), sent - sent_before)

    def forget(self, root: str) -> None:
        """Remove the ROOT_DIR of every host.

        Small files are moved aside, not deleted: before ext4 creates a file, it scans the inodes freed within the last
        minutes, and the next measurement would include the cost of the deletion.
        """
        for host in self._cluster.hosts:
            set_aside(host.files.fs / "root" / root)

    def forget_jobs(self, root: str) -> None:
        """Remove the job directories of a ROOT_DIR from every host; cached files remain."""
        for host in self._cluster.hosts:
            for directory in (host.files.fs / "root" / root).glob("JOB*"):
                set_aside(directory)


def set_aside(directory: Path) -> None:
    """Move a directory aside."""
    if not directory.exists():
        return
    for path in directory.rglob("*"):
        if path.is_file() and path.stat().st_size > BIG_FILE:
            path.unlink()
    aside = directory.with_name(f".aside-{secrets.token_hex(8)}")
    directory.rename(aside)


def times_of(launch: Launch) -> dict[str, float]:
    """Return the seconds by phase of a finished job.

    Raises:
        RuntimeError: it failed; the message ends with its output.
    """
    said = TIMES.search(launch.output)
    if launch.poll() != 0 or said is None:
        raise RuntimeError(f"paddle.py ended with {launch.poll()}: {launch.output[-4000:]}")
    return {name.strip(): float(seconds) for name, seconds in PHASE.findall(said.group(1))}
