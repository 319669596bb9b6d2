# SPDX-License-Identifier: Apache-2.0
"""The two directions of a command on a node, over an SSH channel."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

from launcher.bootstrap import Bootstrap
from launcher.ssh_errors import BROKEN

TURN_S = 0.5
EXIT_STATUS_S = 1.0
PIECE = 1 << 15  # a little over the most that one SSH packet takes
STDERR_KEPT = 1000


class SshStream:
    """Bytes to and from a command on a node; reads and writes from two threads, `close` from any.

    Args:
        channel: where the command runs; the SSH library's.
        close_connection: closes what the channel runs over; called at least once.

    Attributes:
        bootstrap: what the command waits for on its standard input.
    """

    def __init__(self, channel: Any, bootstrap: Bootstrap, close_connection: Callable[[], None]) -> None:
        self.bootstrap = bootstrap
        self._close_connection = close_connection
        self._channel = channel
        self._closing = threading.Event()
        self._stderr = b""
        channel.settimeout(TURN_S)

    def read(self, limit: int, timeout_s: float) -> bytes:
        """Up to `limit` bytes, b"" at the end of the stream.

        Raises:
            TimeoutError: nothing came within about `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self._read_stderr()
            try:
                return bytes(self._channel.recv(limit))
            except TimeoutError:
                if time.monotonic() >= deadline:
                    raise

    def write(self, data: bytes) -> None:
        """All of `data`, however long the node takes.

        Raises:
            OSError: the node is gone, or `close` was called.
        """
        start = 0
        while start < len(data):
            try:
                start += self._channel.send(data[start : start + PIECE])
            except TimeoutError:
                if self._closing.is_set():
                    raise ConnectionError("the stream was closed") from None
            except BROKEN as error:
                raise ConnectionError(f"the connection ended: {error}") from error

    def close(self) -> None:
        """End the connection; the agent then stops everything and goes."""
        self._closing.set()
        with contextlib.suppress(*BROKEN):
            self._channel.close()
        self._close_connection()

    def end(self) -> str:
        """Why the stream ended; closes it."""
        if self._channel.eof_received and not self._closing.is_set():
            self._channel.status_event.wait(EXIT_STATUS_S)
        self._read_stderr()
        code = self._channel.exit_status if self._channel.exit_status_ready() else -1
        lost = self._channel.get_transport().get_exception()
        self.close()
        said = self._stderr.decode("utf-8", "replace").strip()
        reason = f"the node agent ended with status {code}" if code >= 0 else "the connection ended"
        cause = str(lost or "") if code < 0 else ""  # an EOFError says nothing
        return reason + (f" ({cause})" if cause else "") + (f": {said}" if said else "")

    def _read_stderr(self) -> None:
        # it shares the channel's window: unread, it would stop the stream
        while self._channel.recv_stderr_ready():
            self._stderr = (self._stderr + self._channel.recv_stderr(STDERR_KEPT))[-STDERR_KEPT:]
