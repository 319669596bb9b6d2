# SPDX-License-Identifier: Apache-2.0
"""What a process uses, sampled from outside through /proc while it runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Sample:
    """One look.

    Attributes:
        at: monotonic time.
        cpu_s: processor time it has used so far.
        peak_kb: the most memory it ever held at once.
        threads: how many it has now.
        fds: open files, pipes and sockets it has now.
    """

    at: float
    cpu_s: float
    peak_kb: int
    threads: int
    fds: int


@dataclass
class Usage:
    """All looks at one process, in their order."""

    samples: list[Sample] = field(default_factory=list)

    def watch(self, pid: int, is_over: Callable[[], bool], deadline_s: float, every_s: float = 0.25) -> bool:
        """Look at a process until `is_over`; False when the deadline came first."""
        end = time.monotonic() + deadline_s
        while not is_over():
            if time.monotonic() >= end:
                return False
            sample = look(pid)
            if sample is not None:
                self.samples.append(sample)
            time.sleep(every_s)
        return True

    @property
    def peak_mb(self) -> float:
        """The most memory it held at once."""
        return max(sample.peak_kb for sample in self.samples) / 1024

    @property
    def most_threads(self) -> int:
        """The most threads that a look saw."""
        return max(sample.threads for sample in self.samples)

    @property
    def most_fds(self) -> int:
        """The most descriptors that a look saw."""
        return max(sample.fds for sample in self.samples)

    def cores(self, begin: float, end: float) -> float:
        """Cores it kept busy on average between two monotonic times."""
        within = [sample for sample in self.samples if begin <= sample.at <= end]
        if len(within) < 2:
            return 0.0
        return (within[-1].cpu_s - within[0].cpu_s) / (within[-1].at - within[0].at)


def look(pid: int) -> Sample | None:
    """One sample, or None when the process is gone."""
    root = Path(f"/proc/{pid}")
    try:
        status = dict(
            line.split(":\t", 1) for line in (root / "status").read_text().splitlines() if ":\t" in line
        )
        times = (root / "stat").read_text().rpartition(")")[2].split()[11:13]  # utime, stime; proc(5)
        fds = len(os.listdir(root / "fd"))
        return Sample(
            time.monotonic(),
            sum(map(int, times)) * TICKS_S,
            int(status["VmHWM"].split()[0]),
            int(status["Threads"]),
            fds,
        )
    except (OSError, KeyError):
        return None
