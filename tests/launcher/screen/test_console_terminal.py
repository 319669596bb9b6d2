# SPDX-License-Identifier: Apache-2.0
"""A console on a terminal: lines that scroll above, nodes below."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import termios
import time
from collections.abc import Iterator

import pytest

from paddle_cluster.screen.console import Console
from paddle_cluster.screen.console_live import FLUSH_S, LiveView
from paddle_cluster.screen.writer import Sink
from paddle_cluster.text.output_events import Progressed, Transferred
from paddle_cluster.text.wrapping import cells, progress
from paddle_node.contract.facts import Progress

DEADLINE_S = 60.0


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
    console.show(Progressed(0, "trainer-0", Progress(17, 3, 5.125, 1234.0)))
    console.show(Progressed(2, "trainer-1", Progress(16, 3, 5.25, 1000.0)))
    picture = drawn(terminal, "slowest", "run 0:", "1,000 samples/s")
    state, training, slowest, *nodes = picture[-6:]
    assert re.match(r"run \d+:\d\d  3 nodes: 3 running$", state)
    assert training == "trainer 0: pass 3 batch 17 cost 5.125  all: 2,234 samples/s"
    assert slowest == "slowest: node-2  pass 3 batch 16  1,000 samples/s"
    assert re.match(r"node-0 +running +pass 3 batch 17 +5.125 +1,234 samp", nodes[0])
    console.process_line("trainer-0", "node-0", b"\x1b[2Jcost \x07[bold]1[/bold]\n")
    assert "[trainer 0 node-0] cost \\x07[bold]1[/bold]\r\n" in until(terminal, "[bold]")
    console.close(DEADLINE_S)


def test_the_costs_of_trainer_0_are_drawn_as_a_curve_that_stays_when_the_job_ends(terminal: Terminal) -> None:
    view = LiveView(Sink(terminal.stream))
    for node_id in range(2):
        for batch in range(200):
            cost = 8.0 - batch / 50 + node_id
            fact = progress(Progressed(node_id, f"trainer-{node_id}", Progress(batch, 0, cost, 100.0)))
            view.node(node_id, **fact)
    view.tick()
    _, top, _, bottom = (line for line in drawn(terminal, "slowest") if "node" not in line)
    assert top.split()[0] == "8"  # the first and the last cost, although a point averages eight
    assert bottom.split()[0] == "4.02"
    drawn_as = bottom.split()[1]
    assert len(drawn_as) == 25
    assert drawn_as.startswith("█" * 15)
    assert drawn_as.endswith("▁")
    view.phase("stop")
    view.finish()
    assert terminal.text().rpartition("== stop")[0].count("█") > 20


def test_the_times_of_a_job_are_wrapped_between_words_and_never_before_a_unit(terminal: Terminal) -> None:
    console = Console(terminal.stream)
    console.times({f"phase {number}": float(number) for number in range(1, 12)})
    console.close(DEADLINE_S)
    lines = terminal.text().splitlines()
    assert len(lines) > 2
    assert max(map(len, lines)) <= 60
    assert not any(re.match(r"\s+s\b", line) for line in lines)


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


def test_the_first_line_after_a_pause_is_written_at_once(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    view = LiveView(Sink(terminal.stream))
    view.lines(["before"])
    view.tick()
    now[0] += 60.0
    view.tick()  # the clock below goes on meanwhile
    now[0] += 0.001
    view.lines(["first"])
    view.tick()
    view.lines(["second"])
    view.tick()
    assert "first" in (seen := terminal.text())
    assert "second" not in seen
    now[0] += 0.2
    view.tick()
    assert "second" in terminal.text()


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


def test_a_line_right_behind_another_is_drawn_as_soon_as_the_view_says(terminal: Terminal) -> None:
    view = LiveView(Sink(terminal.stream))
    view.lines(["first"])
    view.tick()
    view.lines(["second"])
    wait_s = view.tick()
    assert 0 < wait_s <= FLUSH_S
    time.sleep(wait_s)
    assert view.tick() > FLUSH_S
    assert "second" in terminal.text()


def test_what_comes_to_nodes_has_a_line_each_and_is_summed_up_where_there_are_many(
    terminal: Terminal,
) -> None:
    console = Console(terminal.stream)
    console.nodes({0: "node-a", 1: "node-b"})
    console.phase("dispatch")
    console.show(Transferred(0, 50 << 20, 200 << 20, 10 << 20))
    console.show(Transferred(1, 190 << 20, 200 << 20, 10 << 20))
    drawn(terminal, "node-b", "190.0 MB")
    console.show(Transferred(1, 200 << 20, 200 << 20, 10 << 20))
    console.node_state(1, "ready")
    picture = drawn(terminal, "arrived", "ready", "node-a")
    assert picture[1:] == [
        "arrived: 250.0 MB of 400.0 MB  62 %  10.0 MB/s, 0:15 left",
        "node-a         50.0 MB of 200.0 MB  25 %  10.0 MB/s, 0:15 …",
        "node-b  ready",
    ]
    console.nodes({node_id: f"node-{node_id}" for node_id in range(2, 30)})
    picture = drawn(terminal, "slowest: node-a  50.0 MB")
    assert len(picture) == 3
    console.show(Transferred(0, 200 << 20, 200 << 20, 0.0))
    assert len(drawn(terminal, "30 nodes: 29 waiting, 1 ready")) == 1
    console.close()
