# SPDX-License-Identifier: Apache-2.0
"""screen.log stays bounded and harmless on a full disk; logs are followed by name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TextIO, cast

import pytest

from paddle_cluster.cli.command_arguments import read, whole_number
from paddle_cluster.control.tail import CHUNK, Followed
from paddle_cluster.errors import UsageError
from paddle_cluster.screen import writer
from paddle_cluster.screen.console import Console
from paddle_cluster.screen.writer import ScreenFile

DEADLINE_S = 60.0


def test_a_screen_file_never_holds_more_than_twice_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "screen.log"
    file = ScreenFile(path, limit=1000)
    for number in range(500):
        file.write(f"line {number}\n")
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < 2100
    assert writer.tail(path, 2) == ["line 498", "line 499"]


def test_a_tail_reaches_into_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "screen.log"
    (tmp_path / "screen.log.1").write_text("a\nb\n")
    path.write_text("c\n")
    assert writer.tail(path, 2) == ["b", "c"]
    assert writer.tail(tmp_path / "none", 2) == []


def test_a_console_on_a_disk_that_cannot_be_written_goes_on(tmp_path: Path) -> None:
    (tmp_path / "screen.log").symlink_to("/dev/full")
    file = ScreenFile(tmp_path / "screen.log")
    console = Console(cast("TextIO", file))
    console.note("one")
    console.note("two")
    console.close(DEADLINE_S)
    assert file.lost == len("one\ntwo\n")


def test_a_screen_file_is_no_terminal_and_has_no_descriptor(tmp_path: Path) -> None:
    file = ScreenFile(tmp_path / "screen.log")
    assert not file.isatty()
    with pytest.raises(io.UnsupportedOperation):
        file.fileno()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\nb\nc\n", ["c", "b", "a"]), ("a\nb\nopen", ["b", "a"]), ("\n\n", ["", ""]), ("", []), ("open", [])],
)
def test_a_file_is_read_backwards_and_then_followed_from_its_last_whole_line(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    (tmp_path / "log").write_text(text)
    followed = Followed(tmp_path / "log")
    assert list(followed.backwards()) == expected
    with (tmp_path / "log").open("a") as file:
        file.write("!\n")
    assert followed.read() == [text.rpartition("\n")[2] + "!"]


def test_reading_backwards_goes_on_in_the_rotated_parts_and_over_pieces(tmp_path: Path) -> None:
    wide = "x" * (CHUNK - 3)
    (tmp_path / "log.2").write_text("1\n2\n")
    (tmp_path / "log.1").write_text(f"3\n{wide}\n{wide}4\n")
    (tmp_path / "log").write_text("5\n")
    assert list(Followed(tmp_path / "log").backwards()) == ["5", wide + "4", wide, "3", "2", "1"]


def test_a_line_without_an_end_is_shown_when_it_ends_or_at_last(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "log")
    assert followed.read() == []
    (tmp_path / "log").write_bytes(b"one\ntw")
    assert followed.read() == ["one"]
    (tmp_path / "log").write_bytes(b"one\ntwo\nthr\xff")
    assert followed.read() == ["two"]
    assert followed.finish() == ["thr\\xff"]


def test_a_file_that_is_replaced_or_cut_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    followed = Followed(log)
    assert followed.read() == ["old"]
    (tmp_path / "new").write_text("first of the new one, which is longer\n")
    (tmp_path / "new").rename(log)
    assert followed.read() == ["first of the new one, which is longer"]
    log.write_text("cut\n")
    assert followed.read() == ["cut"]


def test_a_commands_arguments_are_read_in_both_forms() -> None:
    usage = "logs [JOB] [-f] [--lines=N] [--node=N] [-p DIR]\n\n  --text  is none of them\n"
    given = read("logs", ["aaa", "--lines", "5", "-f", "--node=a", "-p", "ws"], usage)
    assert (given.job, dict(given.values), set(given.switches)) == (
        "aaa",
        {"--lines": "5", "--node": "a", "-p": "ws"},
        {"-f"},
    )
    assert whole_number("logs", given, "--lines", 9) == 5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--jsn"], "did you mean --json"),
        (["a", "b"], "takes a single job"),
        (["--conf"], "--conf needs a value"),
        (["--conf="], "--conf needs a value"),
        (["-z"], "its options are --json, --conf"),
    ],
)
def test_a_commands_wrong_arguments_are_told(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read("status", argv, "status [--json] [--conf=FILE]")


def test_a_process_beside_a_job_is_named_with_its_option() -> None:
    with pytest.raises(UsageError, match=r"give \S+(?: \S+)? logs a --proc=trainer-1$"):
        read("logs", ["a", "trainer-1"], "logs [--proc=NAME]")


def test_lines_that_came_just_before_a_log_was_rotated_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("one\ntw")
    followed = Followed(log)
    assert followed.read() == ["one"]
    with log.open("a") as file:
        file.write("o\nthree\n")
    log.rename(tmp_path / "train.log.1")
    log.write_text("four\n")
    assert [line for _ in range(4) for line in followed.read()] == ["two", "three", "four"]
