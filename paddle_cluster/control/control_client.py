# SPDX-License-Identifier: Apache-2.0
"""A connection to a running job's launcher. A daemon thread queues received frames; requests are sent immediately."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddle_cluster.control.control_protocol import (
    ANSWERS,
    MAX_FRAME,
    VERSION,
    ControlDecoder,
    ControlError,
    Frame,
    encode,
)
from paddle_cluster.errors import ExitCode, LauncherError
from paddle_cluster.system.installation import PROGRAM
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
