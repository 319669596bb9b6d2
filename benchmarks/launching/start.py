# SPDX-License-Identifier: Apache-2.0
"""Measures how long `true` takes on every host: our whole command, other tools, and our agents' greetings alone."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from benchmarks.launching.our_jobs import PATIENCE, OurJobs
from benchmarks.launching.rivals import Rivals, lacking
from benchmarks.launching.run import Run
from benchmarks.timing import Contender, Samples, interleave
from tests.cluster.hosts import Cluster

LIMIT_S = 180.0
TRUE = "./true.sh"


def measure(run: Run, count: int) -> None:
    """Measure starting `true` on `count` hosts with each tool."""
    with Cluster(count) as cluster:
        imports: list[float] = []
        used: list[float] = []
        bare: list[float] = []
        contenders = [
            *(Contender(f"whole_{count}_{name}", turn) for name, turn in ours(cluster, run).items()),
            Contender(f"start_{count}_ours", lambda _: _agents(cluster, run, imports, used)),
            Contender(f"start_{count}_paramiko", lambda _: _bare(cluster, run, bare)),
        ]
        for name, turn in others(cluster).items():
            figure = f"start_{count}_{name}"
            if isinstance(turn, str):
                run.report.lack(figure, turn)
            else:
                contenders.append(Contender(figure, turn))
        found, failed = interleave(contenders, run.turns, warm_up=True)
    run.report.add_all(
        found,
        failed,
        "s",
        {
            f"whole_{count}_ours": "paddle.py from start to prompt: `true` ran on every host, logs are collected",
            f"whole_{count}_resident": "the same with RESIDENT_S: agents of the previous turn wait on the hosts",
            f"whole_{count}_openssh_client": 'the same with SSH_CLIENT = "openssh", which is tuned',
            f"whole_{count}_open_connections": "the same with an open ControlMaster connection to every host",
            f"start_{count}_ours": "until the hello of every agent; imports not counted",
            f"start_{count}_paramiko": "a bare program: logins, and as many bytes as agents get; with its imports",
            f"start_{count}_openssh": "xargs -P: `true` ran on every host",
        },
    )
    for figure, seconds, what in (
        ("import_s", imports, "the launcher's imports, once per command"),
        ("start_cpu_s", used, "the launcher's CPU time per host until the hello of every agent"),
        ("bare_cpu_s", bare, "the CPU time per host of the bare program with paramiko, without imports"),
    ):
        if seconds:
            run.report.add(f"{figure}_{count}", Samples(tuple(seconds[1:] or seconds)), "s", what)
    if used and bare:
        run.report.compare(f"start_cpu_{count}_vs_paramiko", f"start_cpu_s_{count}", f"bare_cpu_s_{count}")
    for what, figure in (
        ("whole", "whole_{}_ours"),
        ("resident", "whole_{}_resident"),
        ("start", "start_{}_ours"),
    ):
        run.report.compare(f"{what}_{count}_vs_openssh", figure.format(count), f"start_{count}_openssh")


def others(cluster: Cluster) -> dict[str, Callable[[int], float] | str]:
    """Return the measurement of `true` on every host with other tools, or why a tool cannot take part."""
    rivals = Rivals(cluster)
    commands = {
        "openssh": ("ssh", rivals.xargs_ssh("true")),
        "bare_python": ("ssh", rivals.bare_python()),
        "pdsh": ("pdsh", rivals.pdsh("true")),
        "parallel_ssh": ("parallel-ssh", rivals.parallel_ssh("true")),
        "mpirun": ("mpirun", rivals.mpirun(["true"])),
    }
    return {name: lacking(tool) or _turns_of(cluster, argv) for name, (tool, argv) in commands.items()}


def timed(cluster: Cluster, argv: Sequence[str]) -> float:
    """Return the seconds that a command on the launcher's side takes.

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


def ours(cluster: Cluster, run: Run) -> dict[str, Callable[[int], float]]:
    """Return the measurements of the whole command: by default, with waiting agents, by OpenSSH, over open
    connections."""
    usual, tuned, kept = (
        cluster.ssh_config.read_text(),
        run.scratch / "tuned",
        run.scratch / "open_connections",
    )
    # as used by the other tools; ssh's current first choice costs each login 55 ms here
    tuned.write_text("KexAlgorithms curve25519-sha256\nCiphers aes128-gcm@openssh.com\n" + usual)
    kept.write_text(f"ControlMaster auto\nControlPath {cluster.state}/%h\nControlPersist 120\n" + usual)
    client = {"SSH_CLIENT": "openssh"}
    return {
        "ours": whole(cluster, run),
        "resident": whole(cluster, run, RESIDENT_S=600),
        "openssh_client": whole(cluster, run, **client, SSH_CONFIG=str(tuned)),
        "open_connections": whole(cluster, run, **client, SSH_CONFIG=str(kept)),
    }


def whole(cluster: Cluster, run: Run, **conf: object) -> Callable[[int], float]:
    """Return the measurement of the whole command on hosts that have all files from an earlier turn.

    Args:
        conf: assignments of conf.py.
    """
    jobs, workspace = OurJobs(cluster, run.scratch, **conf), run.workspace("true")
    (workspace / TRUE).write_text("#!/bin/sh\n")
    (workspace / TRUE).chmod(0o755)
    root = "-".join(("ours", *conf)).lower()  # ways do not share what they left on hosts
    return lambda turn: jobs.run(workspace, f"--entry={TRUE}", root=root).wall_s


def agents(cluster: Cluster, run: Run) -> dict[str, float]:
    """Start our agents on every host, and return what `our_agents` prints."""
    conf = cluster.write_conf(run.scratch / "start_conf.py", **PATIENCE)
    return _measured(cluster, run, "our_agents", str(conf), str(run.workspace("start")))


def bare_logins(cluster: Cluster, run: Run) -> float:
    """Log in to every host with paramiko alone; return the CPU time per host in seconds."""
    names = [host.name for host in cluster.hosts]
    files = str(cluster.known_hosts), str(cluster.identity)
    return _measured(cluster, run, "bare_logins", *files, *names)["cpu_s"]


def _agents(cluster: Cluster, run: Run, imports: list[float], used: list[float]) -> float:
    reported = agents(cluster, run)
    imports.append(reported["import_s"])
    used.append(reported["cpu_s"])
    return reported["start_s"]


def _bare(cluster: Cluster, run: Run, used: list[float]) -> float:
    begun = time.monotonic()
    used.append(bare_logins(cluster, run))
    return time.monotonic() - begun


def _measured(cluster: Cluster, run: Run, program: str, *args: str) -> dict[str, float]:
    """Run a program of this package on the launcher's side, and return the object that it prints."""
    argv = [sys.executable, "-m", f"benchmarks.launching.{program}", *args]
    done = cluster.run(["env", f"PYTHONPATH={run.root}", *argv], timeout_s=LIMIT_S)
    found: dict[str, float] = json.loads(done.stdout)
    return found
