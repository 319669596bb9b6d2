# SPDX-License-Identifier: Apache-2.0
"""Measures the launcher with thousands of simulated nodes: its resources, and the duration of a start.

    python -m benchmarks.fleet [--nodes 3000] [--processes 8] [--lines 10] [--seconds 20] [--json FILE]

`paddle.py` runs unmodified, with --engine=openmpi; mpirun is replaced by a program whose processes simulate a hundred
nodes each and implement the whole protocol (benchmarks/fleet/agents.py). Only the launcher's own CPU time, memory,
threads and descriptors are measured. The duration of a start includes the simulation's work, on the same cores.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.machine import ROOT, describe
from benchmarks.report import Report, tell

TICKS = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.1
LIMIT_S = 900.0
_PHASE = re.compile(r"== (\w+)")


@dataclass
class Launcher:
    """A running launcher, observed from outside.

    Attributes:
        marks: phase -> (wall s, CPU s) since its start when the phase was first reported.
        most: the highest observed memory (bytes), number of threads and descriptors.
    """

    process: subprocess.Popen[str]
    begun: float = field(default_factory=time.monotonic)
    marks: dict[str, tuple[float, float]] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)

    def cpu_s(self) -> float:
        """Return the CPU time of the launcher's threads."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    def watch(self) -> None:
        """Read the launcher's output until it exits."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found = _PHASE.match(line)
            if found:
                with contextlib.suppress(OSError):
                    self.marks.setdefault(found.group(1), (time.monotonic() - self.begun, self.cpu_s()))
            if not line.startswith("["):
                self.said.append(line.rstrip("\n"))

    def look(self) -> None:
        """Sample the launcher's resources until it exits."""
        folder = Path(f"/proc/{self.process.pid}")
        with contextlib.suppress(OSError, LookupError):  # it has ended
            while self.process.poll() is None:
                words = dict(
                    line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line
                )
                now = {
                    "memory": int(words["VmRSS"].split()[0]) * 1024,
                    "threads": int(words["Threads"]),
                    "descriptors": len(os.listdir(folder / "fd")),
                }
                self.most = {name: max(value, self.most.get(name, 0)) for name, value in now.items()}
                time.sleep(LOOK_S)


def measure(options: argparse.Namespace, report: Report) -> int:
    """Run one job on simulated nodes; return its exit code."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        env = _prepare(folder, options)
        argv = (
            *(sys.executable, str(ROOT / "paddle.py"), f"--job_dispatch_package={folder / 'ws'}"),
            *(
                "--engine=openmpi",
                f"--hostfile={folder / 'machines'}",
                "--mode=collective",
                "--entry=train.py",
            ),
            *(f"--nproc_per_node={options.processes}", f"--conf={folder / 'conf.py'}"),
        )
        process = subprocess.Popen(
            argv,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        launcher = Launcher(process)
        threads = [threading.Thread(target=launcher.watch), threading.Thread(target=launcher.look)]
        for thread in threads:
            thread.start()
        try:
            code = process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            code = process.wait(60)
        for thread in threads:
            thread.join()
        if code:
            print("\n".join(launcher.said[-20:]), file=sys.stderr)
        else:
            _report(launcher, folder, report)
        return code


def _report(launcher: Launcher, folder: Path, report: Report) -> None:
    (started_s, started_cpu_s), (stopped_s, stopped_cpu_s) = launcher.marks["run"], launcher.marks["stop"]
    lines = sum(int(path.read_text()) for path in (folder / "counts").iterdir())
    logs = (folder / "ws" / "log").glob("node_*/train*.log")
    collected = sum(path.read_bytes().count(b"\n") for path in logs)
    shown = sum(b"step " in line for line in (folder / "ws" / "log" / "job.log").open("rb"))
    report.add(
        "start_s",
        started_s,
        "s",
        "from the command to the start of the last process, including the simulation's work",
    )
    report.add("start_cpu_s", started_cpu_s, "s", "CPU time of the launcher until then")
    report.add(
        "run_cores",
        (stopped_cpu_s - started_cpu_s) / (stopped_s - started_s),
        "cores",
        "used by the launcher",
    )
    report.add(
        "run_us_a_line", (stopped_cpu_s - started_cpu_s) / lines * 1e6, "us", "CPU time of the launcher"
    )
    report.add("lines", lines, "lines", "written by the nodes")
    report.add("lost_of_nodes", lines - collected, "lines", "missing from the collected logs of the nodes")
    report.add(
        "lost_of_job_log", lines - shown, "lines", "missing from log/job.log, which reports their number"
    )
    report.add("memory_mb", launcher.most["memory"] / 1e6, "MB", "peak of the launcher")
    report.add("threads", launcher.most["threads"], "threads", "peak of the launcher")
    report.add("descriptors", launcher.most["descriptors"], "descriptors", "peak of the launcher")


def _prepare(folder: Path, options: argparse.Namespace) -> dict[str, str]:
    for name in ("ws", "bin", "counts"):
        (folder / name).mkdir()
    (folder / "ws" / "train.py").write_text("pass\n")
    (folder / "conf.py").write_text("HOSTS = []\n")
    (folder / "machines").write_text("".join(f"node-{n}\n" for n in range(options.nodes)))
    mpirun = folder / "bin" / "mpirun"
    agents = shlex.join([sys.executable, "-P", "-m", "benchmarks.fleet.agents"])
    mpirun.write_text(
        f'#!/bin/sh\nwhile [ $# -gt 0 ]; do [ "$1" = -n ] && count=$2; shift; done\nexec {agents} "$count"\n'
    )
    mpirun.chmod(0o755)
    return os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT / 'runtime'}:{ROOT}",
        "FLEET_LINES_PER_S": str(options.lines),
        "FLEET_RUN_S": str(options.seconds),
        "FLEET_COUNTS": str(folder / "counts"),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--nodes", type=int, default=3000)
    parser.add_argument("--processes", type=int, default=8, help="processes per node")
    parser.add_argument("--lines", type=float, default=10.0, help="lines per second and node")
    parser.add_argument("--seconds", type=float, default=20.0, help="duration of the scripts")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    report = Report(tell=tell)
    facts = describe(("cryptography",))
    code = measure(options, report)
    report.lack("real_nodes", "nodes are simulated: they have no logins, interpreters, disks or network")
    report.show(facts, options.json)
    return code


if __name__ == "__main__":
    sys.exit(main())
