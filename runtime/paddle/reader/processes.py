# SPDX-License-Identifier: Apache-2.0
"""Readers whose samples come from other processes: from forked readers, or from the output of a command.

A command, such as `hadoop fs -cat`, is split into arguments as a shell would, but no shell runs. It ends with the
iteration: a consumer that stops early stops it.
"""

from __future__ import annotations

import codecs
import gzip
import shlex
import subprocess
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from io import BufferedReader
from typing import TYPE_CHECKING, Any, TypeVar, cast

from paddle.errors import ConfigError, PaddleError
from paddle.reader.channel import marked, require_readers
from paddle.reader.decorator import Reader, check_positive

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")

_SAMPLE, _END, _FAILED = range(3)
_STOP_S = 5.0


def multiprocess_reader(
    readers: Sequence[Reader[T]], use_pipe: bool = True, queue_size: int = 1000
) -> Reader[T]:
    """Return a reader of the samples of several readers, each run in its own process; the order is not fixed.

    Processes are forked when iteration starts, and have exited when it ends, even if the consumer stops early.

    Args:
        readers: each returns a part of the samples.
        use_pipe: ignored: pipes are always used.
        queue_size: ignored: the system sets the size of a pipe.

    Raises:
        ConfigError: immediately, if there are no readers.
        PaddleError: in the consumer, when a reader failed or its process ended; the message has its traceback.
    """
    if not readers:
        raise ConfigError("multiprocess_reader: expected at least one reader")
    require_readers(*readers)

    def read() -> Iterator[T]:
        import multiprocessing  # takes longer than all readers

        context = multiprocessing.get_context("fork")
        running: dict[Connection[Any, Any], Any] = {}
        try:
            for reader in readers:
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(target=_send, args=(reader, theirs), daemon=True)
                process.start()
                theirs.close()
                running[ours] = process
            yield from _received(running)
        finally:
            for pipe, process in running.items():
                pipe.close()
                process.kill()
                process.join(_STOP_S)

    return marked(read)


def _received(running: dict[Connection[Any, Any], Any]) -> Iterator[Any]:
    from multiprocessing.connection import Connection, wait

    waiting = set(running)
    while waiting:
        for pipe in wait(list(waiting)):
            assert isinstance(pipe, Connection)
            try:
                kind, content = pipe.recv()
            except EOFError:
                running[pipe].join(_STOP_S)
                raise PaddleError(
                    f"multiprocess_reader: a reader process exited early with code {running[pipe].exitcode}"
                ) from None
            if kind == _SAMPLE:
                yield content
            elif kind == _END:
                waiting.discard(pipe)
            else:
                raise PaddleError(f"multiprocess_reader: a reader failed:\n{content}")


def _send(reader: Reader[Any], pipe: Connection[Any, Any]) -> None:
    try:
        for sample in reader():
            pipe.send((_SAMPLE, sample))
        pipe.send((_END, None))
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    except Exception:  # noqa: BLE001 - raised where samples are read
        pipe.send((_FAILED, traceback.format_exc()))


EXIT_S = 10.0
FILE_TYPES = ("plain", "gzip")


class PipeReader:
    r"""Reads text from the output of a command; each call of `get_line` runs the command again.

    Args:
        command: program and arguments; no pipes, globs or variables.
        bufsize: maximum number of bytes to read at a time.
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
        """Yield the text as lines without `line_break` or, with cut_lines=False, in pieces as they arrive.

        Raises:
            subprocess.CalledProcessError: after the last line, when the command did not exit with 0.
            EOFError: gzip data that ends too early.
        """
        for piece in self.pieces(line_break if cut_lines else None):
            yield from piece if cut_lines else [piece]

    def pieces(self, line_break: str | None) -> Iterator[Any]:
        """Yield the text in pieces as they arrive: lists of lines or, without `line_break`, strings; see `get_line`."""
        with _output(self._argv) as stream:
            source = gzip.GzipFile(fileobj=stream) if self._file_type == "gzip" else stream
            found = codecs.iterdecode(iter(partial(source.read1, self._bufsize), b""), "utf-8")
            yield from found if line_break is None else _lines(found, line_break)


def pipe_reader(
    left_cmd: str,
    parser: Callable[[Any], Iterable[T]],
    bufsize: int = 8192,
    file_type: str = "plain",
    cut_lines: bool = True,
    line_break: str = "\n",
) -> Reader[T]:
    """Return a reader of the samples in the output of `left_cmd`.

    Args:
        left_cmd: the command; this and the other arguments are those of PipeReader.
        parser: called with a list of lines or, with cut_lines=False, with a piece of text; returns a list of samples.
    """
    pipe = PipeReader(left_cmd, bufsize, file_type)

    def read() -> Iterator[T]:
        for piece in pipe.pieces(line_break if cut_lines else None):
            yield from parser(piece)

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


def _lines(pieces: Iterator[str], line_break: str) -> Iterator[list[str]]:
    rest = ""
    for piece in pieces:
        *lines, rest = (rest + piece).split(line_break)
        if lines:
            yield lines
    if rest:
        yield [rest]
