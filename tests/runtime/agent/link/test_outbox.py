# SPDX-License-Identifier: Apache-2.0
"""The outbox of an agent: what waits goes out without anybody else's word."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from agent.link.loop import Loop
from agent.link.outbox import Outbox


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
