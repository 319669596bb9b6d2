# SPDX-License-Identifier: Apache-2.0
"""What must hold after every fault, whatever it was: the invariants that each cluster test ends with.

I1 no process of the job is left on a node that can be reached; I2 the launcher ended by itself in bounded time with
the documented code and named the cause; I3 nobody else's process or file was touched; I6 the job's key is nowhere to
be read; I7 no port is left listening.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.deadline import wait_for
from tests.cluster.host import Host
from tests.cluster.hosts import Cluster
from tests.cluster.launch import Launch

CLEAN_S = 15.0
CANARY_ID = "JOB19991231235959-cafe00"
CANARY_FILES = {
    f"/root/{CANARY_ID}/log/train.log": "somebody else's job\n",
    f"/root/{CANARY_ID}/train.py": "print('hold')\n",
    "/root/thesis.txt": "do not touch\n",
    "/root/log/train.log": "not of a job\n",
}
CANARY = ["/run/host/python", "-c", "read -r _ <>/run/host/never", "paddle pserver", "train.py"]
LAUNCHER_TRACEBACK = re.compile(
    r"Traceback \(most recent call last\):\n(?:  .*\n)*?  File \"[^\"]*/launcher/"
)


@dataclass(frozen=True)
class End:
    """How a launcher ended.

    Attributes:
        code: its exit code, -n for signal n.
        output: all it printed.
    """

    code: int
    output: str


class Oracle:
    """Watches a cluster: puts a stranger's job and files on every host, and checks the invariants."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._canaries: dict[str, set[int]] = {}
        self._services: set[str] = set()
        self._ports = {22}
        self._children: list[tuple[Host, subprocess.Popen[bytes]]] = []
        for host in cluster.hosts:
            for name, text in CANARY_FILES.items():
                path = host.path(name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            self._children.append((host, host.popen(CANARY, env={"PADDLE_JOB_ID": CANARY_ID})))
        for host in cluster.hosts:
            self._canaries[host.name] = wait_for_canary(host)

    def allow(self, program: str, port: int) -> None:
        """A service that runs on the hosts, whatever becomes of jobs."""
        self._services.add(program)
        self._ports.add(port)

    def close(self) -> None:
        """Ends the canaries."""
        for host, child in self._children:
            host.end(child)

    def check(
        self,
        launch: Launch,
        code: int,
        *says: str,
        within_s: float = 60.0,
        unreachable: Sequence[Host] = (),
        never: Sequence[str] = (),
    ) -> End:
        """Waits for the end of a launcher and checks every invariant.

        Args:
            code: the exit code it must have.
            says: patterns its output must match, searched.
            within_s: how long it may still take.
            unreachable: hosts that are not looked at.
            never: patterns its output must not match.
        """
        got = launch.wait(within_s)
        output = launch.output
        assert got == code, f"exit code {got}, expected {code}:\n{output}"
        for pattern in says:
            assert re.search(pattern, output, re.MULTILINE), f"no /{pattern}/ in:\n{output}"
        for pattern in (*never, LAUNCHER_TRACEBACK.pattern):
            assert not re.search(pattern, output, re.MULTILINE), f"/{pattern}/ in:\n{output}"
        self.check_clean(unreachable=unreachable)
        return End(got, output)

    def check_clean(self, within_s: float = CLEAN_S, unreachable: Sequence[Host] = ()) -> None:
        """Checks that the hosts are as they were before the job, files of the job left out."""
        hosts = [host for host in self._cluster.hosts if host.alive and host not in unreachable]
        for host in hosts:
            what = f"processes left on {host.name}"
            wait_for_none(what, host, self._canaries[host.name], within_s, self._services)
            wait_for_ports_closed(host, within_s, self._ports)
            self._check_canary(host)

    def check_secret(self, secret: str, *places: Path) -> None:
        """Checks that no file below `places` holds the secret."""
        for place in places:
            for path in place.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    assert secret.encode() not in path.read_bytes(), f"the job's key is in {path}"

    def _check_canary(self, host: Host) -> None:
        alive = {process.pid for process in host.job_processes(CANARY_ID)}
        assert alive == self._canaries[host.name], f"another job's process was ended on {host.name}"
        for name, text in CANARY_FILES.items():
            assert host.path(name).read_text() == text, f"{name} on {host.name} was changed"


def wait_for_canary(host: Host) -> set[int]:
    """Returns the pids of the canary of a host once it runs."""
    found = wait_for(f"the canary on {host.name}", lambda: host.job_processes(CANARY_ID), 10)
    return {process.pid for process in found}


def wait_for_ports_closed(host: Host, within_s: float, open_ports: Set[int] = frozenset((22,))) -> None:
    """Waits until a host listens on nothing but SSH and its services."""
    wait_for(f"only ports {open_ports} on {host.name}", lambda: host.listening() <= open_ports, within_s)


def strangers(host: Host, known: set[int], services: Set[str] = frozenset()) -> list[str]:
    """Says what runs on a host beside its init, its sshd, its services and the known processes."""
    listener = {process.pid for process in host.processes() if "[listener]" in " ".join(process.argv[:1])}
    found = []
    for process in host.processes():
        is_own = process.pid == host.inside.pid or (
            process.ppid == host.inside.pid and process.argv == ("cat",)
        )
        is_own = is_own or (bool(process.argv) and Path(process.argv[0]).name in services)
        if not is_own and process.pid not in known | listener:
            found.append(f"{process.pid} {' '.join(process.argv)[:100]} job={process.job_id}")
    return found


def wait_for_none(
    what: str, host: Host, known: set[int], within_s: float, services: Set[str] = frozenset()
) -> None:
    """Waits until a host runs nothing but what is known."""
    try:
        wait_for(what, lambda: not strangers(host, known, services), within_s)
    except AssertionError:
        raise AssertionError(f"{what} after {within_s:g} s: {strangers(host, known, services)}") from None
