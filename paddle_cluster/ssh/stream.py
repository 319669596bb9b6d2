# SPDX-License-Identifier: Apache-2.0
"""The two directions of a command on a node, over an SSH channel."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

from paddle_cluster.connection.bootstrap import Bootstrap
from paddle_cluster.ssh.login_errors import BROKEN
from paddle_node.contract.opening import marker

TURN_S = 0.05  # what a write waits for a node that takes nothing
EXIT_STATUS_S = 1.0
PIECE = 1 << 15  # a little over the most that one SSH packet takes
STDERR_KEPT = 1000


class SshStream:
    """Bytes to and from a command on a node; one thread at a time reads, one writes, any closes.

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
        self._marker = marker(bootstrap.nonce)
        self._first = b""
        self._has_begun = False
        self._unacknowledged = 0
        channel.settimeout(TURN_S)
        self._fd: int = channel.fileno()

    def fileno(self) -> int:
        """Readable while `read` has something to tell."""
        return self._fd

    @property
    def may_live_on(self) -> bool:
        """Whether nothing is known of the command's end: the connection alone may be lost."""
        return not (self._channel.exit_status_ready() and self._channel.exit_status >= 0)

    def may_block(self) -> bool:
        """Whether so much was read that the next `read` tells the node to go on sending."""
        return bool(self._unacknowledged + PIECE > self._channel.in_window_threshold)

    def read(self, limit: int) -> bytes | None:
        """Up to `limit` bytes of what is there, b"" at the end of the stream, None when there is nothing now.

        Raises:
            OSError: the node cannot be told to go on sending.
            FrameError: a shell took the agent's code for its commands.
        """
        try:
            return self._read(limit)
        except BROKEN as error:
            raise ConnectionError(f"the connection ended: {error}") from error

    def _read(self, limit: int) -> bytes | None:
        may_block = self.may_block()  # as whoever calls was told
        self._read_stderr(PIECE)
        if not self._has_begun:
            self.bootstrap.check_unrepeated(self._stderr.decode("ascii", "replace"))
        if not self._channel.recv_ready():
            # bytes that came before the end came before this look
            is_over = self._channel.eof_received or self._channel.closed
            return b"" if is_over and not self._channel.recv_ready() else None
        # the library speaks to the node once the threshold is passed
        room = limit if may_block else int(self._channel.in_window_threshold) - self._unacknowledged
        if not room:
            return None
        data = bytes(self._channel.recv(min(limit, room)))
        self._count(len(data))
        if not self._has_begun:
            self._first += data
            self._has_begun = self._marker in self._first
            self._first = self._first[-len(self._marker) :]
        return data

    def write(self, data: bytes) -> int:
        """How much of `data` the node took within about TURN_S.

        Raises:
            OSError: the node is gone, or `close` was called.
        """
        if self._closing.is_set():
            raise ConnectionError("the stream was closed")
        try:
            return int(self._channel.send(data[:PIECE]))
        except TimeoutError:
            return 0
        except BROKEN as error:
            raise ConnectionError(f"the connection ended: {error}") from error

    def close(self) -> None:
        """End the connection; the agent then stops everything and goes."""
        self._closing.set()
        if not self._has_begun:  # a login script that waits or has stopped itself would stay
            with contextlib.suppress(*BROKEN):
                self._channel.get_transport().kill(self._channel)
        self._close_connection()  # not the channel: that would take away the descriptor somebody still watches

    def end(self) -> str:
        """Why the stream ended; closes it."""
        if self._channel.eof_received and not self._closing.is_set():
            self._channel.status_event.wait(EXIT_STATUS_S)
        self._read_stderr(self._channel.in_window_size)
        code = self._channel.exit_status if self._channel.exit_status_ready() else -1
        lost = self._channel.get_transport().get_exception()
        self.close()
        with contextlib.suppress(*BROKEN):
            self._channel.close()
        said = self._stderr.decode("utf-8", "replace").strip()
        reason = f"the node agent ended with status {code}" if code >= 0 else "the connection ended"
        cause = str(lost or "") if code < 0 else ""  # an EOFError says nothing
        return reason + (f" ({cause})" if cause else "") + (f": {said}" if said else "")

    def _read_stderr(self, limit: int) -> None:
        # it shares the channel's window: unread, it would stop the stream
        while limit > 0 and self._channel.recv_stderr_ready():
            said = bytes(self._channel.recv_stderr(min(limit, STDERR_KEPT)))
            limit -= len(said)
            self._count(len(said))
            self._stderr = (self._stderr + said)[-STDERR_KEPT:]

    def _count(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged > self._channel.in_window_threshold:
            self._unacknowledged = 0
