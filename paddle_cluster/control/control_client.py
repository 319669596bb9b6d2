# SPDX-License-Identifier: Apache-2.0
"""A connection to a running job's launcher, and a terminal attached by it to a job that runs in a different process.

A daemon thread queues received frames; requests are sent immediately. The terminal shows the job's screen. Ctrl+C asks
the job to stop, as it would in the foreground. If this process ends for any other reason (TERM, a closed terminal,
Ctrl+\\, kill -9), it only detaches from the job.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any

from paddle_cluster.control.control_protocol import (
    ANSWERS,
    MAX_FRAME,
    VERSION,
    ControlDecoder,
    ControlError,
    End,
    Frame,
    Missed,
    RequestRefused,
    encode,
)
from paddle_cluster.errors import ExitCode, LauncherError
from paddle_cluster.screen.console import Console
from paddle_cluster.system import signals
from paddle_cluster.system.installation import PROGRAM
from paddle_cluster.system.signals import SignalEvent
from paddle_cluster.text.output_events import Event, from_fields
from paddle_cluster.text.sizes import counted
from paddle_node.contract.classes import dataclass

CONNECT_S = 3.0
READ_SIZE = 1 << 16


class ControlLost(LauncherError):
    """Raised when the launcher of a job cannot be reached or does not answer."""

    exit_code = ExitCode.LOST


@dataclass(frozen=True)
class ConnectionClosed:
    """The last event of a connection: the launcher closed it or exited."""

    reason: str


class ControlClient:
    """A client of one job's control socket.

    Args:
        connection: the connection, which this client owns from now on.
        events: receives every `Frame`, and one `ConnectionClosed` at the end.
        on_welcome: receives the fields of the welcome instead of the queue, on the reading thread.
    """

    def __init__(
        self,
        connection: socket.socket,
        events: queue.SimpleQueue[Any],
        on_welcome: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self._connection = connection
        self._events = events
        self._on_welcome = on_welcome
        connection.settimeout(None)
        self._thread = threading.Thread(target=self._read, name="control client", daemon=True)
        self._thread.start()

    def send(self, kind: str, **fields: Any) -> bool:
        """Send a request, which is small enough not to block; return False if the launcher has exited."""
        try:
            self._connection.sendall(encode(kind, **fields))
        except OSError:
            return False
        return True

    def close(self) -> None:
        """Disconnect from the launcher; the job continues."""
        with contextlib.suppress(OSError):  # the launcher may have closed it already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(CONNECT_S)
        self._connection.close()

    def _read(self) -> None:
        decoder = ControlDecoder(MAX_FRAME, ANSWERS)
        reason = "the launcher closed the connection"
        try:
            while data := self._connection.recv(READ_SIZE):
                for frame in decoder.feed(data):
                    self._take(frame)
        except (OSError, ControlError) as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - who waits for frames must hear of the end, whatever ended it
            reason = f"{type(error).__name__}: {error}"
        self._events.put(ConnectionClosed(reason))

    def _take(self, frame: Frame) -> None:
        if frame.kind == "welcome" and self._on_welcome is not None:
            self._on_welcome(frame.fields)
        else:
            self._events.put(frame)


def connect(path: Path, events: queue.SimpleQueue[Any]) -> tuple[ControlClient, dict[str, Any]]:
    """Connect to the socket of a job; return the client and the launcher's greeting.

    Raises:
        ControlLost: the launcher does not listen or answer, or uses a different protocol version.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.settimeout(CONNECT_S)
    try:
        connection.connect(str(path))
    except OSError as error:
        connection.close()
        raise ControlLost(f"nothing is listening on {path}: {error}") from error
    client = ControlClient(connection, events)
    try:
        first = events.get(timeout=CONNECT_S)
    except queue.Empty:
        first = None
    try:
        return client, welcome(first, path)
    except ControlLost:
        client.close()
        raise


def welcome(first: Frame | ConnectionClosed | None, path: Path | str) -> dict[str, Any]:
    """Validate the first event of a connection and return its fields.

    Raises:
        ControlLost: the event is not a welcome, or from a different version.
    """
    if not isinstance(first, Frame):
        why = "no answer" if first is None else first.reason
        raise ControlLost(f"cannot communicate with the launcher at {path}: {why}")
    if first.kind != "welcome" or first.fields.get("version") != VERSION:
        raise ControlLost(
            f"the launcher at {path} uses version {first.fields.get('version')!r} of the "
            f"control protocol, but this {PROGRAM} uses version {VERSION}; use the {PROGRAM} that "
            "started the job"
        )
    return first.fields


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
