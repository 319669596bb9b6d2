# SPDX-License-Identifier: Apache-2.0
"""Runs a function beside the loop, in a child of its own: what hangs there (a dead file server) hangs nobody else.

The answer travels as JSON over a pipe. A child that does not answer in time is killed; one that cannot be killed
because it waits inside the kernel is left to the kernel, and holds nothing of the agent's meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import Any, Callable

from agent.loop import Loop

ANSWER_LIMIT = 1 << 20


class Aside:
    """One function under way.

    Args:
        work: runs in the child; returns what JSON can carry.
        done: called once, in the parent, with (answer, "") or (None, why there is none).
    """

    def __init__(
        self, loop: Loop, work: Callable[[], Any], timeout_s: float, done: Callable[[Any, str], None]
    ) -> None:
        self._loop = loop
        self._done = done
        self._answer = b""
        self._timeout_s = timeout_s
        self._fd, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _work_and_leave(work, write)
        os.close(write)
        os.set_blocking(self._fd, False)
        loop.on_readable(self._fd, self._read)
        self._timer = loop.after(timeout_s, self._give_up)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        self._answer += data
        if data and len(self._answer) <= ANSWER_LIMIT:
            return
        try:
            answer, problem = json.loads(self._answer.decode())
        except ValueError:
            answer, problem = None, "the check ended without an answer"
        self._finish(answer, problem)

    def _give_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # not reaped before its pipe was read to the end: still ours
        self._finish(None, "no answer within %g s" % self._timeout_s)

    def _finish(self, answer: Any, problem: str) -> None:
        self._timer.cancel()
        self._loop.on_readable(self._fd, None)
        os.close(self._fd)
        self._done(answer, problem)


def _work_and_leave(work: Callable[[], Any], fd: int) -> None:
    """The child's side of fork: never returns."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for name in os.listdir("/proc/self/fd"):
            if int(name) != fd:
                try:
                    os.close(int(name))
                except OSError:
                    continue  # the one that listed the folder
        try:
            said = [work(), ""]
        except (OSError, ValueError) as error:
            said = [None, (isinstance(error, OSError) and error.strerror) or str(error)]
        data = json.dumps(said).encode()
        while data:
            data = data[os.write(fd, data) :]
    finally:
        os._exit(0)
