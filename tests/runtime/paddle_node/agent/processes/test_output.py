# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from paddle_cluster.connection.link import MessageEvent
from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.link.outbox import Outbox
from paddle_node.agent.processes.processes import Processes
from paddle_node.contract.to_agent import Start
from tests.runtime.paddle_node.agent.driven_node import Node, lives


def test_a_progress_bar_is_shown_before_its_line_ends(node: Node) -> None:
    node.python("import sys, time; sys.stdout.write('10%\\r20%'); time.sleep(600)")
    event = node.expect("line")
    assert (event.body, event.fields["partial"]) == (b"10%\r20%", True)


def test_lines_are_whole_when_they_come_in_pieces_close_together(node: Node) -> None:
    node.python(
        "import sys, time\n"
        "for piece in 'one\\nt', 'wo\\nthr', 'ee\\n':\n"
        "    sys.stdout.write(piece); sys.stdout.flush(); time.sleep(0.02)\n"
    )
    node.expect("exited")
    lines = node.messages("line")
    assert node.text() == b"one\ntwo\nthree\n"
    assert all(event.body.endswith(b"\n") for event in lines if not event.fields["partial"])


def test_an_open_last_line_is_shown_and_kept(node: Node) -> None:
    node.python("import sys; sys.stdout.write('no line end')")
    node.expect("exited")
    assert node.text() == b"no line end"
    assert (node.root / "job/log/train.log").read_bytes() == b"no line end"


def test_a_line_of_10_megabytes_passes_in_parts(node: Node) -> None:
    node.python("import sys; sys.stdout.write('x' * 10_000_000 + '\\n')")
    node.expect("exited", code=0)
    assert (node.root / "job/log/train.log").stat().st_size == 10_000_001
    assert max(len(event.body) for event in node.messages("line")) <= 1 << 18
    memory = Path(f"/proc/{node.messages('hello')[0].fields['pid']}/status").read_text()
    peak_kib = int(memory.split("VmHWM:")[1].split()[0])
    assert peak_kib < 64 << 10


def test_a_flood_is_whole_in_the_log_and_in_the_collected_copy(node: Node) -> None:
    """20 MB as fast as it can be written: whatever the screen misses is told."""
    code = "import sys\nfor i in range(200_000): sys.stdout.write('%099d\\n' % i)"
    node.start([sys.executable, "-c", code])
    node.expect("exited", code=0, timeout_s=60)
    node.link.send("bye", grace_s=1.0, drain_s=60.0)
    node.expect("goodbye", timeout_s=90)
    log = (node.root / "job/log/train.log").read_bytes()
    assert len(log) == 20_000_000
    assert hashlib.sha256(node.files["log/train.log"]).digest() == hashlib.sha256(log).digest()
    missing = len(log) - len(node.text())
    told = [event.fields for event in node.messages("line") if event.fields["unsent"]]
    assert missing == sum(fields["unsent"] for fields in told)
    assert {fields["log"] for fields in told} <= {"log/train.log"}


def test_control_frames_pass_a_flood(node: Node) -> None:
    node.start(["sh", "-c", "while :; do echo 0123456789012345678901234567890123456789; done"])
    began = time.monotonic()
    for seq in range(5):
        node.link.send("ping", seq=seq)
        node.expect("pong", seq=seq)
    node.link.send("stop", procs=None, grace_s=0.5)
    node.expect("stopped")
    assert time.monotonic() - began < 45


@pytest.mark.parametrize("small_disk", ["size=256k"], indirect=True)
def test_a_full_log_disk_costs_bytes_and_not_the_job(
    make_node: Callable[..., Node], small_disk: Path
) -> None:
    node = make_node()
    node.root = small_disk
    node.greet()
    node.adopt()
    node.python("print('x' * 400_000); print('still here')")
    assert node.expect("exited").fields["code"] == 0
    if b"still here" not in node.text():  # `exited` may overtake lines
        node.until(lambda _: b"still here" in node.text(), 60, "the last line")
    assert any("No space left" in text and "the job continues" in text for text in node.notices())
    size = (small_disk / "job/log/train.log").stat().st_size
    told = f"{400_012 - size} bytes of output are missing in log/train.log"
    if told not in node.notices():
        node.until(lambda _: told in node.notices(), 60, told)


def test_two_processes_may_share_a_log(node: Node) -> None:
    for name in ("trainer-0", "trainer-1"):
        node.start(["sh", "-c", f"echo {name}"], proc=name)
        node.expect("exited", code=0)
    assert sorted((node.root / "job/log/train.log").read_text().split()) == ["trainer-0", "trainer-1"]


def test_a_line_reaches_the_launcher_at_once(node: Node) -> None:
    node.start(["sh", "-c", "echo now; sleep 600"])
    started = node.until(
        lambda event: isinstance(event, MessageEvent) and event.kind == "line", 60, "the line"
    )
    assert started.body == b"now\n"
    if "log/train.log" not in node.files:
        node.until(lambda _: node.files.get("log/train.log") == b"now\n", 60, "the file")


LATE = """
import ctypes, os, signal, threading, time
asked = threading.Event()
def write_last_line():
    asked.wait()
    time.sleep(1)  # long enough for many searches of the agent
    print("the last line", flush=True)
    os._exit(0)
def end_main_thread(*_):
    asked.set()
    ctypes.CDLL(None).pthread_exit(None)
signal.signal(signal.SIGTERM, end_main_thread)
threading.Thread(target=write_last_line).start()
print("ready", flush=True)
while True:
    signal.pause()
"""


def test_a_process_whose_main_thread_has_exited_is_waited_for_and_its_last_line_collected(node: Node) -> None:
    pid = node.python(LATE)
    node.expect("line")
    node.link.send("bye", grace_s=30.0, drain_s=30.0)
    node.expect("goodbye")
    assert not lives(pid)
    assert node.files["log/train.log"] == b"ready\nthe last line\n"


class StillLoop(Loop):
    """Nothing happens by itself."""

    def __init__(self) -> None:
        self.ended: dict[int, Callable[[int], None]] = {}

    def after(self, delay_s: float, callback: Callable[[], object]) -> Timer:
        return Timer(delay_s, callback)

    def on_readable(self, fd: int, callback: Callable[[], object] | None) -> None:
        pass

    on_writable = on_readable

    def last(self, callback: Callable[[], object]) -> None:
        callback()

    def on_exit(self, pid: int, callback: Callable[[int], None]) -> None:
        self.ended[pid] = callback


def test_the_last_output_of_a_process_that_outlived_its_parent_is_read(tmp_path: Path) -> None:
    for name in "ask", "answered":
        os.mkfifo(tmp_path / name)
    script = "(read line < ask; echo $line; echo > answered) &"
    with open(os.devnull, "wb") as null:
        loop = StillLoop()
        outbox = Outbox(loop, null.fileno(), lambda: None)
        processes = Processes(loop, outbox, {}, lambda log, rotated: None)
        start = Start("trainer-0", ("sh", "-c", script), str(tmp_path), "log")
        pid = processes.start(start, b"", str(tmp_path))
        loop.ended[pid](os.waitpid(pid, 0)[1])
        (tmp_path / "ask").write_text("the last line\n")
        assert (tmp_path / "answered").read_text() == "\n"
        processes.drain()
    assert (tmp_path / "log").read_text() == "the last line\n"
