# SPDX-License-Identifier: Apache-2.0
"""Readers out of arrays, files and commands."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from paddle.reader import PipeReader, creator, pipe_reader


def python(code: str) -> str:
    return shlex.join([sys.executable, "-c", code])


def test_np_array_gives_rows() -> None:
    rows = list(creator.np_array(np.arange(6).reshape(3, 2))())
    assert [row.tolist() for row in rows] == [[0, 1], [2, 3], [4, 5]]


def test_np_array_refuses_a_single_value() -> None:
    with pytest.raises(ValueError, match="at least 1 dimension"):
        creator.np_array(np.float32(3))  # type: ignore[arg-type]


def test_text_file_gives_lines_without_their_break(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("one \n\ndrei \u00fc", encoding="utf-8")
    assert list(creator.text_file(path)()) == ["one ", "", "drei \u00fc"]


def test_text_file_can_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "lines.txt"
    path.write_text("1\n2\n", encoding="utf-8")
    read = creator.text_file(str(path))
    assert list(read()) == list(read()) == ["1", "2"]


def test_a_pipe_gives_the_lines_of_a_command(tmp_path: Path) -> None:
    path = tmp_path / "two words.txt"
    path.write_text("a\n\nb \u00e9\nlast", encoding="utf-8")
    assert list(PipeReader(shlex.join(["cat", str(path)])).get_line()) == ["a", "", "b \u00e9", "last"]


@pytest.mark.parametrize("bufsize", [1, 2, 3, 8192])
def test_a_line_survives_being_cut_anywhere(bufsize: int) -> None:
    command = python("import sys; sys.stdout.buffer.write('\u00e4\u20ac|xyz|\U0001f600'.encode())")
    lines = list(PipeReader(command, bufsize=bufsize).get_line(line_break="|"))
    assert lines == ["\u00e4\u20ac", "xyz", "\U0001f600"]


def test_without_cutting_the_pieces_join_to_the_text() -> None:
    pieces = list(PipeReader("echo abcdef", bufsize=2).get_line(cut_lines=False))
    assert "".join(pieces) == "abcdef\n"
    assert len(pieces) > 1


def test_a_gzip_pipe_is_unpacked_across_members(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"one\ntw") + gzip.compress(b"o\n"))
    assert list(PipeReader(f"cat {path}", file_type="gzip").get_line()) == ["one", "two"]


def test_a_gzip_pipe_that_ends_too_early_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    path.write_bytes(gzip.compress(b"line\n" * 1000)[:-9])
    with pytest.raises(EOFError):
        list(PipeReader(f"cat {path}", file_type="gzip").get_line())


def test_a_command_that_fails_is_an_error_after_its_lines() -> None:
    lines = PipeReader(python("print('x'); raise SystemExit(3)")).get_line()
    assert next(lines) == "x"
    with pytest.raises(subprocess.CalledProcessError) as failure:
        next(lines)
    assert failure.value.returncode == 3


def test_a_consumer_that_stops_early_stops_the_command() -> None:
    lines = PipeReader(python("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)")).get_line()
    pid = int(next(lines))
    lines.close()  # type: ignore[attr-defined]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_nothing_in_a_command_is_run_by_a_shell(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    assert list(PipeReader(f"echo $(touch {canary}) ; touch {canary}").get_line()) == [
        f"$(touch {canary}) ; touch {canary}"
    ]
    assert not canary.exists()


def test_pipe_reader_parses_lists_of_lines_and_can_be_read_again() -> None:
    read = pipe_reader("seq 300", lambda lines: [int(line) for line in lines], bufsize=7)
    assert list(read()) == list(read()) == list(range(1, 301))


def test_pipe_reader_parses_pieces_of_text() -> None:
    read = pipe_reader("echo abcdef", lambda text: [text.strip()], bufsize=3, cut_lines=False)
    assert list(read()) == ["abc", "def", ""]


def test_an_unknown_file_type_and_an_empty_command_are_refused() -> None:
    with pytest.raises(ValueError, match="plain, gzip, got 'zip'"):
        PipeReader("cat x", file_type="zip")
    with pytest.raises(ValueError, match="must name a program"):
        PipeReader("  ")
