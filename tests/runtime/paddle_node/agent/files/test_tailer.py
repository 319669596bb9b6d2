# SPDX-License-Identifier: Apache-2.0
"""The tailer between two of its scans, while other programs rename and remove files."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_cluster.files.collect import Collector
from paddle_node.agent.files.saved_files import SavedFiles
from paddle_node.agent.files.sent_files import YOUNG_NS, Listing
from paddle_node.agent.files.tailer import Tailer
from paddle_node.agent.link.loop import Callback, Loop, Timer
from paddle_node.agent.link.outbox import Outbox
from paddle_node.contract.collected import Listed
from paddle_node.contract.frames import Decoder

SIZE = 200_000  # several chunks


class StillLoop(Loop):
    """Nothing happens by itself, and no signal handler is set."""

    def __init__(self) -> None:
        pass

    def after(self, delay_s: float, callback: Callback) -> Timer:
        return Timer(delay_s, callback)

    def last(self, callback: Callback) -> None:
        callback()

    def on_writable(self, fd: int, callback: Callback | None) -> None:
        pass

    def work(self, steps: Iterator[None]) -> None:
        self.steps = steps


@pytest.fixture
def loop() -> StillLoop:
    return StillLoop()


@pytest.fixture
def tailer(loop: StillLoop, tmp_path: Path) -> Iterator[Tailer]:
    """Of a job directory without files, whose outbox leads to nothing: chunks are asked for by the test."""
    (tmp_path / "log").mkdir()
    sink = os.open(os.devnull, os.O_WRONLY)
    tailer = Tailer(loop, str(tmp_path), Outbox(loop, sink, lambda: None))
    tailer.watch(["log"])
    yield tailer
    os.close(sink)


def test_a_log_whose_chunk_is_due_amid_its_rename_is_not_taken_for_removed(
    tailer: Tailer, tmp_path: Path
) -> None:
    log = tmp_path / "log" / "train.log"
    log.write_bytes(b"x" * SIZE)
    tailer.scan()
    frames = [tailer.sender.next_chunk()]
    log.rename(log.with_name("train.log.1"))
    assert tailer.sender.next_chunk() is None  # the new log is not there yet
    log.write_bytes(b"")
    tailer.scan()
    while frames[-1] is not None:
        frames.append(tailer.sender.next_chunk())
    sent = Decoder("agent", {"file", "moved"}).feed(b"".join(filter(None, frames)))
    assert [(frame.kind, frame.fields["path"]) for frame in sent[:2]] == [
        ("file", "log/train.log"),
        ("moved", "log/train.log"),
    ]
    assert sum(len(frame.body) for frame in sent) == SIZE


class GrowingLog(SavedFiles):
    """Nothing is saved elsewhere; a log grows just after it was listed."""

    def __init__(self, log: Path) -> None:
        self._log = log

    def add_to(self, found: Listing) -> None:
        self.grow()

    def grow(self) -> None:
        with self._log.open("ab") as file:
            file.write(b"more")

    def absolute(self, path: str) -> str | None:
        return None


def test_a_log_that_grows_and_is_sent_amid_a_scan_is_not_taken_for_truncated(
    loop: StillLoop, tmp_path: Path
) -> None:
    (tmp_path / "log").mkdir()
    log, other = tmp_path / "log/train.log", tmp_path / "log/other.log"
    said = tmp_path / "said"
    sink = os.open(said, os.O_WRONLY | os.O_CREAT)
    outbox, growing = Outbox(loop, sink, lambda: None), GrowingLog(log)
    tailer = Tailer(loop, str(tmp_path), outbox, growing)
    outbox.next_chunk = tailer.sender.next_chunk
    outbox.pace_s = 0
    tailer.watch(["log"])
    other.write_bytes(b"other")
    tailer.scan()
    outbox.pace_s = 3600
    growing.grow()
    tailer.scan()  # what the log has grown by waits for more
    other.rename(tmp_path / "log/other.log.1")
    outbox.pace_s = 0
    tailer.scan()  # news of the renamed one are due at once, and with them all that waits
    os.close(sink)
    frames = Decoder("agent", {"file", "moved", "notice"}).feed(said.read_bytes())
    assert [frame.fields for frame in frames if frame.kind == "notice"] == []
    parts = [frame for frame in frames if frame.fields["path"] == "log/train.log"]
    assert [frame.fields["reset"] for frame in parts] == [True, False]
    assert b"".join(frame.body for frame in parts) == log.read_bytes()


def test_a_file_that_changes_again_while_the_others_are_read_again_is_read_once_more(
    loop: StillLoop, tailer: Tailer, tmp_path: Path
) -> None:
    first, second = tmp_path / "log/first", tmp_path / "log/second"
    for path in (first, second):
        path.write_bytes(b"old")
    tailer.finish()
    sender = tailer.sender
    frames: list[bytes] = []

    def send() -> None:
        while frame := sender.next_chunk():
            frames.append(frame)

    send()
    changing = next(path for path in sender.files)  # the one that is read again first
    (tmp_path / changing).write_bytes(b"new")
    for number, _ in enumerate(loop.steps):
        if number == 1:  # the other one is being read
            send()
            (tmp_path / changing).write_bytes(b"end")
    send()
    for _ in range(3):
        for _ in loop.steps:
            pass
        send()
    said = Decoder("agent", {"file", "listed"}).feed(b"".join(frames))
    assert [one.body for one in said if one.fields.get("path") == changing] == [b"old", b"new", b"end"]


def test_an_empty_part_of_the_list_is_sent_while_files_are_read_again(
    loop: StillLoop, tailer: Tailer, tmp_path: Path
) -> None:
    (tmp_path / "log/large").write_bytes(b"x" * SIZE)
    tailer.finish()
    while tailer.sender.next_chunk():
        pass
    next(loop.steps)
    frames = [tailer.sender.next_chunk(), tailer.sender.next_chunk()]
    (said,) = Decoder("agent", {"listed"}).feed(b"".join(filter(None, frames)))
    assert (said.fields, said.body) == ({"last": False}, b"[]")
    collector = Collector(tmp_path / "copies")
    assert collector.take(0, Listed(last=False), said.body) == ""
    assert collector.ledger(0).listed == 0


def test_a_file_that_changes_and_keeps_its_size_and_time_is_sent_again(
    loop: StillLoop, tailer: Tailer, tmp_path: Path
) -> None:
    frames: list[bytes] = []

    def write(text: str) -> None:
        (tmp_path / "log/model").write_text(text)
        os.utime(tmp_path / "log/model", (5, 5))

    def send() -> None:
        while frame := tailer.sender.next_chunk():
            frames.append(frame)

    write("old")
    while time.time_ns() - (tmp_path / "log/model").stat().st_ctime_ns <= YOUNG_NS:
        pass  # such a file is not read twice
    tailer.scan()
    send()
    write("new")
    tailer.finish()
    send()
    for _ in range(2):
        for _ in loop.steps:
            pass
        send()
    said = Decoder("agent", {"file", "listed"}).feed(b"".join(frames))
    assert [one.body for one in said if one.kind == "file"] == [b"old", b"new"]


def test_new_files_beside_the_collected_ones_are_named(loop: StillLoop, tmp_path: Path) -> None:
    for name in ("log", "output", "data", "full"):
        (tmp_path / name).mkdir()
    (tmp_path / "train.py").touch()
    sink = os.open(os.devnull, os.O_WRONLY)
    tailer = Tailer(loop, str(tmp_path), Outbox(loop, sink, lambda: None))
    tailer.watch(["log"])
    for name in ("log/a", ".hidden", "data/a", "train.py"):
        (tmp_path / name).touch()
    (tmp_path / "__pycache__").mkdir()
    assert tailer.left() == {"rest": str(tmp_path), "uncollected": [], "has_saved": False}
    for name in ("model.pt", "output/a", os.fsdecode(b"\xff\n"), "x" * 200):
        (tmp_path / name).touch()
    (tmp_path / "runs").mkdir()
    found = tailer.left()["uncollected"]
    assert found[:3] == ["model.pt", "output/", "runs/"]
    assert found[3:] == ["x" * 100, r"\udcff\n"]
    (tmp_path / "log").rename(tmp_path / "scratch")
    (tmp_path / "log").symlink_to(tmp_path / "scratch")
    tailer.finish()
    assert tailer.left()["uncollected"][0] == "log (a link)"
    for number in range(30):
        (tmp_path / str(number)).touch()
    assert len(tailer.left()["uncollected"]) == 10
    os.close(sink)
