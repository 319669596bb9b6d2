# SPDX-License-Identifier: Apache-2.0
"""The tailer between two of its scans, while somebody else renames and removes files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddle_node.agent.files.tailer import Tailer
from paddle_node.agent.link.loop import Callback, Loop, Timer
from paddle_node.agent.link.outbox import Outbox
from paddle_node.contract.frames import Decoder

SIZE = 200_000  # several chunks


class StillLoop(Loop):
    """Nothing happens by itself, and no signal handler is set."""

    def __init__(self) -> None:
        pass

    def after(self, delay_s: float, callback: Callback) -> Timer:
        return Timer(delay_s, callback)

    def on_writable(self, fd: int, callback: Callback | None) -> None:
        pass


@pytest.fixture
def tailer(tmp_path: Path) -> Iterator[Tailer]:
    """Of a job directory without files, whose outbox leads to nothing: chunks are asked for by the test."""
    (tmp_path / "log").mkdir()
    loop, sink = StillLoop(), os.open(os.devnull, os.O_WRONLY)
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
