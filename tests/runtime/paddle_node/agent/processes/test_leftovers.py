# SPDX-License-Identifier: Apache-2.0
"""What a killed or stopped agent, its guard and its watcher leave is ended or named; nothing else is touched."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.paddle_node.agent.driven_node import Node, eventually, kill_all, lives
from tests.runtime.paddle_node.agent.strays import (
    STRAYS,
    below,
    gone,
    kill_three,
    somebody_else,
    stop_three,
)

MakeNode = Callable[..., Node]
# What hides from everything but one trace each: it leaves no mark in an environment.
HIDING = {
    "directory": STRAYS["cleared its environment"],
    "open file": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open("left", "w").close()
        os.dup2(os.open("left", os.O_RDONLY), 7)
        os.chdir("/")
        print("ready", flush=True)
        os.execve("/bin/sleep", ["sleep", "600"], {})
    os._exit(0)
time.sleep(600)
""",
    "session": """
import os, time
if os.fork() == 0:
    os.chdir("/")
    print("ready", flush=True)
    os.execve("/bin/sleep", ["sleep", "600"], {"HOME": "/x"})
time.sleep(600)
""",
}


@pytest.fixture
def canary() -> Iterator[None]:
    """Another job's process on the same machine: it must outlive everything."""
    with somebody_else():
        yield


@pytest.fixture
def running(make_node: MakeNode) -> Node:
    """A node whose job has a directory of its own."""
    node = make_node()
    node.greet()
    node.adopt(node.job_id)
    return node


def record(node: Node) -> Path:
    return node.root / ".paddle" / "jobs" / f"{node.job_id}.{node.node_id}.json"


def without_group(node: Node) -> None:
    """As on a machine whose kernel lets this user make no control group."""
    record(node).write_text(json.dumps({**json.loads(record(node).read_text()), "group": ""}))


def run_hiding(node: Node, trace: str) -> set[int]:
    """Run what hides; returns all processes of the job."""
    node.python(HIDING[trace], cwd=str(node.root / node.job_id))
    node.until(lambda _: b"ready" in node.text(), 60, "ready")
    family = below(node.pids()[1])

    def sleeps() -> bool:
        family.update(below(node.pids()[1]))
        return any(Path(f"/proc/{pid}/comm").read_text() == "sleep\n" for pid in family if lives(pid))

    eventually(sleeps, "the one that hides runs")
    return family


def log_in_again(make_node: MakeNode, node: Node) -> dict[str, Any]:
    """As its launcher does at the end of a job that lost the node."""
    again = make_node(job_id=node.job_id)
    again.root = node.root
    again.greet()
    again.link.send("stop", procs=None, grace_s=0.3)
    return dict(again.expect("stopped").fields)


def visit(make_node: MakeNode, node: Node) -> dict[str, Any]:
    """As `stop --nodes` does."""
    visitor = make_node(job_id="VISIT")
    visitor.root = node.root
    visitor.greet()
    visitor.link.send("end_job", job_id=node.job_id, grace_s=0.3)
    return dict(visitor.expect("job_ended").fields)


ENDINGS = pytest.mark.parametrize("end", [log_in_again, visit])


@ENDINGS
@pytest.mark.parametrize("trace", HIDING)
def test_what_hides_is_ended_when_all_three_processes_of_the_agent_were_killed(
    make_node: MakeNode, running: Node, canary: object, end: Callable[..., dict[str, Any]], trace: str
) -> None:
    family = run_hiding(running, trace)
    kill_three(running)
    without_group(running)
    assert any(lives(pid) for pid in family)
    ended = end(make_node, running)
    assert ended["left"] == []
    assert "no control group" in ended["unsure"]
    eventually(lambda: gone(family), f"{family} are gone")


@ENDINGS
def test_an_agent_that_was_stopped_with_its_guard_and_watcher_ends_its_job_and_goes(
    make_node: MakeNode, running: Node, canary: object, end: Callable[..., dict[str, Any]]
) -> None:
    family = run_hiding(running, "directory")
    pids = stop_three(running)
    ended = end(make_node, running)
    assert (ended["left"], ended["unsure"]) == ([], "")
    eventually(lambda: gone(family | set(pids)), f"{family} and {pids} are gone")


def test_a_guard_and_a_watcher_whose_agent_was_killed_while_they_were_stopped_go_too(
    make_node: MakeNode, running: Node, canary: object
) -> None:
    family = run_hiding(running, "directory")
    watcher, guard, agent = stop_three(running)
    os.kill(agent, signal.SIGKILL)
    eventually(lambda: not lives(agent), "the agent is gone")
    assert log_in_again(make_node, running)["left"] == []
    eventually(lambda: gone(family | {watcher, guard}), f"{watcher} and {guard} are gone")


def orphan(argv: list[str], cwd: Path, env: dict[str, str], out: Path) -> int:
    """A process of init, with a session of its own; its pid."""
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        open(sys.argv[1], 'w').write(str(os.getpid()))\n"
        "        env = dict(one.split('=', 1) for one in os.environ['E'].split('|') if one)\n"
        "        os.execvpe(sys.argv[2], sys.argv[2:], env)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    given = "|".join(f"{name}={value}" for name, value in env.items())
    subprocess.run(
        [sys.executable, "-c", code, str(out), *argv], cwd=cwd, env={**os.environ, "E": given}, check=True
    )
    eventually(lambda: out.exists() and bool(out.read_text()), "the orphan runs")
    pid = int(out.read_text())
    eventually(lambda: Path(f"/proc/{pid}/comm").read_text() == "sleep\n", "it runs its program")
    return pid


@ENDINGS
def test_the_users_own_processes_in_the_jobs_directory_are_named_or_not_touched(
    make_node: MakeNode, running: Node, tmp_path: Path, end: Callable[..., dict[str, Any]]
) -> None:
    run_hiding(running, "directory")
    folder = running.root / running.job_id
    nohup = orphan(["sleep", "600"], folder, {"HOME": "/home/me", "PATH": "/bin"}, tmp_path / "nohup")
    other = orphan(["sleep", "600"], folder, {"PADDLE_JOB_ID": "JOB-other"}, tmp_path / "other")
    master, terminal = pty.openpty()
    shell = subprocess.Popen(
        [sys.executable, "-c", "import fcntl, os, termios, time\n"
         "fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execve('/bin/sleep', ['sleep', '600'], {})"],
        stdin=terminal, cwd=folder, start_new_session=True,
    )  # fmt: skip
    child = subprocess.Popen(["/bin/sleep", "600"], cwd=folder, env={}, start_new_session=True)
    try:
        eventually(
            lambda: Path(f"/proc/{shell.pid}/comm").read_text() == "sleep\n", "the shell has its terminal"
        )
        kill_three(running)
        ended = end(make_node, running)
        assert ended["left"] == []
        assert f"pid {nohup} (sleep 600) is in the job's directory" in ended["unsure"]
        assert all(str(pid) not in ended["unsure"] for pid in (other, shell.pid, child.pid))
        assert all(map(lives, (nohup, other, shell.pid, child.pid)))
    finally:
        kill_all([nohup, other])
        for process in (shell, child):
            process.kill()
            process.wait()
        os.close(master)
        os.close(terminal)


@ENDINGS
def test_nothing_in_a_directory_of_the_user_counts_as_the_jobs(
    make_node: MakeNode, node: Node, tmp_path: Path, end: Callable[..., dict[str, Any]]
) -> None:
    """With --job_workspace the job runs where its user works."""
    mine = orphan(["sleep", "600"], node.root / "job", {}, tmp_path / "mine")
    try:
        kill_three(node)
        assert end(make_node, node)["left"] == []
        assert lives(mine)
    finally:
        kill_all([mine])


@pytest.mark.parametrize("spoil", [{"boot_id": "another boot"}, {"start": 1 << 60}, {"start": "x"}])
def test_a_record_of_another_boot_or_another_process_ends_nothing(
    make_node: MakeNode, running: Node, tmp_path: Path, spoil: dict[str, Any]
) -> None:
    mine = orphan(["sleep", "600"], running.root / running.job_id, {}, tmp_path / "mine")
    try:
        fields = json.loads(record(running).read_text())
        kill_three(running)
        fields["agent"].update({"pid": mine} | spoil)
        record(running).write_text(json.dumps({**fields, "group": ""}))
        assert visit(make_node, running)["left"] == []
        assert lives(mine)
    finally:
        kill_all([mine])
