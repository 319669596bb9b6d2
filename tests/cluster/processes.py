# SPDX-License-Identifier: Apache-2.0
"""What runs and listens in a pid namespace, read from outside through /proc.

Read from outside on purpose: the agent under test must not be asked whether it cleaned up, and a command
that looks from inside would see itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"


@dataclass(frozen=True)
class HostProcess:
    """One live process of a host.

    Attributes:
        pid: its id as the test process sees it (os.kill works with it).
        ppid: its parent, in the same numbering.
        argv: its command line; empty for a process that is ending.
        job_id: PADDLE_JOB_ID of its environment, or None.
        environ: its environment as it was at exec.
    """

    pid: int
    ppid: int
    argv: tuple[str, ...]
    job_id: str | None
    environ: dict[str, str]


def processes_of(init_pid: int) -> list[HostProcess]:
    """Returns the live processes of the host whose first one is `init_pid`, zombies left out.

    They are on its network, and in its pid namespace or, as in a container, in one below; not in that of the tests.
    """
    try:
        network, ours = os.readlink(f"/proc/{init_pid}/ns/net"), os.readlink("/proc/self/ns/pid")
    except OSError:
        return []
    found = []
    # this is polled, and of its cost paths would be the most
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/ns/net") == network and os.readlink(f"/proc/{pid}/ns/pid") != ours:
                found.append(_read(pid))
        except (OSError, _EndedError):
            continue
    return sorted(found, key=lambda process: process.pid)


def listening_ports(pid: int) -> set[int]:
    """Returns the TCP ports that something listens on in the network namespace of `pid`."""
    return {int(fields[1].rsplit(":", 1)[1], 16) for fields in _sockets(pid) if fields[3] == LISTEN}


def _sockets(pid: int) -> Iterator[list[str]]:
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        yield from (line.split() for line in lines)


class _EndedError(Exception):
    """The process is a zombie."""


def _read(pid: str) -> HostProcess:
    state, parent = _file(pid, "stat").rpartition(b")")[2].split()[:2]
    if state in b"ZX":
        raise _EndedError
    argv = _file(pid, "cmdline").decode(errors="replace").split("\0")[:-1]
    pairs = (item.partition("=") for item in _file(pid, "environ").decode(errors="replace").split("\0"))
    environ = {name: value for name, sign, value in pairs if sign}
    return HostProcess(int(pid), int(parent), tuple(argv), environ.get("PADDLE_JOB_ID"), environ)


def _file(pid: str, name: str) -> bytes:
    with open(f"/proc/{pid}/{name}", "rb", buffering=0) as file:
        return file.readall()
