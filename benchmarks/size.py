# SPDX-License-Identifier: Apache-2.0
"""Measures one job on hundreds of hosts: the time to start, the launcher's resources, and lost lines.

    python -m benchmarks.size [--hosts 256] [--seconds 60] [--json FILE]

Needs root. Every host's script prints ten lines a second, then ends. All hosts share this machine, so the start is
that of hundreds of logins, agents and interpreters on its few cores.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.launching.our_jobs import OurJobs, times_of
from benchmarks.report import Report
from tests.cluster.hosts import Cluster, missing_tools

LINES_A_SECOND = 10
SCRIPT = f"""\
import os, sys, time
rank, count = os.environ["PADDLE_TRAINER_ID"], int(sys.argv[1].partition("=")[2]) * {LINES_A_SECOND}
begun = time.monotonic()
for number in range(count):
    time.sleep(max(0.0, begun + number / {LINES_A_SECOND} - time.monotonic()))
    print(f"rank {{rank}} line {{number}}", flush=True)
"""
LINE = re.compile(r"^rank (\d+) line (\d+)$")
SHOWN = re.compile(r"\] rank \d+ line \d+$", re.MULTILINE)
BEFORE_THE_RUN = ("start", "config", "connect", "preflight", "dispatch", "trainers")
PATIENCE_S = 900.0  # beyond the script's own time
TICKS_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Outcome:
    """The results of one job.

    Attributes:
        phases: seconds by phase, as reported by paddle.py.
        usage: resources used by the launcher.
        run_cores: cores that the launcher kept busy while all scripts ran.
        whole_cores: the same from its start to its end.
        expected: number of lines that the scripts wrote.
        lost: number of lines missing from the collected logs.
        extra: number of lines in them that no script wrote, or that are duplicates.
        shown: number of lines on the screen.
        host_mb: memory of one host with its part of the job.
    """

    hosts: int
    phases: dict[str, float]
    usage: Usage
    run_cores: float
    whole_cores: float
    expected: int
    lost: int
    extra: int
    shown: int
    host_mb: float

    @property
    def start_s(self) -> float:
        """Return the seconds from the command until every script was started."""
        return sum(self.phases.get(name, 0.0) for name in BEFORE_THE_RUN)


def measure(cluster: Cluster, scratch: Path, seconds: int) -> Outcome:
    """Run one job on all hosts of a cluster.

    Raises:
        RuntimeError: it failed or did not end in time; the message ends with its output.
    """
    workspace = scratch / "size"
    workspace.mkdir()
    (workspace / "train.py").write_text(SCRIPT)
    free_before = _available_mb()
    least_free = [free_before]
    launch = OurJobs(cluster, scratch).start(workspace, f"--seconds={seconds}")
    usage = Usage()

    def is_over() -> bool:
        least_free.append(_available_mb())
        return launch.poll() is not None

    if not usage.watch(launch.pid, is_over, seconds + PATIENCE_S):
        raise RuntimeError(f"the job did not end: {launch.output[-2000:]}")
    phases = times_of(launch)
    count = len(cluster.hosts)
    found = _collected(workspace / "log")
    wanted = {(rank, number) for rank in range(count) for number in range(seconds * LINES_A_SECOND)}
    began = usage.samples[0].at
    run_begins = began + sum(phases.get(name, 0.0) for name in BEFORE_THE_RUN)
    return Outcome(
        hosts=count,
        phases=phases,
        usage=usage,
        run_cores=usage.cores(run_begins, run_begins + phases["run"]),
        whole_cores=usage.cores(began, began + phases["total"]),
        expected=len(wanted),
        lost=len(wanted - found.keys()),
        extra=sum(found.values()) - len(wanted & found.keys()),
        shown=len(SHOWN.findall(launch.output)),
        host_mb=(free_before - min(least_free)) / count,
    )


def report_of(outcome: Outcome) -> Report:
    """Return the figures of a job."""
    report, count, usage = Report(), outcome.hosts, outcome.usage
    first = usage.samples[0]
    name = f"size_{count}"
    report.add(f"{name}_start", outcome.start_s, "s", "from the command until every script was started")
    for phase, took_s in outcome.phases.items():
        report.add(f"{name}_phase_{phase.replace(' ', '_')}", took_s, "s", "as reported by paddle.py")
    report.add(f"{name}_peak", usage.peak_mb, "MB", "peak memory of the launcher")
    report.add(f"{name}_cores", outcome.run_cores, "cores", "used by the launcher while all scripts ran")
    report.add(f"{name}_cores_whole", outcome.whole_cores, "cores", "used by the launcher from start to end")
    report.add(f"{name}_threads", usage.most_threads, "threads", "peak of the launcher")
    report.add(f"{name}_threads_a_node", (usage.most_threads - first.threads) / count, "threads", "")
    report.add(f"{name}_fds", usage.most_fds, "files", "peak of the launcher")
    report.add(f"{name}_fds_a_node", (usage.most_fds - first.fds) / count, "files", "")
    report.add(f"{name}_lines", outcome.expected, "lines", "written by the scripts")
    report.add(f"{name}_lost", outcome.lost, "lines", "missing from the collected logs")
    report.add(f"{name}_shown", outcome.shown, "lines", "shown on the screen")
    report.add(f"{name}_host", outcome.host_mb, "MB", "peak memory per host")
    return report


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    given = _parse(argv)
    if reason := missing_tools():
        print(f"benchmarks.size: {reason}", file=sys.stderr)
        return 2
    facts = machine.describe(("fabric", "paramiko", "cryptography"))
    with (
        tempfile.TemporaryDirectory(prefix="paddle-benchmark-") as scratch,
        Cluster(given.hosts) as cluster,
    ):
        outcome = measure(cluster, Path(scratch), given.seconds)
    report_of(outcome).show(facts, given.json)
    return 1 if outcome.lost or outcome.extra else 0


def _collected(logs: Path) -> Counter[tuple[int, int]]:
    """Count each (rank, line) in the collected logs; lines of no script count as (-1, -1)."""
    found: Counter[tuple[int, int]] = Counter()
    for path in logs.glob("node_*/train.log"):
        for line in path.read_text(errors="replace").splitlines():
            match = LINE.match(line)
            found[(int(match[1]), int(match[2])) if match else (-1, -1)] += 1
    return found


def _available_mb() -> float:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.size")
    parser.add_argument("--hosts", type=int, default=256, metavar="N")
    parser.add_argument(
        "--seconds", type=int, default=60, metavar="S", help="duration of every script, in seconds"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to this file")
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Sample:
    """A sample of a process's resources.

    Attributes:
        at: monotonic time.
        cpu_s: CPU time used so far.
        peak_kb: peak memory.
        threads: current number of threads.
        fds: current number of open files, pipes and sockets.
    """

    at: float
    cpu_s: float
    peak_kb: int
    threads: int
    fds: int


@dataclass
class Usage:
    """All samples of one process, in order."""

    samples: list[Sample] = field(default_factory=list)

    def watch(self, pid: int, is_over: Callable[[], bool], deadline_s: float, every_s: float = 0.25) -> bool:
        """Sample a process until `is_over`; return False if the deadline passed first."""
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
        """Return its peak memory in MB."""
        return max(sample.peak_kb for sample in self.samples) / 1024

    @property
    def most_threads(self) -> int:
        """Return the highest number of threads in a sample."""
        return max(sample.threads for sample in self.samples)

    @property
    def most_fds(self) -> int:
        """Return the highest number of descriptors in a sample."""
        return max(sample.fds for sample in self.samples)

    def cores(self, begin: float, end: float) -> float:
        """Return the average number of cores that it kept busy between two monotonic times."""
        within = [sample for sample in self.samples if begin <= sample.at <= end]
        if len(within) < 2:
            return 0.0
        return (within[-1].cpu_s - within[0].cpu_s) / (within[-1].at - within[0].at)


def look(pid: int) -> Sample | None:
    """Return a sample, or None if the process has exited."""
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


if __name__ == "__main__":
    sys.exit(main())
