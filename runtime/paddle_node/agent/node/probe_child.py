# SPDX-License-Identifier: Apache-2.0
"""Runs checks in a child process, so that a check that hangs, as on a dead file server, cannot block the loop.

One child runs the checks one after another, because a fork costs more than most checks. If a check does not finish
soon, it keeps that child, and a new child continues with the remaining checks. Results are sent as JSON over a pipe,
which is first read when the child exits or after QUIET_S, because waking up for each result costs more than most
checks. A child that does not answer in time is killed. A child that cannot be killed, because it waits inside the
kernel, is abandoned; it holds none of the agent's resources.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from typing import Any, Callable, Iterator, List, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.contract import checked_json
from paddle_node.linux import proc

QUIET_S = 0.1
SOON_S = 0.25
ANSWER_LIMIT = 1 << 20

Check = Tuple[str, Callable[[], Any]]
Done = Callable[[str, Any, str, float], None]


class ProbeChild:
    """Runs checks in a child process, with a time limit for each.

    Args:
        checks: names, and the functions to run in the child, which return values that JSON can hold.
        timeout_s: the time limit of each check in seconds.
        done: function that is called once per check, in the parent, with the check's name, (result, "") or (None,
            reason), and its duration in seconds.
    """

    def __init__(self, loop: Loop, checks: List[Check], timeout_s: float, done: Done) -> None:
        self._loop = loop
        self._checks = checks
        self._timeout_s = timeout_s
        self._done = done
        self._came = b""
        self._pid, self._fd = begin(_answer_of(work) for _, work in checks)
        self._watch = loop.after(QUIET_S, self._read_on)
        loop.on_exit(self._pid, lambda status: self._read_on())
        self._begun = time.monotonic()
        self._timers: List[Timer] = []
        self._await_the_next()

    def _read_on(self) -> None:
        if self._checks:
            self._loop.on_readable(self._fd, self._read)
            self._read()

    def _await_the_next(self) -> None:
        self._begun = time.monotonic()
        self._quiet()
        self._timers = [
            self._loop.after(SOON_S, self._part),
            self._loop.after(self._timeout_s, self._give_up),
        ]

    def _quiet(self) -> None:
        for timer in self._timers:
            timer.cancel()

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        self._came += data
        *lines, self._came = self._came.split(b"\n")
        for line in lines:
            if self._checks:
                self._answered(*checked_json.loads(line))
        if self._checks and (not data or len(self._came) > ANSWER_LIMIT):
            self._part()
            self._answered(None, "the check ended without an answer", time.monotonic() - self._begun)

    def _answered(self, answer: Any, problem: str, took_s: float) -> None:
        name = self._checks.pop(0)[0]
        if self._checks:
            self._await_the_next()
        else:
            self._quiet()
            self._watch.cancel()
            self._loop.on_readable(self._fd, None)
            os.close(self._fd)  # a child whose remaining checks another one does ends at its next write
        self._done(name, answer, problem, took_s)

    def _part(self) -> None:
        """Leave the check in progress to this child, and pass the remaining checks to a new one."""
        rest, self._checks = self._checks[1:], self._checks[:1]
        if rest:
            ProbeChild(self._loop, rest, self._timeout_s, self._done)

    def _give_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)  # its pipe was not read to the end: not yet reaped
        self._part()
        self._answered(None, "no answer within %g s" % self._timeout_s, self._timeout_s)


def begin(answers: Iterator[Any]) -> Tuple[int, int]:
    """Fork a child that writes each answer as a line of JSON; return its pid and the read end of the pipe.

    The child runs the iterator, holds no other open descriptor of this process, and exits with it.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _write_and_leave(answers, write)
    os.close(write)
    os.set_blocking(read, False)
    return pid, read


def _answer_of(work: Callable[[], Any]) -> List[Any]:
    begun = time.monotonic()
    answer, problem = None, ""
    try:
        answer = work()
    except (OSError, ValueError) as error:
        problem = (isinstance(error, OSError) and error.strerror) or str(error)
    return [answer, problem, time.monotonic() - begun]


def _write_and_leave(answers: Iterator[Any], fd: int) -> None:
    """Run in the forked child; never return."""
    try:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for descriptor in proc.open_descriptors():
            if descriptor != fd:
                with contextlib.suppress(OSError):  # the descriptor used for the listing itself
                    os.close(descriptor)
        for answer in answers:
            data = json.dumps(answer).encode() + b"\n"
            while data:
                data = data[os.write(fd, data) :]
    finally:
        os._exit(0)
