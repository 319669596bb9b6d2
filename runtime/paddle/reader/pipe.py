# SPDX-License-Identifier: Apache-2.0
"""Samples out of the standard output of a command, such as `hadoop fs -cat`.

The command is split into arguments as a shell would, but no shell runs. It ends with the iteration: a
consumer that stops early stops it.
"""

from __future__ import annotations

import codecs
import gzip
import shlex
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import TypeVar, cast

from paddle.errors import ConfigError
from paddle.reader.decorator import Reader, check_positive

T = TypeVar("T")

EXIT_S = 10.0
FILE_TYPES = ("plain", "gzip")


class PipeReader:
    r"""Reads text from a command; each call of `get_line` runs the command anew.

    Args:
        command: program and arguments; no pipes, globs or variables.
        bufsize: bytes read at a time, at most.
        file_type: "plain", or "gzip" where the command writes gzip data.
    """

    def __init__(self, command: str, bufsize: int = 8192, file_type: str = "plain") -> None:
        if file_type not in FILE_TYPES:
            raise ConfigError(
                f"PipeReader: file_type must be one of {', '.join(FILE_TYPES)}, got {file_type!r}"
            )
        check_positive("PipeReader", bufsize=bufsize)
        self._argv = shlex.split(command)
        if not self._argv:
            raise ConfigError(f"PipeReader: command must name a program, got {command!r}")
        self._bufsize = bufsize
        self._file_type = file_type

    def get_line(self, cut_lines: bool = True, line_break: str = "\n") -> Iterator[str]:
        """Gives the text as lines without `line_break`, or, with cut_lines=False, in pieces as they arrive.

        Raises:
            subprocess.CalledProcessError: after the last line, when the command did not exit with 0.
            EOFError: gzip data that ends too early.
        """
        with _output(self._argv) as stream:
            source = gzip.GzipFile(fileobj=stream) if self._file_type == "gzip" else stream
            pieces = codecs.iterdecode(iter(partial(source.read1, self._bufsize), b""), "utf-8")
            yield from _lines(pieces, line_break) if cut_lines else pieces


def pipe_reader(
    left_cmd: str,
    parser: Callable[[str], T],
    bufsize: int = 8192,
    file_type: str = "plain",
    cut_lines: bool = True,
    line_break: str = "\n",
) -> Reader[T]:
    """Gives `parser(line)` for every line that `left_cmd` writes; the arguments are those of PipeReader."""
    pipe = PipeReader(left_cmd, bufsize, file_type)

    def read() -> Iterator[T]:
        return (parser(line) for line in pipe.get_line(cut_lines, line_break))

    return read


@contextmanager
def _output(argv: list[str]) -> Iterator[BufferedReader]:
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        with cast(BufferedReader, process.stdout) as stream:
            yield stream
        code = process.wait(EXIT_S)
    finally:
        _stop(process)
    if code:
        raise subprocess.CalledProcessError(code, argv)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.kill()
        process.wait(EXIT_S)


def _lines(pieces: Iterator[str], line_break: str) -> Iterator[str]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split(line_break)
        yield from lines
    if rest:
        yield rest
