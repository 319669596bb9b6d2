# SPDX-License-Identifier: Apache-2.0
"""Processes that live and do not get on: told within seconds, with their stacks; and processes that recover."""

from __future__ import annotations

from pathlib import Path

from paddle_node.agent.processes.stacks import SIGNAL
from paddle_node.linux import proc, process_tree
from tests.runtime.paddle_node.agent.driven_node import Node, eventually

HOOKS = str(Path(__file__).resolve().parents[5] / "runtime" / "paddle" / "hooks")


def holding(node: Node) -> None:
    node.until(lambda _: b"holding" in node.text(), 60, "the process holds")


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
    eventually(lambda: " (sleep) S " in Path(f"/proc/{pid}/stat").read_text(), "it sleeps")
    node.link.send("stacks", procs=["trainer-0"])
    text = node.expect("stacks").fields["stacks"]
    assert f"pid {pid} sleep 60: state S" in text
    node.link.send("ping", seq=1)
    node.expect("pong")
    assert node.messages("exited") == []


def test_a_process_that_replaces_its_program_when_it_is_signalled_lives_on(node: Node) -> None:
    # the handler is seen, the program is replaced, and only then does the signal arrive
    pid = node.start(["sleep", "60"])
    eventually(lambda: " (sleep) S " in Path(f"/proc/{pid}/stat").read_text(), "it sleeps")
    found = process_tree.process_of(pid)
    assert found is not None
    assert process_tree.send(found, SIGNAL)
    node.link.send("ping", seq=1)
    node.expect("pong")
    assert node.messages("exited") == []
    assert process_tree.living(pid, found.start) is not None


def test_no_child_of_a_process_dies_while_it_is_being_asked_for_its_stacks(node: Node) -> None:
    code = (
        "import subprocess\n"
        "ends = [subprocess.run(['true'], preexec_fn=int).returncode for _ in range(1500)]\n"
        "print('deaths', sum(map(bool, ends)), flush=True)\n"
    )
    pid = node.python(code, env={"PYTHONPATH": HOOKS})
    sent = 0
    while process_tree.has_marks(pid, {"PADDLE_PROC": "trainer-0"}):
        seen = process_tree.snapshot()
        for child in process_tree.descendants(seen, [pid]):
            caught = proc.value(f"/proc/{child}/status", "SigCgt")
            if caught and int(caught, 16) >> (SIGNAL - 1) & 1:
                sent += process_tree.send(seen[child], SIGNAL)
    assert node.expect("exited").fields["code"] == 0
    assert sent
    assert b"deaths 0\n" in node.text()


def test_a_restarted_process_says_so_in_its_log(node: Node) -> None:
    node.start(["echo", "first"])
    node.expect("exited")
    node.start(["echo", "second"], banner="---- trainer-0 is started again ----")
    node.expect("exited")
    log = node.root / "job/log/train.log"
    eventually(lambda: log.read_text().count("\n") == 3, "three lines in the log")
    assert log.read_text().splitlines() == ["first", "---- trainer-0 is started again ----", "second"]
