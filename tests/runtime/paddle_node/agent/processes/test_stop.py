# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from paddle_node.agent.processes.processes import SETTLE_S
from tests.runtime.paddle_node.agent.driven_node import Node, eventually, kill_all, lives, marked, unmarked
from tests.runtime.paddle_node.agent.strays import (
    DEAF,
    READY,
    STRAYS,
    below,
    gone,
    kill_three,
    parent_of,
    run_all,
    run_until_ready,
    somebody_else,
    state,
)


@pytest.fixture
def canary() -> Iterator[None]:
    """Another job's process on the same machine: it must outlive everything."""
    with somebody_else():
        yield


def test_stop_leaves_no_process_of_the_job(node: Node, canary: object) -> None:
    family = run_all(node)
    node.link.send("stop", procs=None, grace_s=0.3)
    assert node.expect("stopped").fields["left"] == []
    assert gone(family)
    assert below(node.pids()[1]) == set()
    assert marked(node.job_id) == []


CHAIN = """
import os, signal, sys, time
held = os.open(sys.argv[1], os.O_WRONLY)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end = time.monotonic() + 300
while time.monotonic() < end:
    if os.fork():
        os._exit(0)
    os.setsid()
"""


@pytest.mark.parametrize("who", ["agent", "guard"])
def test_a_chain_of_processes_that_fork_and_exit_is_ended(node: Node, tmp_path: Path, who: str) -> None:
    """A scan lists a process of it, but finds that it has exited; its child was not listed yet."""
    os.mkfifo(tmp_path / "held")
    end = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    node.python(CHAIN, str(tmp_path / "held"))
    node.expect("exited")
    with pytest.raises(BlockingIOError):
        os.read(end, 1)
    if who == "agent":
        node.link.send("stop", procs=None, grace_s=0.3)
        node.expect("stopped")
    else:
        os.kill(node.pids()[1], signal.SIGKILL)
        node.expect_lost()
    assert os.read(end, 1) == b""  # no process holds the other end
    os.close(end)


def test_a_goodbye_reports_the_end_again_only_after_another_start(node: Node) -> None:
    node.link.send("stop", procs=None, grace_s=5.0)
    node.expect("stopped")
    node.link.send("bye", grace_s=5.0, drain_s=30.0)
    node.expect("goodbye")
    assert len(node.messages("stopped")) == 1


def test_a_goodbye_alone_reports_the_end_of_the_processes(node: Node) -> None:
    node.link.send("stop", procs=None, grace_s=5.0)
    node.expect("stopped")
    pid = node.python("import time; time.sleep(600)")
    node.link.send("bye", grace_s=5.0, drain_s=30.0)
    node.expect("goodbye")
    assert len(node.messages("stopped")) == 2
    assert not lives(pid)


@pytest.mark.parametrize("victim", ["guard", "agent"])
def test_when_one_of_the_two_agent_processes_is_killed_the_other_cleans(
    node: Node, canary: object, victim: str
) -> None:
    family = run_all(node)
    guard, agent = node.pids()
    os.kill(guard if victim == "guard" else agent, signal.SIGKILL)
    eventually(lambda: gone(family | {guard, agent}), f"{family} are gone")
    reason = node.expect_lost()
    if victim == "agent":
        assert "signal 9" in reason


def test_when_both_are_killed_together_their_watcher_cleans(node: Node, canary: object) -> None:
    family = run_all(node)
    guard, agent = node.pids()
    watcher = parent_of(guard)
    for pid in (guard, agent):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone(family | {guard, agent, watcher}), f"{family} are gone")
    assert marked(node.job_id) == []


def test_a_guard_that_cannot_clean_is_cleaned_after_by_its_watcher(node: Node, canary: object) -> None:
    family = run_until_ready(node, STRAYS["cleared its environment"])
    guard, agent = node.pids()
    _, most = resource.prlimit(guard, resource.RLIMIT_NOFILE)
    resource.prlimit(guard, resource.RLIMIT_NOFILE, (3, most))  # it can open nothing more, /proc neither
    os.kill(agent, signal.SIGKILL)
    assert "Too many open files" in node.expect_lost()
    assert gone(family)


def test_a_kill_of_the_agent_s_group_leaves_its_watcher(node: Node, canary: object) -> None:
    family = run_until_ready(node, STRAYS["cleared its environment"])
    guard, agent = node.pids()
    assert os.getpgid(guard) == os.getpgid(agent) != os.getpgid(parent_of(guard))
    os.killpg(os.getpgid(guard), signal.SIGKILL)
    eventually(lambda: gone(family | {guard, agent}), f"{family} are gone")


def test_without_its_watcher_the_agent_stops_the_job_and_goes(node: Node, canary: object) -> None:
    family = run_until_ready(node, STRAYS["daemonized"])
    guard, agent = node.pids()
    os.kill(parent_of(guard), signal.SIGKILL)
    eventually(lambda: gone(family | {guard, agent}), f"{family} are gone")


def test_if_all_three_are_killed_at_once_the_direct_children_die_with_them(node: Node) -> None:
    child = node.python("import time; time.sleep(600)")
    guard, agent = node.pids()
    for pid in (parent_of(guard), guard, agent):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: gone({child, guard, agent}), f"{child} is gone")


def test_the_end_of_standard_input_stops_the_job(node: Node, canary: object) -> None:
    family = run_all(node)
    node.close()
    eventually(lambda: gone(family), f"{family} are gone")


def test_a_launcher_that_is_killed_leaves_nothing(tmp_path: Path, canary: object) -> None:
    """Killed at random moments, from before the greeting to the middle of a run."""
    generator = random.Random(20)
    script = """
import sys, time
from functools import partial
from pathlib import Path
from tests.runtime.paddle_node.agent.driven_node import Node
node = Node(Path(sys.argv[1]), "JOB-killed-launcher")
node.greet(); node.adopt(); node.start(["sleep", "600"])
print("up", flush=True)
time.sleep(600)
"""
    for turn in range(4):
        launcher = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / str(turn))], stdout=subprocess.PIPE, text=True
        )
        assert launcher.stdout is not None
        with launcher:
            if turn % 2:
                assert launcher.stdout.readline() == "up\n"
            else:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    launcher.wait(generator.uniform(0.2, 0.8))
            family = below(launcher.pid)
            launcher.kill()
        eventually(partial(gone, family), f"{family} are gone")
        eventually(partial(unmarked, "JOB-killed-launcher"), "the job is gone")


def test_a_process_may_finish_within_its_grace(node: Node) -> None:
    node.python(
        "import signal, sys, time\n"
        "def leave(*_): print('saved', flush=True); sys.exit(0)\n"
        f"signal.signal(signal.SIGTERM, leave); {READY}; time.sleep(600)"
    )
    node.until(lambda _: b"ready" in node.text(), 60, "ready")
    node.link.send("stop", procs=None, grace_s=20.0)
    assert node.expect("stopped").fields["killed"] == 0
    assert b"saved" in node.text()


def test_a_forced_stop_kills_the_child_of_a_script_that_ended_on_the_first_stop_without_a_notice(
    node: Node,
) -> None:
    node.python(
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n"
        f"subprocess.Popen([sys.executable, '-c', {DEAF!r}]); time.sleep(600)"
    )
    node.until(lambda _: b"ready" in node.text(), 60, "ready")
    node.link.send("stop", procs=None, grace_s=600.0)
    assert node.expect("exited").fields["code"] == 0
    node.link.send("stop", procs=None, grace_s=0.0)
    node.expect("stopped", killed=1)  # the first stop reports its own end too, before or after this
    assert node.notices() == []


def test_one_process_is_stopped_with_its_orphans_and_the_others_stay(node: Node) -> None:
    node.python(STRAYS["daemonized"], proc="pserver-0")
    node.until(lambda _: b"ready" in node.text("pserver-0"), 60, "pserver-0 is ready")
    orphans = below(node.pids()[1])
    other = node.start(["sleep", "600"], proc="trainer-0")
    node.link.send("stop", procs=["pserver-0"], grace_s=0.2)
    assert node.expect("stopped").fields["procs"] == ["pserver-0"]
    assert gone(orphans)
    assert lives(other)


def test_a_process_that_got_the_number_of_one_that_ended_is_not_stopped_in_its_place(node: Node) -> None:
    last = Path("/proc/sys/kernel/ns_last_pid")
    if not os.access(last, os.W_OK):
        pytest.skip("needs to choose the next pid")
    ended = node.start(["true"], proc="trainer-0")
    node.expect("exited", proc="trainer-0")
    for _ in range(50):  # somebody else may be quicker
        last.write_text(str(ended - 1))
        other = node.start(["sleep", "600"], proc="trainer-1")
        if other == ended:
            break
        os.kill(other, signal.SIGKILL)
        node.expect("exited", proc="trainer-1")
    else:
        pytest.skip("the pid was never given again")
    node.link.send("stop", procs=["trainer-0"], grace_s=0.2)
    node.expect("stopped")
    assert lives(other)


def test_two_embedded_nodes_of_one_job_do_not_stop_each_other(make_node: Callable[..., Node]) -> None:
    first = make_node(node_id=0)
    second = make_node(node_id=1, job_id=first.job_id)
    pids = []
    for node in (first, second):
        node.greet()
        node.adopt()
        pids.append(node.start(["sleep", "600"]))
    first.link.send("stop", procs=None, grace_s=0.2)
    first.expect("stopped")
    assert not lives(pids[0])
    assert lives(pids[1])


def test_a_fresh_agent_finds_what_an_older_one_left(make_node: Callable[..., Node]) -> None:
    """Both agent processes die at once: only the direct children die with them."""
    node = make_node()
    node.greet()
    node.adopt()
    run_until_ready(node, STRAYS["daemonized"])
    for pid in node.pids():
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(node.pids()):
        os.kill(pid, signal.SIGKILL)
    node.expect_lost()
    left = marked(node.job_id)
    later = make_node(job_id=node.job_id)
    later.greet()
    later.link.send("stop", procs=None, grace_s=0.2)
    assert later.expect("stopped").fields["left"] == []
    assert gone(set(left))


def test_bye_stops_collects_and_leaves(node: Node) -> None:
    node.python(STRAYS["daemonized"])
    node.until(lambda _: b"ready" in node.text(), 60, "ready")
    node.link.send("bye", grace_s=0.2, drain_s=5.0)
    node.expect("goodbye")
    assert node.files["log/train.log"] == b"ready\n"
    assert "status 0" in node.expect_lost()


def test_a_guard_that_was_started_with_children_ignored_cleans_all_the_same(
    make_node: Callable[..., Node],
) -> None:
    """As `trap "" CHLD` in a login script leaves it."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        node = make_node()
    finally:
        signal.signal(signal.SIGCHLD, before)
    node.greet()
    node.adopt()
    node.python(DEAF)
    node.until(lambda _: b"ready" in node.text(), 60, "ready")
    _, agent = node.pids()
    os.kill(agent, signal.SIGKILL)
    assert "killed by signal 9" in node.expect_lost()
    assert marked(node.job_id) == []


def test_a_watcher_that_somebody_stopped_goes_on_and_ends_with_the_job(node: Node) -> None:
    guard, _ = node.pids()
    watcher = parent_of(guard)
    os.kill(watcher, signal.SIGSTOP)
    eventually(lambda: state(watcher) == "T", "the watcher is stopped")
    eventually(lambda: state(watcher) != "T", "its guard continued it")
    os.kill(watcher, signal.SIGSTOP)
    eventually(lambda: state(watcher) == "T", "the watcher is stopped once more")
    node.link.send("bye")
    node.expect_lost()
    eventually(lambda: not lives(watcher), "the watcher is gone")


def killed_at_once(node: Node) -> set[int]:
    """Ends all three processes of an agent, and gives the job's processes that lived on."""
    family = run_until_ready(node, STRAYS["cleared its environment"])
    kill_three(node)
    return {pid for pid in family if lives(pid)}


def ended_by_a_visitor(make_node: Callable[..., Node], node: Node) -> dict[str, object]:
    visitor = make_node(job_id="VISIT")
    visitor.root = node.root
    visitor.greet()
    visitor.link.send("end_job", job_id=node.job_id, grace_s=0.2)
    return visitor.expect("job_ended").fields


def test_what_lived_on_when_all_three_were_killed_is_found_by_its_control_group(
    make_node: Callable[..., Node], node: Node, canary: object
) -> None:
    record = json.loads(next((node.root / ".paddle/jobs").glob("*.json")).read_text())
    if not record["group"]:
        pytest.skip("no control group can be made here")
    left = killed_at_once(node)
    ended = ended_by_a_visitor(make_node, node)
    assert (ended["left"], ended["unsure"]) == ([], "")
    eventually(lambda: gone(left), f"{left} are gone")


def test_a_control_group_is_gone_with_its_job(node: Node) -> None:
    group = json.loads(next((node.root / ".paddle/jobs").glob("*.json")).read_text())["group"]
    if not group:
        pytest.skip("no control group can be made here")
    run_until_ready(node, STRAYS["daemonized"])
    assert Path(group, "cgroup.procs").read_text().split()
    node.link.send("bye")
    node.expect_lost()
    eventually(lambda: not Path(group).exists(), f"{group} is gone")


def test_without_a_control_group_a_possibly_remaining_process_is_reported(
    make_node: Callable[..., Node], node: Node
) -> None:
    path = next((node.root / ".paddle/jobs").glob("*.json"))
    left = killed_at_once(node)
    path.write_text(json.dumps({**json.loads(path.read_text()), "group": ""}))
    ended = ended_by_a_visitor(make_node, node)
    kill_all(sorted(left))
    assert "may still run" in str(ended["unsure"])


def test_a_stop_does_not_wait_for_leftovers_of_a_script_that_ended_long_ago(node: Node) -> None:
    node.python("import subprocess, sys; subprocess.Popen(['sleep', '100'])")
    node.expect("exited", code=0)
    ended = time.monotonic()
    clock = "import signal, time; signal.signal(15, lambda *_: exit(time.monotonic())); print('ready'); time.sleep(99)"
    node.python(clock, proc="trainer-1", log="log/other.log")
    node.expect("line", proc="trainer-1")
    eventually(lambda: time.monotonic() > ended + SETTLE_S, "helpers had their time")
    asked = time.monotonic()
    node.link.send("stop", procs=None, grace_s=30)
    node.expect("notice")
    assert node.expect("stopped").fields["left"] == []
    assert float((node.root / "job/log/other.log").read_text().split()[1]) - asked < SETTLE_S
