# SPDX-License-Identifier: Apache-2.0
"""Processes of a job that are hard to find or to kill, and how to see whether they are gone."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.runtime.paddle_node.agent.driven_node import Node, eventually, lives

READY = "print('ready', flush=True)"
DEAF = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}; time.sleep(600)"

# Each runs as a process of the job and leaves something that is hard to find or to kill.
STRAYS = {
    "ignores TERM": DEAF,
    "left its session": f"""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    {READY}
    time.sleep(600)
time.sleep(600)
""",
    "daemonized": f"""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        {READY}
        time.sleep(600)
    os._exit(0)
os.wait()
""",
    "stopped itself": f"""
import os, signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {READY}
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)
    os._exit(0)
time.sleep(600)
""",
    "cleared its environment": f"""
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        {READY}
        os.execve("/bin/sleep", ["sleep", "600"], {{}})
    os._exit(0)
time.sleep(600)
""",
    "forks all the time": f"""
import os, time
{READY}
for _ in range(2000):
    if os.fork() == 0:
        os.setsid()
        time.sleep(0.05)
    else:
        os._exit(0)
""",
}


def below(root: int) -> set[int]:
    """Pids of living processes below another, found before and after a fault."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and lives(int(name)):
            try:
                parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {root}
    grown = True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found - {root}


def run_until_ready(node: Node, code: str) -> set[int]:
    node.python(code)
    node.until(lambda _: b"ready" in node.text(), 60, "the process is ready")
    family: set[int] = set()

    def seen() -> bool:
        family.update(below(node.pids()[1]))
        return bool(family)

    eventually(seen, "a process below the agent")
    return family


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def three(node: Node) -> list[int]:
    """Watcher, guard and agent."""
    guard, agent = node.pids()
    return [parent_of(guard), guard, agent]


def stop_three(node: Node) -> list[int]:
    """Stop them from the outside in: none is left that lets another one go on."""
    pids = three(node)

    def stopped() -> bool:
        for pid in pids:
            if state(pid) != "T":
                os.kill(pid, signal.SIGSTOP)
        return all(state(pid) == "T" for pid in pids)

    eventually(stopped, f"{pids} are stopped")
    return pids


def kill_three(node: Node) -> None:
    pids = stop_three(node)  # else one that lives a moment longer ends the job
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    node.expect_lost()
    eventually(lambda: not any(lives(pid) for pid in pids), f"{pids} are gone")


def gone(pids: set[int]) -> bool:
    return not any(lives(pid) for pid in pids)


def _is_ready(node: Node, proc: str, _event: object) -> bool:
    return b"ready" in node.text(proc)


def run_all(node: Node) -> set[int]:
    """Run all of STRAYS; returns the pids of what came of them."""
    family: set[int] = set()
    for name, code in STRAYS.items():
        proc = name.replace(" ", "-")
        node.python(code, proc=proc)
        node.until(partial(_is_ready, node, proc), 60, f"{name} is ready")
        family |= below(node.pids()[1])
    return family


@contextlib.contextmanager
def somebody_else() -> Iterator[None]:
    """Another job's process on the same machine, which must outlive everything."""
    environ = {**os.environ, "PADDLE_JOB_ID": "JOB-of-somebody-else", "PADDLE_NODE_ID": "0"}
    process = subprocess.Popen(["sleep", "600"], env=environ, start_new_session=True)
    try:
        yield
        assert process.poll() is None, "another job's process was touched"
    finally:
        process.kill()
        process.wait()
