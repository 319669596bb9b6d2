# SPDX-License-Identifier: Apache-2.0
"""Processes that live and do not get on: told within seconds, with their stacks; and processes that recover."""

from __future__ import annotations

from pathlib import Path

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


def test_a_restarted_process_says_so_in_its_log(node: Node) -> None:
    node.start(["echo", "first"])
    node.expect("exited")
    node.start(["echo", "second"], banner="---- trainer-0 is started again ----")
    node.expect("exited")
    log = node.root / "job/log/train.log"
    eventually(lambda: log.read_text().count("\n") == 3, "three lines in the log")
    assert log.read_text().splitlines() == ["first", "---- trainer-0 is started again ----", "second"]
