# SPDX-License-Identifier: Apache-2.0
"""Reads MultiSlot text from files or from the output of pipe commands, in blocks of whole lines.

A shell runs the pipe command, such as `python reader.py | sort`, with a file on its standard input; `python` is the
interpreter of this process. Files that end in .gz are decompressed first; hdfs: and afs: paths are read with the
`hadoop` command. If a command does not exit with 0, reading fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import IO, BinaryIO

from paddle.fluid.errors import RunError
from paddle.fluid.multislot.text import Lines
from paddle_node.contract.classes import dataclass

PLAIN = "cat"
BLOCK_BYTES = 1 << 20
_TAIL = 2000
_EXIT_S = 10.0


class PipeError(RunError):
    """Raised when a pipe command failed.

    Attributes:
        path: its input file.
        status: its exit status; negative means the signal that killed it.
        errors: the end of its standard error.
    """

    def __init__(self, path: str, command: str, status: int, errors: str) -> None:
        ended = f"was killed by signal {-status}" if status < 0 else f"exited with {status}"
        shown = errors.strip() or "its standard error is empty"
        super().__init__(f"{path}: the pipe command {command!r} {ended}: {shown}")
        self.path, self.status, self.errors = path, status, errors


@dataclass(frozen=True)
class Pipe:
    """The pipe command through which files are read, or `cat` if there is none.

    Attributes:
        command: the pipe command; `cat` stands for none.
        hdfs: name and user of the file system for hdfs: and afs: paths, or empty.
    """

    command: str = PLAIN
    hdfs: tuple[str, str] = ("", "")

    def blocks(self, path: str) -> Iterator[Lines]:
        """Yield the lines of a file, as the command prints them, in blocks.

        Raises:
            OSError: the file cannot be opened.
            PipeError: a command failed; earlier lines may already have been yielded.
        """
        source = path if self.command == PLAIN else f"{path}, output of {self.command!r}"
        rest, line = b"", 1
        with self._opened(path) as stream:
            while data := stream.read(BLOCK_BYTES):
                end = data.rfind(b"\n") + 1
                if not end:
                    rest += data
                    continue
                text = rest + data[:end]
                rest = data[end:]
                yield Lines(text, source, line)
                line += text.count(b"\n")
        # Only after the command has succeeded: a failed one may leave half a line.
        if rest:
            yield Lines(rest, source, line)

    @contextmanager
    def _opened(self, path: str) -> Iterator[BinaryIO]:
        with ExitStack() as stack:
            stream: IO[bytes]
            unpacking = self._unpacking(path)
            if unpacking:
                stream = stack.enter_context(_output(path, unpacking, None))
            else:
                stream = stack.enter_context(open(path, "rb"))
            if self.command != PLAIN:
                stream = stack.enter_context(_output(path, _shell(self.command), stream))
            yield stream  # type: ignore[misc]

    def _unpacking(self, path: str) -> list[str]:
        if path.startswith(("hdfs:", "afs:")):
            name, user = self.hdfs
            options = [f"-Dfs.default.name={name}", f"-Dhadoop.job.ugi={user}"] if name else []
            return ["hadoop", "fs", *options, "-text", path]
        return ["gzip", "-dc", path] if path.endswith(".gz") else []


def _shell(command: str) -> list[str]:
    """Return the argv that runs a shell command. With bash, every command of a pipeline must exit with 0."""
    bash = shutil.which("bash")
    return [bash, "-o", "pipefail", "-c", command] if bash else ["/bin/sh", "-c", command]


@contextmanager
def _output(path: str, argv: Sequence[str], source: IO[bytes] | None) -> Iterator[IO[bytes]]:
    environ = {
        **os.environ,
        "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")]),
    }
    with tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv,
                stdin=source if source is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environ,
            )
        except OSError as error:
            raise PipeError(path, argv[-1], 127, f"{argv[0]}: {error.strerror}") from error
        command = argv[-1] if "-c" in argv else " ".join(argv)
        whole = False
        try:
            assert process.stdout is not None
            with process.stdout as stream:
                yield stream
                whole = not stream.read(1)
            status = process.wait()
        finally:
            # If reading stops early, the command may never notice.
            if process.poll() is None:
                process.kill()
                process.wait(_EXIT_S)
        size = errors.seek(0, os.SEEK_END)
        errors.seek(max(0, size - _TAIL))
        said = errors.read().decode(errors="replace")
        if status and whole:
            raise PipeError(path, command, status, said)
        sys.stderr.write(said)
