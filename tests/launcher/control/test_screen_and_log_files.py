# SPDX-License-Identifier: Apache-2.0
"""screen.log stays bounded and harmless on a full disk; logs are followed by name."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TextIO, cast

import pytest

from launcher.config.command_arguments import read, whole_number
from launcher.control.tail import Followed
from launcher.errors import UsageError
from launcher.screen import screen_file
from launcher.screen.console import Console
from launcher.screen.screen_file import ScreenFile

DEADLINE_S = 20.0


def test_a_screen_file_never_holds_more_than_twice_its_limit(tmp_path: Path) -> None:
    path = tmp_path / "screen.log"
    file = ScreenFile(path, limit=1000)
    for number in range(500):
        file.write(f"line {number}\n")
    assert sum(part.stat().st_size for part in tmp_path.iterdir()) < 2100
    assert screen_file.tail(path, 2) == ["line 498", "line 499"]


def test_a_tail_reaches_into_the_file_before(tmp_path: Path) -> None:
    path = tmp_path / "screen.log"
    (tmp_path / "screen.log.1").write_text("a\nb\n")
    path.write_text("c\n")
    assert screen_file.tail(path, 2) == ["b", "c"]
    assert screen_file.tail(tmp_path / "none", 2) == []


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
    ("text", "lines", "expected"),
    [
        ("a\nb\nc\n", 2, ["b", "c"]),
        ("a\nb\nc\n", 3, ["a", "b", "c"]),
        ("a\nb\nc\n", 9, ["a", "b", "c"]),
        ("a\nb\nc\n", 0, []),
        ("a\nb\nopen", 1, []),
        ("a\nb\nopen", 2, ["b"]),
        ("\n\n\n", 2, ["", ""]),
        ("", 5, []),
    ],
)
def test_following_begins_so_many_lines_before_the_end(
    tmp_path: Path, text: str, lines: int, expected: list[str]
) -> None:
    (tmp_path / "log").write_text(text)
    followed = Followed(tmp_path / "log", "")
    followed.seek_tail(lines)
    assert followed.read() == expected


def test_a_line_without_an_end_is_shown_when_it_ends_or_at_last(tmp_path: Path) -> None:
    followed = Followed(tmp_path / "log", "trainer 0 a")
    assert followed.read() == []
    (tmp_path / "log").write_bytes(b"one\ntw")
    assert followed.read() == ["[trainer 0 a] one"]
    (tmp_path / "log").write_bytes(b"one\ntwo\nthr\xff")
    assert followed.read() == ["[trainer 0 a] two"]
    assert followed.finish() == ["[trainer 0 a] thr\\xff"]


def test_a_file_that_is_replaced_or_cut_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n")
    followed = Followed(log, "")
    assert followed.read() == ["old"]
    (tmp_path / "new").write_text("first of the new one, which is longer\n")
    (tmp_path / "new").rename(log)
    assert followed.read() == ["first of the new one, which is longer"]
    log.write_text("cut\n")
    assert followed.read() == ["cut"]


def test_a_commands_arguments_are_read_in_both_forms() -> None:
    given = read(
        "logs", ["aaa", "--lines", "5", "-f", "--node=a"], switches=("-f",), values=("--lines", "--node")
    )
    assert (given.job, given.values["--node"], set(given.switches)) == ("aaa", "a", {"-f"})
    assert whole_number("logs", given, "--lines", 9) == 5


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--jsn"], "did you mean --json"),
        (["a", "b"], "takes one job"),
        (["--conf"], "--conf needs a value"),
        (["--conf="], "--conf needs a value"),
        (["-z"], "it has --json, --conf"),
    ],
)
def test_a_commands_wrong_arguments_are_told(argv: list[str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read("status", argv, switches=("--json",), values=("--conf",))


def test_lines_that_came_just_before_a_log_was_rotated_are_shown(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("one\ntw")
    followed = Followed(log, "")
    assert followed.read() == ["one"]
    with log.open("a") as file:
        file.write("o\nthree\n")
    log.rename(tmp_path / "train.log.1")
    log.write_text("four\n")
    assert [line for _ in range(4) for line in followed.read()] == ["two", "three", "four"]
