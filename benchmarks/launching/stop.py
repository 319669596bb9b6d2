# SPDX-License-Identifier: Apache-2.0
"""Measures Ctrl+C: how long the last process of our job takes to exit, and which processes outlive other tools.

The job is the same for all: on each host, a waiting script with a waiting child. They are observed from outside,
through /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.launching.our_jobs import OurJobs
from benchmarks.launching.rivals import Rivals, lacking
from benchmarks.launching.run import Run
from benchmarks.timing import Samples
from tests.cluster.deadline import wait_for
from tests.cluster.host import HOME, interpreter
from tests.cluster.hosts import Cluster
from tests.cluster.processes import HostProcess

MARK = "waits-to-be-stopped"
SCRIPT = f"""\
import signal, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()", "{MARK}"])
print("holding", flush=True)
signal.pause()
"""
STARTED_S = 120.0
GONE_S = 60.0
END_S = 30.0
PDSH_AGAIN_S = 0.3  # pdsh treats the first Ctrl+C as a query and exits at a second one within a second


def measure(run: Run, count: int) -> None:
    """Measure stopping on `count` hosts with each tool."""
    workspace = run.workspace("stop", SCRIPT)
    figure = f"stop_{count}_ours"
    with Cluster(count) as cluster:
        jobs = OurJobs(cluster, run.scratch)
        stops = [_stop_ours(cluster, jobs, workspace) for _ in range(run.long_turns)]
        for name, what, values in zip(
            (figure, f"{figure}_agents", f"{figure}_prompt"),
            (
                "the last process of the job had exited",
                "agents and logins had exited, too",
                "paddle.py had ended",
            ),
            zip(*stops, strict=True),
            strict=True,
        ):
            run.report.add(name, Samples(values), "s", f"from Ctrl+C until {what}")
        _leftovers(run, cluster)


def _leftovers(run: Run, cluster: Cluster) -> None:
    rivals = Rivals(cluster)
    for host in cluster.hosts:
        (host.files.fs / "root/train.py").write_text(SCRIPT)
    script = [interpreter(), f"{HOME}/train.py", MARK]
    command = " ".join(script)
    ways = {
        "ours": ("python3", None),
        "openssh": ("ssh", rivals.xargs_ssh(command)),
        "pdsh": ("pdsh", rivals.pdsh(command)),
        "parallel_ssh": ("parallel-ssh", rivals.parallel_ssh(command)),
        "mpirun": ("mpirun", rivals.mpirun(script)),
    }
    for name, (tool, argv) in ways.items():
        figure = f"left_{len(cluster.hosts)}_{name}"
        if argv is None:  # it was stopped before, and `_stop_ours` fails if anything remains
            run.report.add(figure, 0.0, "processes", "after Ctrl+C")
        elif why := lacking(tool):
            run.report.lack(figure, why)
        else:
            try:
                left = _left_by(cluster, argv, again=name == "pdsh", settle_s=run.settle_s)
            except AssertionError as error:
                run.report.lack(figure, str(error))
                continue
            of = 2 * len(cluster.hosts)
            run.report.add(figure, left, "processes", f"of {of}, {run.settle_s:g} s after Ctrl+C")


def _stop_ours(cluster: Cluster, jobs: OurJobs, workspace: Path) -> tuple[float, float, float]:
    """Return the seconds to the end of the job's last process, of the last agent, and of the launcher."""
    before = set(_running(cluster))
    launch = jobs.start(workspace)
    wait_for(
        "every trainer to be ready",
        lambda: launch.output.count("] holding") >= len(cluster.hosts) or launch.poll(),
        STARTED_S,
    )
    assert launch.poll() is None, launch.output
    running = {pid: process for pid, process in _running(cluster).items() if pid not in before}
    job = {pid for pid, process in running.items() if process.job_id}
    assert len(job) >= 2 * len(cluster.hosts), f"{len(job)} processes of the job were found"
    is_over: list[Callable[[], bool]] = [
        lambda: not any(map(_runs, job)),
        lambda: not any(map(_runs, running)),
        lambda: launch.poll() is not None,
    ]
    took: dict[int, float] = {}
    begun = time.monotonic()
    launch.interrupt()

    def all_over() -> bool:
        for index, over in enumerate(is_over):
            if index not in took and over():
                took[index] = time.monotonic() - begun
        return len(took) == len(is_over)

    wait_for("the exit of all processes of the job", all_over, GONE_S, every_s=0.002)
    left = [process for pid, process in _running(cluster).items() if pid not in before]
    assert not left, f"processes still running: {left}"
    return took[0], took[1], took[2]


def _left_by(cluster: Cluster, argv: Sequence[str], again: bool, settle_s: float) -> int:
    """Start the script on every host with another tool, stop it, count the processes that still run, and end them."""
    child = cluster.popen(argv)
    try:
        wait_for(
            "the script on every host", lambda: len(_marked(cluster)) >= 2 * len(cluster.hosts), STARTED_S
        )
        _interrupt(child)
        if again:
            time.sleep(PDSH_AGAIN_S)
            _interrupt(child)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=settle_s)
        with contextlib.suppress(AssertionError):
            wait_for("the end", lambda: not _marked(cluster), settle_s, every_s=0.2)
        return len(_marked(cluster))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait(timeout=END_S)
        for pid in _marked(cluster):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for("no processes of earlier jobs", lambda: not _marked(cluster), END_S)


def _interrupt(child: subprocess.Popen[bytes]) -> None:
    """Send the signal that a terminal sends on Ctrl+C."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGINT)


def _running(cluster: Cluster) -> dict[int, HostProcess]:
    return {process.pid: process for host in cluster.hosts for process in host.processes()}


def _marked(cluster: Cluster) -> set[int]:
    return {pid for pid, process in _running(cluster).items() if MARK in process.argv}


def _runs(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")
