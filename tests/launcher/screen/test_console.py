# SPDX-License-Identifier: Apache-2.0
"""The screen: bounded, harmless lines; no reader can hold up or end a job."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddle_cluster.errors import ExitCode
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.drawing import process_lines
from paddle_cluster.screen.writer import BACKLOG, show
from paddle_cluster.text import wrapping
from paddle_cluster.text.output_events import (
    KINDS,
    Ended,
    Event,
    Failed,
    NodesNamed,
    NodeState,
    Noted,
    PhaseEntered,
    Plotted,
    Printed,
    Progressed,
    Tabled,
    Timed,
    Transferred,
    Unsent,
    Used,
    from_fields,
    to_fields,
)
from paddle_cluster.text.sizes import counted, size_text
from paddle_node.contract.facts import NodeUsage, Progress

DEADLINE_S = 60.0


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


def test_a_pipe_gets_no_control_bytes_of_a_program() -> None:
    """It may end at a terminal, as that of `tee` does."""
    data = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x07 \xc2\x9b2J \x00\n"
    assert plain(lambda c: c.process_line("pserver-0", "a", data)) == [r"[pserver 0 a] red \x07 \x9b2J \x00"]


def test_what_pservers_say_in_the_normal_course_stays_in_their_logs_and_the_rest_is_shown() -> None:
    said = (
        b"I1123 08:18:07.714474  6040 command.py:144] tcp server start on 127.0.0.4:7164\n"
        b"W1123 08:18:08.000000  6040 sync.py:12] trainer 3 is late\n"
        b"Traceback (most recent call last):\n"
        b"I20231123 08:18:09.1 6040 engine.py:194] worker started, peer = trainer 1\n"
    )
    shown = plain(lambda console: console.process_line("pserver-2", "c", said))
    assert shown == [
        "[pserver 2 c] W1123 08:18:08.000000  6040 sync.py:12] trainer 3 is late",
        "[pserver 2 c] Traceback (most recent call last):",
    ]
    assert len(plain(lambda console: console.process_line("trainer-2", "c", said))) == 4

    def at_the_end(console: Console) -> None:
        console.phase("stop")
        console.process_line("pserver-2", "c", said)
        console.process_line("trainer-2", "c", b"done\n" + said.splitlines(keepends=True)[1])

    assert plain(at_the_end) == [
        "== stop",
        "[trainer 2 c] done",
        "[pserver 2 c] Traceback (most recent call last):",
    ]


def traceback_of(number: int, line: int = 3) -> bytes:
    return (
        b'Traceback (most recent call last):\n  File "/node_%d/train.py", line %d, in <module>\n    read()\n'
        b"FileNotFoundError: piece %d\n\nDuring handling of the above exception, another exception occurred:\n\n"
        b'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    give_up()\n'
        b"SystemError: port %d\n"
    ) % (number, line, number, number + 7000)


def test_the_same_traceback_of_many_ranks_is_told_once_with_the_ranks() -> None:
    def tell(console: Console) -> None:
        for rank in (2, 0, 1, 5):
            said = b"begin\n" + traceback_of(rank) + b"end of %d\n" % rank
            console.process_line(f"trainer-{rank}", "a", said)
        console.process_line("trainer-3", "b", traceback_of(3, line=4))
        console.summary(
            job_id="JOB1", code=ExitCode.PROCESS_FAILED, logs=None, output=None, lines=[], cause=""
        )

    shown = plain(tell)
    assert shown.count("[trainer 2 a] SystemError: port 7002") == 1
    assert [line for line in shown if "FileNotFoundError" in line] == [
        "[trainer 2 a] FileNotFoundError: piece 2",
        "[trainer 3 b] FileNotFoundError: piece 3",  # another line of train.py
    ]
    assert "(trainers 0-1, 5: the same traceback as trainer 2 a)" in shown
    assert [line for line in shown if "end of" in line] == [
        f"[trainer {rank} a] end of {rank}" for rank in (2, 0, 1, 5)
    ]
    assert shown[-1].startswith("JOB1: ")


def test_who_has_no_rank_is_told_by_name() -> None:
    def tell(console: Console) -> None:
        for name in ("trainer-0", "odd", "trainer-" + "9" * 5000):
            console.process_line(name, "a", traceback_of(0))

    who, _, what = plain(tell)[-1].partition(":")
    assert who.startswith("(odd a; trainer 999")
    assert what == " the same traceback as trainer 0 a)"


def test_tracebacks_with_pytorchs_ranks_before_each_line_are_the_same() -> None:
    def tell(console: Console) -> None:
        for rank in range(2):
            prefix = b"[rank%d]: " % rank
            console.process_line(
                f"trainer-{rank}", "a", prefix + traceback_of(0).replace(b"\n", b"\n" + prefix, 4)
            )

    assert plain(tell)[-1] == "(trainer 1: the same traceback as trainer 0 a)"


def test_a_line_is_bounded_and_says_how_much_is_missing() -> None:
    (line,) = plain(lambda console: console.process_line("trainer-0", "a", b"x" * 1_000_000))
    assert len(line) < wrapping.MAX_LINE + 100
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
        console.show(Progressed(0, "", Progress(2, 1, 3.5, 100.0)))
        console.note("first\nsecond")
        console.times({"connect": 0.125, "total": 2.0})
        console.summary(
            job_id="JOB1",
            code=ExitCode.PROCESS_FAILED,
            cause="trainer 0 on a: exit code 1: ValueError: x",
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
        "JOB1: failed: trainer 0 on a: exit code 1: ValueError: x (exit 1)",
    ]


EVENTS: tuple[Event, ...] = (
    NodesNamed(((0, "a"), (1, "b"))),
    PhaseEntered("run"),
    NodeState(1, "running"),
    Transferred(1, 1 << 20, 1 << 21, 5e5),
    Printed("trainer-0", "a", b"\xff\x1b[31mone\ntwo\n", False, 12.5),
    Unsent("trainer-0", "a", 5, "log/train.log"),
    Progressed(0, "trainer-0", Progress(2, 1, 3.5, 100.0)),
    Plotted(0, "trainer-0", "Test cost", 3.0, 0.25),
    Used(
        0,
        NodeUsage(
            1 << 30,
            1 << 31,
            None,
            12.5,
            0.0,
            ((57.0, 1024, 2048), (-1.0, 0, 2048)),
            (("trainer-0", 99.5, 4096),),
        ),
    ),
    Noted("first\nsecond"),
    Tabled(("node", "state"), (("a", "ok"), ("b", "no route")), (1,)),
    Failed(("FIRST ERROR",)),
    Timed((("connect", 0.5),)),
    Ended("JOB1", ExitCode.LOST, "node a: lost", "ws/log", "", ("one",)),
)


def test_every_event_comes_back_whole_from_json() -> None:
    assert {type(event).__name__ for event in EVENTS} == set(KINDS)
    for event in EVENTS:
        assert from_fields(json.loads(json.dumps(to_fields(event)))) == event


@pytest.mark.parametrize(
    "given", [{}, {"event": "Console"}, {"event": "Noted"}, {"event": "Printed", "data": 3}]
)
def test_what_is_no_event_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown event|Noted.text is missing|Printed.process is missing"):
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


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_has_words(code: ExitCode) -> None:
    assert wrapping.outcome("JOB1", code, "").endswith(f"(exit {int(code)})")


def test_a_cause_that_is_cut_ends_with_dots() -> None:
    assert wrapping.outcome("JOB1", ExitCode.DONE, "x" * 1000).endswith("xx ... (exit 0)")
    assert "..." not in wrapping.outcome("JOB1", ExitCode.DONE, "x" * 300)


@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")))
def test_visible_text_cannot_act_on_a_terminal(text: str) -> None:
    shown = wrapping.visible(text)
    assert all(
        character.isprintable() or character in "\u00a0\u3000" or character.isspace() for character in shown
    )
    assert not set(shown) & set("\x1b\r\n\x07\x08\x9b\x00\u202e\u2028\u2029\x85")


@given(st.binary(max_size=200))
def test_any_bytes_of_a_process_become_one_line_each(data: bytes) -> None:
    lines = process_lines("trainer 0 a", data)
    assert len(lines) == len(data.split(b"\n")) - (data.endswith(b"\n") or not data)
    assert all("\n" not in line and "\x1b" not in line for line in lines)


def test_a_progress_bar_is_shown_in_its_last_state() -> None:
    assert process_lines("t", b"10%\r50%\r100%\r\n") == ["[t] 100%"]


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


def test_a_job_without_a_reader_reports_its_end_on_standard_error(
    pipe: Pipe, capfd: pytest.CaptureFixture[str]
) -> None:
    """As after Ctrl+C in `paddle.py run | tee`, which ends `tee` at once."""
    console = Console(pipe.stream)
    os.close(pipe.read_end)
    console.summary(job_id="JOB1", code=ExitCode.INTERRUPTED, cause="", logs=None, output=None, lines=[])
    console.close(DEADLINE_S)
    assert capfd.readouterr().err.endswith("paddle.py: JOB1: stopped by Ctrl+C (exit 130)\n")


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


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (counted(1, "process"), "1 process"),
        (counted(2, "process"), "2 processes"),
        (counted(0, "more node"), "0 more nodes"),
        (size_text(1), "1 byte"),
        (size_text(1000), "1000 bytes"),
        (size_text(8388608), "8.0 MB"),
        (size_text(3 << 29), "1.5 GB"),
    ],
)
def test_numbers_have_units_and_nouns_their_plural(text: str, expected: str) -> None:
    assert text == expected
