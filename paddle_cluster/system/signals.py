# SPDX-License-Identifier: Apache-2.0
"""Turns signals into events: a handler only notes which signal came; the job's loop decides what it means.

SIGINT, SIGTERM, SIGHUP and SIGQUIT ask the job to stop. The third one leaves at once; nodes then clean themselves,
because their standard input closes. A SIGHUP that is ignored stays so: that is what nohup asks for.
"""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from paddle_cluster.errors import ExitCode
from paddle_cluster.record import dataclass

EXIT_CODES = {
    signal.SIGINT: ExitCode.INTERRUPTED,
    signal.SIGTERM: ExitCode.TERMINATED,
    signal.SIGHUP: ExitCode.HANGUP,
    signal.SIGQUIT: ExitCode.QUIT,
}
LEAVE_AT_ONCE = 3


@dataclass(frozen=True)
class SignalEvent:
    """The `count`-th request of this process's user to stop.

    Attributes:
        by: who asked, when it was no signal.
    """

    signum: int
    count: int
    by: str = ""

    @property
    def name(self) -> str:
        """ "SIGINT", "SIGTERM, asked by paddle.py stop"."""
        name = signal.Signals(self.signum).name
        return f"{name}, asked by {self.by}" if self.by else name

    @property
    def exit_code(self) -> ExitCode:
        """What the launcher exits with for this signal."""
        return EXIT_CODES[signal.Signals(self.signum)]


class StopRequest(KeyboardInterrupt):
    """A signal that came when there was no job to stop."""

    def __init__(self, event: SignalEvent) -> None:
        super().__init__(event.name)
        self.event = event


@contextmanager
def raised() -> Iterator[None]:
    """Raise a StopRequest for each stop request while the context lasts; main thread only."""

    def handle(signum: int, frame: FrameType | None) -> None:
        raise StopRequest(SignalEvent(signum, 1))

    with _handled_by(handle):
        yield


@contextmanager
def ignored() -> Iterator[None]:
    """Let no stop request cut short what is about to end anyway; main thread only."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def posted_to(events: queue.SimpleQueue[Any]) -> Iterator[None]:
    """Post a SignalEvent for each stop request while the context lasts; main thread only."""
    count = 0

    def handle(signum: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        if count >= LEAVE_AT_ONCE:
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
