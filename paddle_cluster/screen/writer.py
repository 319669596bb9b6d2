# SPDX-License-Identifier: Apache-2.0
"""Writes to a terminal, pipe or file from a dedicated thread.

A reader that stops (Ctrl+S, a pager, a full pipe) must not stop the job's loop, because leases would expire:
callers never wait. Beyond a backlog limit, text that is allowed to be lost is dropped and counted.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import select
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from paddle_cluster.errors import AnswerLost
from paddle_cluster.system.queue_thread import QueueThread
from paddle_cluster.text.wrapping import harmless
from paddle_node.contract.classes import regex

BACKLOG = 2000
BACKLOG_SIZE = 4 << 20  # bytes
TOGETHER = 64  # number of jobs whose text is written together
TICK_S = 0.2
WIDTH = 120
_COLUMNS = regex(r"[1-9][0-9]{0,4}")


class Sink:
    """An unbuffered text stream that writes all text, and escapes characters that its encoding lacks.

    If a stream has a file descriptor, its own buffer is bypassed, so that a thread blocked in a write holds no lock
    that the interpreter needs to exit. Only one thread may use it at a time.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._descriptor: int | None = None
        self.encoding = (stream and stream.encoding) or "utf-8"
        self.gone: str = "" if stream else "it is closed"
        self.error: OSError | None = None  # the reason, unless the stream was simply closed
        self._held: list[str] | None = None
        try:
            if stream:
                stream.flush()
                self._descriptor = stream.fileno()
        except io.UnsupportedOperation:  # an in-memory stream
            pass
        except (OSError, ValueError) as error:
            self.gone = str(error)

    def write(self, text: str) -> int:
        """Write all of the text, or record in `gone` why the stream has closed."""
        if self._held is not None:
            self._held.append(text)
            return len(text)
        data = text.encode(self.encoding, "backslashreplace")
        if self.gone or not self._stream:
            return len(text)
        try:
            if self._descriptor is not None:
                _write_all(self._descriptor, data)
            else:
                self._stream.write(data.decode(self.encoding))
                self._stream.flush()
        except (OSError, ValueError) as error:
            self.gone = str(error)
            self.error = error if isinstance(error, OSError) else None
        return len(text)

    def is_in_background(self) -> bool:
        """Return whether this is a terminal that another job of the shell currently uses."""
        try:
            return self._descriptor is not None and os.tcgetpgrp(self._descriptor) != os.getpgrp()
        except OSError:  # not the terminal of this process
            return False

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Collect text written in this context, and write it in a single call."""
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held:
                self.write("".join(held))

    def flush(self) -> None:
        """Do nothing: text is held back only inside `together`."""

    def size(self) -> tuple[int, int]:
        """Return the columns and rows of the terminal; 80 by 24 if unknown."""
        columns, rows = 0, 0
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                columns, rows = os.get_terminal_size(self._descriptor)
        return columns or 80, rows or 24

    def isatty(self) -> bool:
        """Return whether the stream is a terminal."""
        with contextlib.suppress(ValueError):
            return self._stream is not None and self._stream.isatty()
        return False


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(descriptor, rest) :]
        except BlockingIOError:  # another process made the terminal non-blocking
            select.select([], [descriptor], [], TICK_S)


def show(text: str, stream: TextIO | None = None) -> None:
    """Write a text synchronously, at the end of a command. If the reader has closed the stream, nothing is raised."""
    sink = Sink(sys.stdout if stream is None else stream)
    sink.write(harmless(text if text.endswith("\n") else text + "\n"))


def answer(text: str) -> None:
    """Write the result of a command to standard output. If the reader has closed it, nothing is raised.

    Raises:
        AnswerLost: the disk is full, or the write failed for another reason.
    """
    sink = Sink(sys.stdout)
    sink.write(harmless(text if text.endswith("\n") else text + "\n"))
    if sink.error is not None and sink.error.errno != errno.EPIPE:
        raise AnswerLost(f"cannot write to standard output: {sink.error.strerror}")


def columns() -> int:
    """Return the width of the screen in columns; a file or pipe counts as a wide screen."""
    if Sink(sys.stdout).isatty():
        import shutil  # imports compression, which pipes do not need

        return shutil.get_terminal_size((WIDTH, 24)).columns
    given = os.environ.get("COLUMNS", "")
    return int(given) if _COLUMNS.fullmatch(given) else WIDTH


class Writer:
    """A thread that runs small writing jobs sequentially.

    Args:
        sink: the stream that the jobs write to.
        on_tick: called after jobs, and again after the number of seconds that it returns, at most TICK_S.
        on_dropped: called with the number of dropped lines when the reader has caught up again.
    """

    def __init__(self, sink: Sink, on_tick: Callable[[], float], on_dropped: Callable[[int], None]) -> None:
        self._sink = sink
        self._latest: dict[Hashable, Callable[[], None]] = {}
        self._lock = threading.Lock()
        self._dropped = 0
        self._on_tick = on_tick
        self._on_dropped = on_dropped
        self._queue: QueueThread[Callable[[], None]] = QueueThread(
            self._write, name="console", most=BACKLOG_SIZE, at_once=TOGETHER, first_s=TICK_S
        )
        self._queue.start()

    def post(self, job: Callable[[], None], lines: int = 0, size: int = 0) -> None:
        """Queue a job; never block.

        Args:
            lines: number of lines it shows; if not 0, a full queue drops the job and counts its lines.
            size: number of bytes it holds.
        """
        if (lines and len(self._queue) >= BACKLOG) or not self._queue.put(job, size if lines else 0):
            with self._lock:
                self._dropped += lines

    def post_latest(self, key: Hashable, job: Callable[[], None]) -> None:
        """Queue a job in place of a pending one with the same key."""
        with self._lock:
            self._latest[key] = job
        self._queue.wake()

    def close(self, timeout_s: float) -> bool:
        """Write pending output, for at most `timeout_s` seconds; return False if the reader did not accept all."""
        return self._queue.close(timeout_s)

    def _write(self, jobs: Sequence[Callable[[], None]], is_last: bool) -> float:
        with self._lock:
            latest, self._latest = self._latest, {}
            dropped = 0
            if is_last or not jobs:
                dropped, self._dropped = self._dropped, 0
        with self._sink.together():
            for job in (*latest.values(), *jobs):
                job()
            if dropped:
                self._on_dropped(dropped)
        if is_last or self._dropped:
            return 0.0
        return min(self._on_tick(), TICK_S)


LIMIT = 4 << 20  # size in bytes at which screen.log becomes screen.log.1


class ScreenFile(io.TextIOBase):
    """A text stream to screen.log, a file of bounded size.

    A full or missing disk loses only the lines that do not fit.

    Attributes:
        lost: number of characters that could not be written.
    """

    encoding = "utf-8"

    def __init__(self, path: Path, limit: int = LIMIT) -> None:
        self._path = path
        self._limit = limit
        self.lost = 0

    def write(self, text: str) -> int:
        """Append text and return its length; never fail."""
        try:
            self._append(text.encode("utf-8", "backslashreplace"))
        except OSError:
            self.lost += len(text)
        return len(text)

    def isatty(self) -> bool:
        """Return False, because the stream is a file."""
        return False

    def _append(self, data: bytes) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            os.write(descriptor, data)
            size = os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)
        if size >= self._limit:
            os.replace(self._path, self._path.with_name(f"{self._path.name}.1"))


def tail(path: Path, lines: int) -> list[str]:
    """Return a screen file's last lines, continuing into the previous file if needed."""
    found: list[str] = []
    for part in (path, path.with_name(f"{path.name}.1")):
        if not part.is_file():  # opening a pipe would block
            continue
        try:
            with part.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - LIMIT))
                text = file.read(LIMIT).decode("utf-8", "replace")
        except OSError:
            continue
        found = text.splitlines() + found
        if len(found) >= lines:
            break
    return found[-lines:] if lines > 0 else []
