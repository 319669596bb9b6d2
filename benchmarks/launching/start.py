# SPDX-License-Identifier: Apache-2.0
"""How long it takes until something of ours runs on every host, beside what others take to run `true`."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.launching.our_jobs import PATIENCE
from benchmarks.launching.rivals import Rivals, lacking
from benchmarks.launching.run import Run
from benchmarks.timing import Contender, Samples, interleave
from tests.cluster.hosts import Cluster

LIMIT_S = 180.0


def measure(run: Run, count: int) -> None:
    """Start on `count` hosts in every way there is."""
    with Cluster(count) as cluster:
        rivals = Rivals(cluster)
        imports: list[float] = []
        commands = {
            "openssh": ("ssh", rivals.xargs_ssh("true")),
            "pdsh": ("pdsh", rivals.pdsh("true")),
            "parallel_ssh": ("parallel-ssh", rivals.parallel_ssh("true")),
            "mpirun": ("mpirun", rivals.mpirun(["true"])),
        }
        contenders = [Contender(f"start_{count}_ours", lambda _: _agents(cluster, run, imports))]
        for name, (tool, argv) in commands.items():
            figure = f"start_{count}_{name}"
            if why := lacking(tool):
                run.report.lack(figure, why)
            else:
                contenders.append(Contender(figure, _turns_of(cluster, argv)))
        found, failed = interleave(contenders, run.turns, warm_up=True)
    run.report.add_all(
        found,
        failed,
        "s",
        {
            f"start_{count}_ours": "hello of every agent; its process had done its imports",
            f"start_{count}_openssh": "xargs -P: `true` ran on every host",
        },
    )
    if imports:
        run.report.add(
            f"import_s_{count}",
            Samples(tuple(imports[1:] or imports)),
            "s",
            "the launcher's imports, once a command",
        )
    run.report.compare(f"start_{count}_vs_openssh", f"start_{count}_ours", f"start_{count}_openssh")


def timed(cluster: Cluster, argv: Sequence[str]) -> float:
    """Seconds that a command on the launcher's side takes.

    Raises:
        RuntimeError: it failed or took too long.
    """
    begun = time.monotonic()
    try:
        cluster.run(argv, timeout_s=LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"{argv[0]} took longer than {LIMIT_S:g} s") from error
    return time.monotonic() - begun


def _turns_of(cluster: Cluster, argv: Sequence[str]) -> Callable[[int], float]:
    return lambda turn: timed(cluster, argv)


def _agents(cluster: Cluster, run: Run, imports: list[float]) -> float:
    conf = cluster.write_conf(run.scratch / "start_conf.py", **PATIENCE)
    workspace = run.workspace("start")
    done = cluster.run(
        [
            "env",
            f"PYTHONPATH={run.root}",
            sys.executable,
            "-m",
            "benchmarks.launching.our_agents",
            str(conf),
            str(workspace),
        ],
        timeout_s=LIMIT_S,
    )
    said = json.loads(done.stdout)
    imports.append(said["import_s"])
    return float(said["start_s"])
