# SPDX-License-Identifier: Apache-2.0
"""The screen: bounded, harmless lines; no reader can hold up or end a job."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import select
import struct
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher import console_text
from launcher.console import Console, show
from launcher.errors import ExitCode
from launcher.outlet import BACKLOG
from launcher.screen_events import (
    KINDS,
    Backdrop,
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    Noted,
    PhaseEntered,
    Printed,
    Progressed,
    Tabled,
    Timed,
    Unsent,
    from_fields,
    to_fields,
)
from launcher.terminal_text import cells

DEADLINE_S = 20.0


def plain(act: object) -> list[str]:
    """What a console writes into a stream that is no terminal."""
    stream = io.StringIO()
    console = Console(stream)
    act(console)  # type: ignore[operator]
    console.close(DEADLINE_S)
    return stream.getvalue().splitlines()


def test_lines_of_a_process_carry_role_rank_and_node() -> None:
    assert plain(lambda console: console.process_line("trainer-2", "node-c", b"one\ntwo\n")) == [
        "[trainer 2 node-c] one",
        "[trainer 2 node-c] two",
    ]


def test_bytes_that_are_no_text_are_shown_as_escapes() -> None:
    assert plain(lambda console: console.process_line("pserver-0", "a", b"\xff\xc3\xa9\n")) == [
        "[pserver 0 a] \\xffé"
    ]


def test_a_pipe_gets_a_programs_own_colours() -> None:
    assert plain(lambda c: c.process_line("pserver-0", "a", b"\x1b[31mred\x1b[0m\n")) == [
        "[pserver 0 a] \x1b[31mred\x1b[0m"
    ]


def test_a_line_is_bounded_and_says_how_much_is_missing() -> None:
    (line,) = plain(lambda console: console.process_line("trainer-0", "a", b"x" * 1_000_000))
    assert len(line) < console_text.MAX_LINE + 100
    assert line.endswith("... (998000 more characters in the log file)")


def test_a_stream_that_lacks_a_character_gets_an_escape() -> None:
    raw = io.BytesIO()
    console = Console(io.TextIOWrapper(raw, encoding="ascii"))
    console.note("a\udcff ☃")
    console.close(DEADLINE_S)
    assert raw.getvalue() == b"a\\udcff \\u2603\n"


def test_a_job_is_told_in_order_from_phase_to_outcome() -> None:
    def tell(console: Console) -> None:
        console.nodes({0: "a", 1: "b"})
        console.phase("preflight")
        console.table(["node", "state"], [["a", "ok"], ["bb", "no route"]], {1})
        console.node_state(0, "running")
        console.progress(0, 1, 2, 3.5, 100.0)
        console.note("first\nsecond")
        console.times({"connect": 0.125, "total": 2.0})
        console.summary(
            job_id="JOB1",
            code=ExitCode.PROCESS_FAILED,
            logs=Path("ws/log"),
            output=None,
            lines=["FIRST ERROR: trainer 0 on a: exit code 3", "    \x1b[31mTraceback\x07"],
        )

    assert plain(tell) == [
        "== preflight",
        "  node  state",
        "  a     ok",
        "! bb    no route",
        "first",
        "second",
        "times: connect 0.12 s, total 2.00 s",
        "FIRST ERROR: trainer 0 on a: exit code 3",
        "    Traceback\\x07",
        "logs: ws/log",
        "JOB1: failed: a process of the job failed (exit 1)",
    ]


EVENTS: tuple[Event, ...] = (
    NodesNamed(((0, "a"), (1, "b"))),
    PhaseEntered("run"),
    NodeState(1, "running"),
    Printed("trainer-0", "a", b"\xff\x1b[31mone\ntwo\n", False, 12.5),
    Unsent("trainer-0", "a", 5, "log/train.log"),
    Progressed(0, "trainer-0", 1, 2, 3.5, 100.0),
    Noted("first\nsecond"),
    Tabled(("node", "state"), (("a", "ok"), ("b", "no route")), (1,)),
    Failed(("FIRST ERROR",)),
    Timed((("connect", 0.5),)),
    Ended("JOB1", ExitCode.LOST, "ws/log", "", ("one",)),
)


def test_every_event_comes_back_whole_from_json() -> None:
    assert {type(event).__name__ for event in EVENTS} == set(KINDS)
    for event in EVENTS:
        assert from_fields(json.loads(json.dumps(to_fields(event)))) == event


@pytest.mark.parametrize(
    "given", [{}, {"event": "Console"}, {"event": "Noted"}, {"event": "Printed", "data": 3}]
)
def test_what_is_no_event_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"no event|without its fields"):
        from_fields(given)


def test_another_console_that_shows_the_watched_events_shows_the_same() -> None:
    def show_all(console: Console) -> None:
        for event in EVENTS:
            console.show(event)

    watched: list[Event] = []

    def act(console: Console) -> None:
        console.watch(watched.append)
        show_all(console)
        console.unwatch(watched.append)
        console.note("unwatched")

    first = plain(act)
    assert tuple(watched) == EVENTS
    assert [*plain(show_all), "unwatched"] == first


def test_a_newcomer_learns_how_things_are() -> None:
    backdrop = Backdrop()
    for event in (*EVENTS, NodeState(0, "lost"), NodeState(1, "stopped")):
        backdrop.take(event)
    assert backdrop.events() == (
        EVENTS[0],
        EVENTS[1],
        NodeState(1, "stopped"),
        NodeState(0, "lost"),
        EVENTS[5],
        EVENTS[9],
        EVENTS[10],
    )


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_has_words(code: ExitCode) -> None:
    assert console_text.outcome("JOB1", code).endswith(f"(exit {int(code)})")


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_visible_text_cannot_act_on_a_terminal(text: str) -> None:
    shown = console_text.visible(text)
    assert all(
        character.isprintable() or character in "\u00a0\u3000" or character.isspace() for character in shown
    )
    assert not set(shown) & set("\x1b\r\n\x07\x08\x9b\x00\u202e\u2028\u2029\x85")


@given(st.binary(max_size=200))
def test_any_bytes_of_a_process_become_one_line_each(data: bytes) -> None:
    for on_terminal in (True, False):
        lines = console_text.process_lines("trainer 0 a", data, on_terminal)
        assert len(lines) == len(data.split(b"\n")) - (data.endswith(b"\n") or not data)
        assert all("\n" not in line for line in lines)


@pytest.mark.parametrize("on_terminal", [True, False])
def test_a_progress_bar_is_shown_in_its_last_state(on_terminal: bool) -> None:
    data = b"10%\r50%\r100%\r\n"
    assert console_text.process_lines("t", data, on_terminal) == ["[t] 100%"]


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


class Terminal:
    """A pseudo terminal, 20 rows of 60 columns."""

    def __init__(self) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
        self.stream = os.fdopen(slave, "w", encoding="utf-8")

    def resize(self, columns: int) -> None:
        """As a window that is pulled."""
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 20, columns, 0, 0))

    def text(self) -> str:
        """Everything written so far."""
        read = bytearray()
        while select.select([self.master], [], [], 0.2)[0]:
            read.extend(os.read(self.master, 65536))
        return read.decode()


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    yield terminal
    terminal.stream.close()
    os.close(terminal.master)


def until(terminal: Terminal, words: str) -> str:
    """What the terminal shows up to these words."""
    deadline = time.monotonic() + DEADLINE_S
    seen = ""
    while words not in seen:
        assert time.monotonic() < deadline, f"never saw {words!r} in {seen!r}"
        seen += terminal.text()
    return seen


def drawn(terminal: Terminal, *words: str) -> list[str]:
    """The last lines that were drawn at once and hold all these words."""
    seen = ""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        picture = seen.rpartition("\x1b[J")[2].split("\r\n")
        if all(any(word in line for line in picture) for word in words):
            return picture
        assert time.monotonic() < deadline, f"never saw {words} together, last {picture}"
        seen += terminal.text()


def test_few_nodes_have_a_line_each_below_the_lines_that_scroll(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.nodes({node_id: f"node-{node_id}" for node_id in range(3)})
    for node_id in range(3):
        console.node_state(node_id, "running")
    console.phase("run")
    console.progress(0, 3, 17, 5.125, 1234.0, process="trainer-0")
    console.progress(2, 3, 16, 5.25, 1000.0, process="trainer-1")
    picture = drawn(terminal, "slowest", "run 0:", "1,000 samples/s")
    state, training, slowest, *nodes = picture[-6:]
    assert re.match(r"run \d+:\d\d  3 nodes: 3 running$", state)
    assert training == "trainer 0: pass 3 batch 17 cost 5.125  all: 2,234 samples/s"
    assert slowest == "slowest: node-2  pass 3 batch 16  1,000 samples/s"
    assert re.match(r"node-0 +running +pass 3 batch 17 +5.125 +1,234 samp", nodes[0])
    console.process_line("trainer-0", "node-0", b"\x1b[2Jcost \x07[bold]1[/bold]\n")
    assert "[trainer 0 node-0] cost \\x07[bold]1[/bold]\r\n" in until(terminal, "[bold]")
    console.close(DEADLINE_S)


def test_many_nodes_are_summed_up_and_those_in_trouble_listed(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.nodes({node_id: f"node-{node_id}" for node_id in range(3000)})
    for node_id in range(3000):
        console.node_state(node_id, "silent" if node_id == 2000 else "running")
    picture = drawn(terminal, "2999 running", "node-2000")
    assert len(picture) == 2
    assert picture[0].endswith("3000 nodes: 2999 running, 1 silent")
    console.close(DEADLINE_S)


def test_no_line_below_is_wider_than_the_terminal_also_after_it_was_resized(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.nodes({0: "日本" * 20 + "x" * 100})
    for columns in (60, 20, 120):
        terminal.resize(columns)
        console.node_state(0, f"state-{columns}")
        picture = drawn(terminal, f"1 state-{columns}"[: columns - 20])
        assert all(cells(line) < columns for line in picture)
    console.close(DEADLINE_S)


def test_more_lines_than_can_be_read_are_counted_on_a_terminal(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.process_line("trainer-0", "a", b"".join(b"line %d\n" % number for number in range(5000)))
    console.failure(["the failure"])
    seen = until(terminal, "line 4999") + terminal.text()
    shown = len(re.findall(r"\] line \d+", seen))
    left_out = sum(map(int, re.findall(r"\((\d+) lines not shown", seen)))
    assert shown <= 200
    assert shown + left_out in (5000, 5001)  # the first count is a line itself
    assert "the failure" in seen
    console.close(DEADLINE_S)


@pytest.mark.parametrize("wish", ["", "1"])
def test_no_color_is_respected(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, wish: str) -> None:
    monkeypatch.setenv("NO_COLOR", wish)
    console = Console(terminal.stream)
    console.failure(["red"])
    assert ("\x1b[1;31m" in until(terminal, "red")) == (not wish)
    console.close(DEADLINE_S)


def test_a_terminal_never_loses_its_cursor_and_ends_without_the_lower_part(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.node_state(0, "running")
    seen = until(terminal, "running")
    console.note("the end")
    console.close(DEADLINE_S)
    seen += terminal.text()
    assert "\x1b[?25l" not in seen
    assert seen.endswith(("\x1b[Jthe end\r\n", "\x1b[J"))


def test_a_dumb_terminal_gets_plain_lines(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    console = Console(terminal.stream)
    console.node_state(0, "running")
    console.note("text")
    console.process_line("trainer-0", "a", b"\x1b[31mx\n")
    console.close(DEADLINE_S)
    assert terminal.text() == "text\r\n[trainer 0 a] x\r\n"
