# SPDX-License-Identifier: Apache-2.0
"""The outbox of an agent: what waits goes out without anybody else's word."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.link.outbox import Outbox


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


def test_what_the_search_for_a_chunk_has_to_tell_goes_out_at_once(pipe: tuple[int, int]) -> None:
    receives, sends = pipe
    outbox = Outbox(Loop(), sends, lambda: None)
    chunks = [lambda: outbox.send("removed", path="output/w"), lambda: None]
    outbox.next_chunk = lambda: chunks.pop(0)() if chunks else None
    outbox.pump()
    assert outbox.empty
    os.set_blocking(receives, False)
    assert b"output/w" in os.read(receives, 1 << 16)


@pytest.mark.parametrize(("pace_s", "waits"), [(3600.0, True), (0.0, False)])
def test_a_line_behind_another_waits_for_company_as_long_as_the_launcher_likes(
    pipe: tuple[int, int], pace_s: float, waits: bool
) -> None:
    _, sends = pipe
    outbox = Outbox(Loop(), sends, lambda: None)
    outbox.pace_s = pace_s
    for line in (b"first\n", b"second\n"):
        outbox.line("trainer-0", line, "train.log", False, 0.0)
    assert outbox.empty is not waits
    outbox.send("pong", seq=1)  # what must arrive takes along what waits
    assert outbox.empty


def test_nothing_follows_the_last_frame(pipe: tuple[int, int]) -> None:
    receives, sends = pipe
    outbox = Outbox(Loop(), sends, lambda: None)
    outbox.pace_s = 3600.0
    outbox.newest("usage", "", {"load": 1.0})
    outbox.finish("goodbye", rest=None)
    sent = os.read(receives, 1 << 16)
    assert sent.index(b"goodbye") > 0
    os.set_blocking(receives, False)
    outbox.newest("usage", "", {"load": 2.0})
    outbox.send("pong", seq=1)
    outbox.line("trainer-0", b"late\n", "train.log", False, 0.0)
    outbox.pump()
    with pytest.raises(BlockingIOError):
        os.read(receives, 1)
    assert outbox.empty
