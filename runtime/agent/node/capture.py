# SPDX-License-Identifier: Apache-2.0
"""Runs a short command and hands over what it printed, in bounded time and memory."""

from __future__ import annotations

import os
import signal
from typing import Callable, Dict, List

from agent.link.loop import Loop
from agent.processes.spawn import spawn

OUTPUT_LIMIT = 1 << 18


class Capture:
    """One command under way.

    Args:
        done: called once with the wait status and the output, as far as it fits in OUTPUT_LIMIT.
    """

    def __init__(
        self,
        loop: Loop,
        argv: List[str],
        env: Dict[str, str],
        timeout_s: float,
        done: Callable[[int, bytes], None],
    ) -> None:
        self._loop = loop
        self._done = done
        self._output = b""
        self._fd, write = os.pipe()
        try:
            pid = spawn(argv, env, "/", write)
        except (OSError, ValueError):
            os.close(self._fd)
            raise
        finally:
            os.close(write)
        os.set_blocking(self._fd, False)
        loop.on_readable(self._fd, self._read)
        self._timer = loop.after(timeout_s, lambda: os.kill(pid, signal.SIGKILL))
        loop.on_exit(pid, self._ended)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, OUTPUT_LIMIT)
        except BlockingIOError:
            return
        if not data:
            self._loop.on_readable(self._fd, None)
        self._output = (self._output + data)[-OUTPUT_LIMIT:]

    def _ended(self, status: int) -> None:
        self._timer.cancel()
        self._read()
        self._loop.on_readable(self._fd, None)
        os.close(self._fd)
        self._done(status, self._output)
