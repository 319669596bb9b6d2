# SPDX-License-Identifier: Apache-2.0
"""What the kernel has to allow before so many hosts can be made: found out before, not by a half-made cluster."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.network import MOST

PROCESSES_A_HOST = 40  # four of its own, the rest for a job: sshd, agent, scripts and their threads
FILES_A_HOST = 4  # of the test process: two pipes, a file for errors, and one in passing
KB_A_HOST = 8_000  # of memory, without a job


@dataclass(frozen=True)
class Limit:
    """One number that the kernel sets.

    Attributes:
        what: what it counts, with its name.
        allowed: how many there may be.
        needed: how many there would be.
        remedy: the command that raises it, or what else to do.
    """

    what: str
    allowed: int
    needed: int
    remedy: str


def shortfall(count: int) -> str:
    """Says which limits are too low for `count` hosts, one a line, or returns an empty string."""
    return "\n".join(
        f"{count} hosts need {limit.needed} {limit.what}, here {limit.allowed} are allowed: {limit.remedy}"
        for limit in _limits(count)
        if limit.allowed < limit.needed
    )


def _limits(count: int) -> list[Limit]:
    running = sum(1 for name in os.listdir("/proc") if name.isdigit())
    processes = running + PROCESSES_A_HOST * count
    # Linux counts neighbours over all namespaces: each host knows the gate, and the gate each host.
    neighbours = 2 * count + 128
    open_files = len(os.listdir("/proc/self/fd")) + FILES_A_HOST * count + 64
    return [
        Limit("ports of a bridge", MOST, count, "make a smaller cluster"),
        _sysctl("kernel.pid_max", processes, "process ids"),
        _sysctl("kernel.threads-max", processes, "threads"),
        _sysctl("net.ipv4.neigh.default.gc_thresh3", neighbours, "entries of the neighbour table"),
        _sysctl("user.max_net_namespaces", count + 1, "network namespaces"),
        _sysctl("user.max_mnt_namespaces", count + 1, "mount namespaces"),
        _sysctl("user.max_pid_namespaces", count, "pid namespaces"),
        Limit(
            "open files (ulimit -n)",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            open_files,
            f"ulimit -n {open_files}",
        ),
        Limit("kB of free memory", _available_kb(), KB_A_HOST * count, "make a smaller cluster"),
    ]


def _sysctl(name: str, needed: int, what: str) -> Limit:
    path = Path("/proc/sys", *name.split("."))
    allowed = int(path.read_text()) if path.exists() else needed
    return Limit(f"{what} ({name})", allowed, needed, f"sysctl -w {name}={needed}")


def _available_kb() -> int:
    lines = Path("/proc/meminfo").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith("MemAvailable:")]
    return int(line.split()[1])
