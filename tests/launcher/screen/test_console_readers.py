# SPDX-License-Identifier: Apache-2.0
"""A console whose reader is slow, stopped or gone."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator

import pytest

from launcher.screen.console import Console, show
from launcher.screen.writer import BACKLOG

DEADLINE_S = 20.0


class Pipe:
    """A pipe whose reader the test plays."""

    def __init__(self) -> None:
        self.read_end, write_end = os.pipe()
        self.stream = os.fdopen(write_end, "w", encoding="utf-8")

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.read_end)
        with contextlib.suppress(OSError):
            self.stream.close()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_a_reader_that_has_gone_is_noted_once_and_ends_nothing(
    pipe: Pipe, capfd: pytest.CaptureFixture[str]
) -> None:
    console = Console(pipe.stream)
    os.close(pipe.read_end)
    for _ in range(100):
        console.note("to nobody")
    console.close(DEADLINE_S)
    assert capfd.readouterr().err.count("cannot write to the screen any more") == 1


def test_a_reader_that_stopped_holds_up_nobody_and_learns_what_it_missed(pipe: Pipe) -> None:
    """The pipe is full long before the lines end; every call still returns, and the tail arrives when it is read."""
    console = Console(pipe.stream)
    count = 3 * BACKLOG
    for _ in range(count):
        console.process_line("trainer-0", "a", b"x" * 500 + b"\n")
    console.note("the end")
    read = bytearray()

    def drain() -> None:
        while chunk := os.read(pipe.read_end, 65536):
            read.extend(chunk)

    reader = threading.Thread(target=drain)
    reader.start()
    console.close(DEADLINE_S)
    pipe.stream.close()
    reader.join(DEADLINE_S)
    lines = read.decode().splitlines()
    (missed,) = (int(m[1]) for line in lines if (m := re.match(r"\((\d+) lines not shown", line)))
    assert sum(line.startswith("[trainer 0 a] x") for line in lines) + missed == count
    assert missed > 0
    assert "the end" in lines


def test_closing_gives_up_on_a_reader_that_never_comes_back(pipe: Pipe) -> None:
    console = Console(pipe.stream)
    for _ in range(1000):
        console.note("x" * 1000)
    before = time.monotonic()
    console.close(0.2)
    assert time.monotonic() - before < DEADLINE_S
    os.close(pipe.read_end)  # now the blocked write ends, and with it the thread


def test_show_to_a_reader_that_has_gone_is_no_error(pipe: Pipe) -> None:
    os.close(pipe.read_end)
    show("text", pipe.stream)
