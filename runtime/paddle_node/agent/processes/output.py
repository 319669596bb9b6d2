# SPDX-License-Identifier: Apache-2.0
"""The output of a process: written to its log file immediately, and shown on the screen line by line.

A line that stays incomplete for FLUSH_S (a progress bar, a prompt) or exceeds LINE_LIMIT is shown in parts.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Callable, Optional

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.agent.processes.log_file import LogFile

FLUSH_S = 0.2
LINE_LIMIT = 1 << 16
READ_SIZE = 1 << 18
PIPE_SIZE = 1 << 20  # so that a process that prints in bursts does not wait for the agent
DRAIN_LIMIT = 1 << 20  # an orphan may continue writing after its process has ended
F_SETPIPE_SZ = 1031  # of Linux; the fcntl module has the name from Python 3.10 on
TAIL_LINES = 40
TAIL_BYTES = 8 << 10


class Output:
    """Reads one pipe until all of its write ends are closed.

    Args:
        show: function that is called with bytes for the screen, whether they end inside a line, and the wall-clock time
            at which they were read.
        heard: function that is called with all data that is read.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        log: LogFile,
        show: Callable[[bytes, bool, float], None],
        heard: Optional[Callable[[bytes], None]] = None,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._log = log
        self._show = show
        self._search = heard
        self._line = b""
        self._tail = b""
        self._timer: Optional[Timer] = None
        self._open = True
        self._read_at = time.time()
        _widen(fd)
        os.set_blocking(fd, False)
        loop.on_readable(fd, self._read)

    def drain(self) -> None:
        """Read what the pipe contains now, and also show an incomplete last line."""
        size = 0
        while self._open and size < DRAIN_LIMIT:
            got = self._read()
            if not got:
                break
            size += got
        self._flush()

    def close(self) -> None:
        """Stop reading, and close the log file."""
        if self._open:
            self._open = False
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)
            self._flush()
            self._log.close()

    def tail(self) -> str:
        """Return the last lines as text."""
        lines = self._tail.split(b"\n")[-TAIL_LINES - 1 :]
        return b"\n".join(lines).decode("utf-8", "replace")

    def _read(self) -> int:
        try:
            data = os.read(self._fd, READ_SIZE)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            return 0
        self._log.write(data)
        self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
        self._read_at = time.time()
        if self._search is not None:
            self._search(data)
        self._cut(data)
        return len(data)

    def _cut(self, data: bytes) -> None:
        end = data.rfind(b"\n") + 1
        if end:
            whole, self._line = self._line + data[:end], data[end:]
            self._show(whole, False, self._read_at)
        else:
            self._line += data
        if len(self._line) > LINE_LIMIT:
            self._flush()
        elif self._line and self._timer is None:
            self._timer = self._loop.after(FLUSH_S, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._line:
            line, self._line = self._line, b""
            self._show(line, True, self._read_at)


def _widen(fd: int) -> None:
    try:
        fcntl.fcntl(fd, F_SETPIPE_SZ, PIPE_SIZE)
    except OSError:
        return  # the user has reached the limit of pipe pages: the default size works too
