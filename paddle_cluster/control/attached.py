# SPDX-License-Identifier: Apache-2.0
"""A terminal attached to a job that runs in a different process; shows its screen and forwards Ctrl+C.

Ctrl+C asks the job to stop, as it would in the foreground. If this process ends for any other reason
(TERM, a closed terminal, Ctrl+\\, kill -9), it only detaches from the job.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Any

from paddle_cluster.control.control_client import ConnectionClosed, ControlClient
from paddle_cluster.control.control_protocol import End, Frame, Missed, RequestRefused
from paddle_cluster.screen.console import Console
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.signals import SignalEvent
from paddle_cluster.text.output_events import Event, from_fields
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import dataclass

TURN_S = 0.5
SILENT_S = 15.0
KEYS = "Ctrl+C stops the job (twice: immediately), Ctrl+\\ or closing the terminal detaches"


class EndReason(Enum):
    """The reason for the end of an attached view."""

    ENDED = auto()
    LOST = auto()
    LET_GO = auto()
    REACHED = auto()


@dataclass(frozen=True)
class ViewEnd:
    """The outcome of an attached view.

    Attributes:
        exit_code: the job's exit code if it ended; the code of the signal if this process was terminated.
        left: messages about what the job could not clean or collect.
        lines: the messages of a job that never began.
    """

    parting: EndReason
    exit_code: int = 0
    left: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True)
class _Detached:
    """Event: the user pressed Ctrl+\\ to detach."""


def follow(
    client: ControlClient,
    events: queue.SimpleQueue[Any],
    console: Console,
    *,
    by: str,
    until: Callable[[Event], bool] = lambda event: False,
) -> ViewEnd:
    """Show a job until it ends, its launcher exits, or the user detaches. Only for the main thread.

    Args:
        client: an attached client; its frames arrive in `events`.
        by: the originator to name in the stop request after Ctrl+C.
        until: an event after which the view is no longer needed.
    """
    with signals.posted_to(events), _quit_posted_to(events):
        return _Follower(client, events, console, by, until).run()


class _Follower:
    """One attached view of a job."""

    def __init__(
        self,
        client: ControlClient,
        events: queue.SimpleQueue[Any],
        console: Console,
        by: str,
        until: Callable[[Event], bool],
    ) -> None:
        self._client = client
        self._events = events
        self._console = console
        self._by = by
        self._until = until
        self._heard_at = time.monotonic()
        self._silent = False

    def run(self) -> ViewEnd:
        while True:
            try:
                event = self._events.get(timeout=TURN_S)
            except queue.Empty:
                self._mind_silence()
                continue
            farewell = self._take(event)
            if farewell is not None:
                return farewell

    def _take(self, event: Any) -> ViewEnd | None:
        if isinstance(event, SignalEvent):
            return self._signal(event)
        if isinstance(event, _Detached):
            return ViewEnd(EndReason.LET_GO)
        if isinstance(event, ConnectionClosed):
            return ViewEnd(EndReason.LOST, reason=event.reason)
        self._heard_at = time.monotonic()
        self._silent = False
        return self._show(event)

    def _show(self, frame: Frame) -> ViewEnd | None:
        if frame.kind == "shown":
            with contextlib.suppress(ValueError):  # from a newer launcher
                event = from_fields(frame.fields)
                self._console.show(event)
                if self._until(event):
                    return ViewEnd(EndReason.REACHED)
        match message := frame.record:
            case Missed():
                missed = counted(message.count, "line")
                self._console.note(f"({missed} not shown here: output is too fast; see the logs)")
            case RequestRefused():
                self._console.note(f"the job's launcher refused: {message.reason}")
            case End():
                return ViewEnd(EndReason.ENDED, *message)
        return None

    def _signal(self, event: SignalEvent) -> ViewEnd | None:
        if event.signum != signal.SIGINT:
            return ViewEnd(EndReason.LET_GO, int(event.exit_code))
        self._client.send("stop", signal="SIGINT", force=event.count > 1, by=self._by)
        if event.count == 1:
            self._console.note(
                "asked the job to stop; a second Ctrl+C kills it immediately, a third detaches"
            )
        return None

    def _mind_silence(self) -> None:
        if not self._silent and time.monotonic() - self._heard_at >= SILENT_S:
            self._silent = True
            self._console.note(f"no message from the job's launcher for {SILENT_S:.0f} s")


@contextlib.contextmanager
def _quit_posted_to(events: queue.SimpleQueue[Any]) -> Iterator[None]:
    before = signal.signal(signal.SIGQUIT, lambda *_: events.put(_Detached()))
    try:
        yield
    finally:
        signal.signal(signal.SIGQUIT, before)


def me(what: str) -> str:
    """Return the name of this process in its requests, such as "paddle.py stop (pid 4711)"."""
    return f"{PROGRAM} {what} (pid {os.getpid()})"
