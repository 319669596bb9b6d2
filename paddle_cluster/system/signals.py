# SPDX-License-Identifier: Apache-2.0
"""Turns signals and failures of threads into events, to which the job's loop reacts.

SIGINT, SIGTERM, SIGHUP and SIGQUIT ask the job to stop; a handler only records which one arrived. The third one exits
immediately; nodes then stop their processes by themselves, because their standard input closes. A SIGHUP that is
ignored stays ignored, as nohup requires. A failing thread posts its error, so that the job ends with this cause instead
of waiting for the thread.
"""

from __future__ import annotations

import os
import queue
import select
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from paddle_cluster.errors import ExitCode
from paddle_cluster.system.installation import PROGRAM
from paddle_node.contract.classes import dataclass

EXIT_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HANGUP,
    signal.SIGQUIT: ExitCode.QUIT,
}
LEAVE_AT_ONCE = 3
_LEFT = f"{PROGRAM}: exited without waiting for the job to stop. Check with: {PROGRAM} status\n"


@dataclass(frozen=True)
class SignalEvent:
    """Reports the user's `count`-th request to stop this process.

    Attributes:
        by: the program that requested the stop, if it was not a signal.
    """

    signum: int
    count: int
    by: str = ""

    @property
    def name(self) -> str:
        """Return the name of the signal and the requester, such as "SIGINT" or "SIGTERM, asked by paddle.py stop"."""
        name = signal.Signals(self.signum).name
        return f"{name}, asked by {self.by}" if self.by else name

    @property
    def exit_code(self) -> ExitCode:
        """Return the launcher's exit code for this signal."""
        return EXIT_CODES[signal.Signals(self.signum)]


class StopRequest(KeyboardInterrupt):
    """Raised when a signal arrives while there is no job to stop."""

    def __init__(self, event: SignalEvent) -> None:
        super().__init__(event.name)
        self.event = event


@contextmanager
def raised() -> Iterator[None]:
    """Return a context in which each stop signal raises StopRequest; only for the main thread."""

    def handle(signum: int, frame: FrameType | None) -> None:
        raise StopRequest(SignalEvent(signum, 1))

    with _handled_by(handle):
        yield


@contextmanager
def announced(describe: Callable[[FrameType | None], str], first_s: float, again_s: float) -> Iterator[None]:
    """Return a context that writes a line to standard error at these intervals; only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(signum: int, frame: FrameType | None) -> None:
        _write_now(f"{PROGRAM}: {describe(frame)}\n")

    before = signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, first_s, again_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)


def _write_now(text: str) -> None:
    with suppress(OSError):  # standard error may be closed, or a paused terminal
        if select.select([], [2], [], 0)[1]:
            os.write(2, text.encode())


@contextmanager
def ignored() -> Iterator[None]:
    """Return a context in which stop signals are ignored, for the end of the program; only for the main thread."""
    with _handled_by(signal.SIG_IGN):
        yield


def ignore() -> None:
    """Ignore stop signals from now on, so that they cannot change an exit code that is already decided."""
    for number in EXIT_CODES:
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def posted_to(events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Return a context in which each stop signal posts a SignalEvent to a queue; only for the main thread."""
    count = 0

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= LEAVE_AT_ONCE:
            _write_now(_LEFT)
            os._exit(EXIT_CODES[signal.Signals(signum)])
        events.put(SignalEvent(signum, count))  # SimpleQueue.put is reentrant

    with _handled_by(handle):
        yield


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> Iterator[None]:
    before = {
        number: signal.signal(number, handler)
        for number in EXIT_CODES
        if not (number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN)
    }
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@dataclass(frozen=True)
class ThreadFailed:
    """Reports that a thread ended with an uncaught error.

    Attributes:
        what: the error and where it was raised, as a sentence.
    """

    name: str
    what: str


@contextmanager
def failures_posted_to(events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Return a context in which the failure of any thread of this process posts a ThreadFailed to a queue."""

    def post(failed: threading.ExceptHookArgs) -> None:
        if issubclass(failed.exc_type, SystemExit):
            return
        import traceback  # imports tokenize, and most jobs need neither

        frames = traceback.extract_tb(failed.exc_traceback)
        where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
        name = failed.thread.name if failed.thread is not None else "unnamed"
        events.put(ThreadFailed(name, f"{failed.exc_type.__name__}: {failed.exc_value!s:.300}{where}"))

    before, threading.excepthook = threading.excepthook, post
    try:
        yield
    finally:
        threading.excepthook = before
