# SPDX-License-Identifier: Apache-2.0
"""What runs and listens in a pid namespace, read from outside through /proc.

Read from outside on purpose: the agent under test must not be asked whether it cleaned up, and a command
that looks from inside would see itself.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

CLONE_NEWNET = 0x40000000
NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY, DUMP, DONE, LISTENING = 20, 0x301, 3, 1 << 10
REQUEST = struct.Struct("=IHHIIBBBxI48x")
ANSWER = struct.Struct("=IHHII4x")  # nlmsghdr, and what comes before the port of inet_diag_msg
FORGET_S = 2.0  # an id is not given again so soon
# When it was begun, and the ids of processes in the pid namespace of the tests: they stay there, and so on no host.
_elsewhere: tuple[float, frozenset[str]] = (0.0, frozenset())


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
    global _elsewhere
    began, elsewhere = _elsewhere
    if time.monotonic() > began + FORGET_S:
        began, elsewhere = time.monotonic(), frozenset()
    found, here = [], []
    # this is polled, and of its cost paths would be the most
    pids = frozenset(filter(str.isdigit, os.listdir("/proc")))
    for pid in pids - elsewhere:
        try:
            if os.readlink(f"/proc/{pid}/ns/pid") == ours:
                here.append(pid)
            elif os.readlink(f"/proc/{pid}/ns/net") == network:
                found.append(_read(pid))
        except (OSError, _EndedError):
            continue
    _elsewhere = (began, (pids & elsewhere).union(here))
    return sorted(found, key=lambda process: process.pid)


def listening_ports(pid: int) -> set[int]:
    """Returns the TCP ports that something listens on in the network namespace of `pid`.

    The kernel is asked for sockets that listen; for /proc/net/tcp it would go through the connections of all hosts.
    """
    with ThreadPoolExecutor(1) as another:  # which enters that namespace
        return another.submit(_listening, pid).result()


def _listening(pid: int) -> set[int]:
    found: set[int] = set()
    try:
        namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    except OSError:
        return found  # the host is off
    entered = ctypes.CDLL(None).setns(namespace, CLONE_NEWNET)
    os.close(namespace)
    assert entered == 0, f"cannot enter the network of process {pid}"
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        for family in (socket.AF_INET, socket.AF_INET6):
            wanted = (family, socket.IPPROTO_TCP, 0, LISTENING)
            kernel.send(REQUEST.pack(REQUEST.size, SOCK_DIAG_BY_FAMILY, DUMP, 0, 0, *wanted))
            while not _ports(kernel.recv(1 << 16), found):
                pass
    return found


def _ports(data: bytes, found: set[int]) -> bool:
    """Adds the ports of an answer; returns whether it was the last one."""
    while data:
        length, kind, *_ = ANSWER.unpack_from(data)
        if kind == DONE:
            return True
        assert kind == SOCK_DIAG_BY_FAMILY, f"an answer of kind {kind} to a question for sockets"
        found.add(int.from_bytes(data[ANSWER.size : ANSWER.size + 2], "big"))
        data = data[(length + 3) & ~3 :]
    return False


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
