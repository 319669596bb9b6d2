# SPDX-License-Identifier: Apache-2.0
"""Verifies checkpoint parts on this node before servers resume: reads every byte and compares checksums.

A child process reads, so that a slow disk does not block the agent. It reports its progress; after STALL_S without a
report it is killed, and its unfinished parts count as unreadable. No files are changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import time
import zlib
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from paddle_node.agent.link.loop import Loop
from paddle_node.agent.node import checkpoints, probe_child

STALL_S = 60.0
REPORT_S = 0.5
_READ, _AHEAD = 8 << 20, 64 << 20

Problems = Dict[str, str]
"""The problems of parts, by path below the folder."""


def reading(folder: str, paths: Sequence[str]) -> Iterator[Tuple[int, int, Problems]]:
    """Read all files of checkpoint parts; yield the bytes read, the total bytes and the problems so far.

    Yields at the start, at least every _READ bytes, and at the end.
    """
    problems: Problems = {}
    listed: Dict[str, List[Any]] = {}
    for path in paths:
        try:
            listed[path] = checkpoints.files_of(folder, path)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problems[path] = _text(path, error)
    total = sum({name: nbytes for files in listed.values() for name, nbytes, _ in files}.values())
    read, verified = 0, {}  # type: int, Dict[str, str]
    yield read, total, problems
    for path, files in listed.items():
        for name, nbytes, expected in files:
            if name not in verified:
                verified[name] = ""
                try:
                    for count in _compared(folder + "/" + name, nbytes, expected):
                        read += count
                        yield read, total, problems
                except (OSError, ValueError) as error:
                    verified[name] = _text(name, error)
            if verified[name]:
                problems.setdefault(path, verified[name])
    yield read, total, problems


class Verification:
    """A verification of checkpoint parts in progress, in a child process.

    Args:
        progress: called with the bytes read and the total bytes, at most every REPORT_S.
        done: called once with the problems.
    """

    def __init__(
        self,
        loop: Loop,
        folder: str,
        paths: Sequence[str],
        progress: Callable[[int, int], None],
        done: Callable[[Problems], None],
    ) -> None:
        self._loop, self._paths, self._progress, self._done = loop, paths, progress, done
        self._came = b""
        self._last: List[Any] = []
        self._pid, self._fd = probe_child.begin(_reports(folder, paths))
        loop.on_readable(self._fd, self._read)
        self._timer = loop.after(STALL_S, self._give_up)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        self._timer.cancel()
        if not data:
            self._end("reading failed before its end")
            return
        self._timer = self._loop.after(STALL_S, self._give_up)
        *lines, self._came = (self._came + data).split(b"\n")
        for line in lines:
            self._last = json.loads(line.decode())
            self._progress(self._last[0], self._last[1])

    def _give_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # its pipe was not read to the end: not yet reaped
        self._end("no data could be read for %.0f s" % STALL_S)

    def _end(self, why: str) -> None:
        self._loop.on_readable(self._fd, None)
        os.close(self._fd)
        is_whole = bool(self._last) and self._last[3]
        problems: Problems = self._last[2] if self._last else {}
        if not is_whole:
            problems = dict({path: "%s: %s" % (path, why) for path in self._paths}, **problems)
        self._done(problems)


def _reports(folder: str, paths: Sequence[str]) -> Iterator[List[Any]]:
    """Yield the lines that the child writes: bytes read, total bytes, problems, whether this is the last."""
    reported_at = 0.0
    last: List[Any] = []
    for found in reading(folder, paths):
        last = [*found, False]
        if time.monotonic() - reported_at >= REPORT_S:
            reported_at = time.monotonic()
            yield last
    yield [*last[:3], True]


def _compared(path: str, nbytes: int, expected: Any) -> Iterator[int]:
    """Read a file; yield the number of bytes of each block.

    Raises:
        OSError: the file cannot be read.
        ValueError: its size or checksum differs.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(fd, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("not a regular file")
        crc, at, buffer = 0, 0, bytearray(_READ)
        while True:
            os.posix_fadvise(fd, at, _AHEAD, os.POSIX_FADV_WILLNEED)
            count = file.readinto(buffer) or 0
            if not count:
                break
            crc, at = zlib.crc32(memoryview(buffer)[:count], crc), at + count
            yield count
    if at != nbytes:
        raise ValueError("expected %d bytes, got %d" % (nbytes, at))
    if expected not in (None, crc):
        raise ValueError("damaged: expected checksum %08x, got %08x" % (expected, crc))


def _text(path: str, error: Exception) -> str:
    return ("%s: %s" % (path, getattr(error, "strerror", None) or error))[:400]
