# SPDX-License-Identifier: Apache-2.0
"""Processes that live and do not get on: told within seconds, with their stacks; and processes that recover."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.agent.node import Node, eventually

HOOKS = str(Path(__file__).resolve().parents[3] / "runtime" / "paddle" / "hooks")
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
os.write(fd, b'{"event": "progress", "step": 1}\\n')
def stuck_in_the_second_step(): time.sleep(60)
stuck_in_the_second_step()
"""


def holding(node: Node) -> None:
    node.until(lambda _: b"holding" in node.text(), 10, "the process holds")


def test_a_stopped_process_is_told_with_what_the_kernel_knows_and_so_is_its_recovery(node: Node) -> None:
    pid = node.python(HOLD)
    holding(node)
    os.kill(pid, signal.SIGSTOP)
    fields = node.expect("stalled", 10, proc="trainer-0").fields
    assert fields["cause"] == "frozen"
    assert "stopped by a signal (state T)" in fields["what"]
    assert f"pid {pid}" in fields["stacks"]
    assert "state T (stopped)" in (node.root / "job/log/train.log").read_text()
    os.kill(pid, signal.SIGCONT)
    node.expect("recovered", 10, proc="trainer-0")


def test_a_process_that_no_longer_sends_signs_of_life_is_frozen(node: Node) -> None:
    node.python(BEATS, env={"PYTHONPATH": HOOKS}, heartbeat_timeout_s=1.0)
    fields = node.expect("stalled", 10).fields
    assert fields["cause"] == "frozen"
    assert "no sign of life" in fields["what"]
    assert "in mute" in fields["stacks"]


def test_a_trainer_without_a_further_step_hangs_and_its_stacks_are_in_its_log(node: Node) -> None:
    node.python(STEPS, env={"PYTHONPATH": HOOKS}, step_timeout_s=1.0)
    fields = node.expect("stalled", 10).fields
    assert fields["cause"] == "no step"
    assert "in stuck_in_the_second_step" in fields["stacks"]
    assert "in stuck_in_the_second_step" in (node.root / "job/log/train.log").read_text()


def test_a_process_that_never_told_of_life_or_steps_may_take_its_time(node: Node) -> None:
    node.python(HOLD, heartbeat_timeout_s=1.0, step_timeout_s=1.0)
    holding(node)
    with pytest.raises(AssertionError):
        node.expect("stalled", 3.0)


def test_the_stacks_of_all_threads_of_a_process_and_its_children_come_when_asked_for(node: Node) -> None:
    code = (
        "import subprocess, sys, threading, time\n"
        "def in_a_thread(): time.sleep(60)\n"
        "threading.Thread(target=in_a_thread, daemon=True).start()\n"
        "subprocess.run([sys.executable, '-c', 'import time\\ndef in_a_child():\\n    print(\"holding\", flush=True)\\n"
        "    time.sleep(60)\\nin_a_child()'])\n"
    )
    node.python(code, env={"PYTHONPATH": HOOKS})
    holding(node)
    node.link.send("stacks", procs=None)
    text = node.expect("stacks", proc="trainer-0").fields["stacks"]
    assert "in in_a_thread" in text
    assert "in in_a_child" in text


def test_a_process_without_the_hook_is_not_signalled_but_described(node: Node) -> None:
    pid = node.start(["sleep", "60"])
    node.link.send("stacks", procs=["trainer-0"])
    text = node.expect("stacks").fields["stacks"]
    assert f"pid {pid} sleep 60: state S" in text
    node.link.send("ping", seq=1)
    node.expect("pong")
    assert node.messages("exited") == []


def test_a_process_under_a_debugger_is_never_called_frozen(node: Node) -> None:
    pid = node.python(BEATS, heartbeat_timeout_s=1.0)
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
        node.seen.clear()
        with pytest.raises(AssertionError):
            node.expect("stalled", 5.0)
    finally:
        debugger.kill()
        debugger.communicate()


def test_a_restarted_process_says_so_in_its_log(node: Node) -> None:
    node.start(["echo", "first"])
    node.expect("exited")
    node.start(["echo", "second"], banner="---- trainer-0 is started again ----")
    node.expect("exited")
    log = node.root / "job/log/train.log"
    eventually(lambda: log.read_text().count("\n") == 3, "three lines in the log")
    assert log.read_text().splitlines() == ["first", "---- trainer-0 is started again ----", "second"]
