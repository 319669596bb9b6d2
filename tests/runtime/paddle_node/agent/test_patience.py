# SPDX-License-Identifier: Apache-2.0
"""What an agent takes seconds to find out, or to be sure of."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from paddle_cluster.connection.link import MessageEvent
from tests.beside import Outcomes, Scenarios
from tests.runtime.paddle_node.agent.driven_node import Node, eventually
from tests.runtime.paddle_node.agent.own_nodes import MakeNode, own_nodes, ready_node
from tests.runtime.paddle_node.agent.strays import DEAF, STRAYS, below, gone, run_until_ready, somebody_else

scenarios = Scenarios(own_nodes, at_once=12)
outcomes = scenarios.fixture()

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT, WALL = 17, 0x4206, 0x4207, 0x40000000
HOOKS = str(Path(__file__).resolve().parents[4] / "runtime" / "paddle" / "hooks")
HOLD = "import time\ndef wait_for_nothing():\n    time.sleep(60)\nprint('holding')\nwait_for_nothing()\n"
BEATS = """
import os, time
fd = int(os.environ['PADDLE_REPORT_FD'])
os.write(fd, b'{"event": "alive"}\\n')
def mute(): time.sleep(60)
mute()
"""
STEPS = """
import os, time
fd = int(os.environ['PADDLE_REPORT_FD'])
numbers = b'"pass_id": 0, "batch_id": 0, "step": 1, "cost": 1, "samples": 1, "samples_per_s": 1'
os.write(fd, b'{"event": "progress", ' + numbers + b'}\\n')
def stuck_in_the_second_step(): time.sleep(60)
stuck_in_the_second_step()
"""


def holding(node: Node) -> None:
    node.until(lambda _: b"holding" in node.text(), 60, "the process holds")


@scenarios.add
def an_agent_that_hears_nothing_stops_the_job_after_its_lease(make_node: MakeNode) -> None:
    with somebody_else():
        node = ready_node(make_node, lease_s=6.0)
        family = run_until_ready(node, DEAF)
        assert "no message from the launcher" in node.expect("failed", reason="abandoned").fields["detail"]
        node.expect_lost()
        assert gone(family)


@scenarios.add
def pings_keep_the_lease(make_node: MakeNode) -> None:
    node = make_node()
    node.greet(lease_s=6.0)
    for seq in range(8):
        node.link.send("ping", seq=seq)
        node.expect("pong", seq=seq)
        with pytest.raises(AssertionError, match="no LinkLost"):
            node.expect_lost(timeout_s=1.2)


@scenarios.add
def the_lease_ends_a_job_whose_launcher_is_frozen_and_reads_nothing(make_node: MakeNode) -> None:
    """A full pipe must not block the agent."""
    folder = make_node().root
    script = """
import sys
from functools import partial
from pathlib import Path
from tests.runtime.paddle_node.agent.driven_node import Node
node = Node(Path(sys.argv[1]), "JOB-frozen-launcher")
node.greet(lease_s=8.0); node.adopt()
node.start(["sh", "-c", "while :; do echo 0123456789012345678901234567890123456789; done"])
print("up", flush=True)
while True:
    node.events.get()
"""
    launcher = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert launcher.stdout is not None
    with launcher:
        assert launcher.stdout.readline() == "up\n"
        family = below(launcher.pid)
        assert family
        os.kill(launcher.pid, signal.SIGSTOP)
        try:
            eventually(lambda: gone(family), f"{family} are gone")
        finally:
            launcher.kill()


@scenarios.add
def an_agent_that_somebody_stops_goes_on(make_node: MakeNode) -> None:
    """Stopped, it could neither end the job nor notice that it has to."""
    node = ready_node(make_node)
    _, agent = node.pids()
    os.kill(agent, signal.SIGSTOP)
    node.link.send("ping", seq=77)
    node.expect("pong", seq=77)


@scenarios.add
def an_agent_that_hangs_in_the_kernel_for_longer_than_its_lease_is_cleaned_after(make_node: MakeNode) -> None:
    """Held by a tracer it can neither run nor be reaped, as on a file system that does not answer."""
    with somebody_else():
        node = ready_node(make_node, lease_s=5.0)
        family = run_until_ready(node, STRAYS["daemonized"])
        _, agent = node.pids()
        libc = ctypes.CDLL(None, use_errno=True)
        if (
            libc.ptrace(PTRACE_SEIZE, agent, None, None) != 0
            or libc.ptrace(PTRACE_INTERRUPT, agent, None, None) != 0
        ):
            pytest.skip(f"needs ptrace: {os.strerror(ctypes.get_errno())}")
        try:
            eventually(lambda: gone(family), f"{family} are gone", timeout_s=40)
        finally:
            libc.ptrace(PTRACE_DETACH, agent, None, None)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(agent, WALL)
        assert "for 15 s" in node.expect_lost()


@scenarios.add
def a_stopped_process_is_told_with_what_the_kernel_knows_and_so_is_its_recovery(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    pid = node.python(HOLD)
    holding(node)
    os.kill(pid, signal.SIGSTOP)
    fields = node.expect("stalled", proc="trainer-0").fields
    assert fields["cause"] == "frozen"
    assert "stopped by a signal (state T)" in fields["what"]
    assert f"pid {pid}" in fields["stacks"]
    assert "state T (stopped)" in (node.root / "job/log/train.log").read_text()
    os.kill(pid, signal.SIGCONT)
    node.expect("recovered", proc="trainer-0")


@scenarios.add
def a_process_that_no_longer_sends_signs_of_life_is_frozen(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    node.python(BEATS, env={"PYTHONPATH": HOOKS}, heartbeat_timeout_s=1.0)
    fields = node.expect("stalled").fields
    assert fields["cause"] == "frozen"
    assert "no heartbeat" in fields["what"]
    assert "in mute" in fields["stacks"]


@scenarios.add
def a_trainer_without_a_further_step_hangs_and_its_stacks_are_in_its_log(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    node.python(STEPS, env={"PYTHONPATH": HOOKS}, step_timeout_s=1.0)
    fields = node.expect("stalled").fields
    assert fields["cause"] == "no step"
    assert "in stuck_in_the_second_step" in fields["stacks"]
    assert "in stuck_in_the_second_step" in (node.root / "job/log/train.log").read_text()


@scenarios.add
def a_process_that_never_told_of_life_or_steps_may_take_its_time(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    node.python(HOLD, heartbeat_timeout_s=1.0, step_timeout_s=1.0)
    holding(node)
    with pytest.raises(AssertionError, match="no stalled"):
        node.expect("stalled", 3.0)


@scenarios.add
def a_process_under_a_debugger_is_never_called_frozen(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    pid = node.python(BEATS, heartbeat_timeout_s=5.0)
    code = (
        "import ctypes, sys, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        f"sys.exit('no ptrace here') if libc.ptrace(16, {pid}, 0, 0) else None\n"  # PTRACE_ATTACH stops it
        "print('attached', flush=True)\n"
        "time.sleep(60)\n"
    )
    debugger = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    try:
        assert debugger.stdout is not None
        if "attached" not in debugger.stdout.readline():
            pytest.skip("this machine does not allow ptrace")
        with pytest.raises(AssertionError, match="no stalled"):
            node.expect("stalled", 10.0)
    finally:
        debugger.kill()
        debugger.communicate()


@scenarios.add
def remarks_that_come_too_fast_are_counted(make_node: MakeNode) -> None:
    node = ready_node(make_node)
    for index in range(100):
        (node.root / f"job/log/{index}").write_bytes(b"x")
    node.until(lambda _: len(node.files) == 100, 60, "the files")
    began = time.monotonic()
    for index in range(100):
        (node.root / f"job/log/{index}").unlink()
    node.until(
        lambda event: (
            isinstance(event, MessageEvent)
            and event.kind == "notice"
            and "more messages" in event.message.text
        ),
        30,
        "a count",
    )
    shown = [text for text in node.notices() if "was removed" in text]
    assert len(shown) < 40 + (time.monotonic() - began)
    assert len(shown) + node.counted(r"^(\d+) more messages") == 100


@pytest.mark.parametrize("scenario", scenarios)
def test_after_a_while(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
