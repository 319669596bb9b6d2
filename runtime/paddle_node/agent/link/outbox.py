# SPDX-License-Identifier: Apache-2.0
"""Queues frames for the launcher, the most urgent first, in bounded memory and without ever blocking.

Control frames are always sent. Only the newest `progress`, `pushes`, `queue` and `unsaved` frame per process is queued,
and only the newest `usage` frame. `line` frames are dropped and counted while more than LINES_LIMIT bytes are queued:
the log file has them, and a frame reports the number of dropped bytes. Messages to the user are counted instead of sent
when they are too frequent. File chunks are requested only when the link has room, alternating with lines. The first
line after a quiet period is sent immediately. Small lines that follow wait for up to `pace_s` and are sent together,
because for a launcher of many nodes, a packet costs more than its bytes. A launcher of few nodes sets a shorter time.

After `keep`, everything stays in memory until the launcher has acknowledged it, and is sent again over a new connection
if this one is lost. Lines and chunks wait while too much is unacknowledged.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Tuple

from paddle_node.agent.link.loop import Loop, Timer
from paddle_node.contract.frames import encode
from paddle_node.contract.records import Fields
from paddle_node.contract.replay import ReplayBuffer

LINES_LIMIT = 1 << 20  # bytes
WRITE_SIZE = 1 << 16
PACE_S = 0.2
MOST_PACE_S = 5.0  # a launcher of thousands of nodes asks for more
NOTICES = 20  # messages that may be sent in a burst; then one per NOTICE_S
NOTICE_S = 1.0
NOTICE_SIZE = 2000  # characters
MOST_LOSSES = 1000


class Outbox:
    """The bounded queue of frames to the launcher; owns the descriptor of the connection.

    Attributes:
        pace_s: time in seconds for which lines and chunks wait for more after the last transmission.
        losses: messages about lost output; they are reported again with the list of collected files.
    """

    def __init__(self, loop: Loop, fd: int, on_broken: Callable[[], None]) -> None:
        """Start with an empty queue for the descriptor `fd`.

        Args:
            on_broken: called once per connection, when the other end stops reading.
        """
        self.pace_s = PACE_S
        self.losses: List[str] = []
        self.next_chunk: Callable[[], Optional[bytes]] = lambda: None
        self._loop = loop
        self._fd = fd
        self._on_broken = on_broken
        self._connected = True
        self._keeps = False
        self._pumping = False
        self._lines_turn = True
        self._sent = ReplayBuffer()
        self._written = 0  # stream position after the bytes that the operating system accepted
        self._control: Deque[bytes] = deque()
        self._newest: Dict[Tuple[str, str], Fields] = {}
        self._lines: Deque[bytes] = deque()
        self._lines_size = 0
        self._dropped: Dict[str, Tuple[int, str]] = {}
        self._data_at = 0.0
        self._pace: Optional[Timer] = None
        self._notices = float(NOTICES)
        self._noticed_at = time.monotonic()
        self._unnoticed = 0
        self._is_finished = False

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue a frame that must arrive, after lines that are waiting to be sent together."""
        if self._is_finished:
            return
        if self._pace is not None:
            self.pump()
        self._control.append(encode(kind, fields, body))
        if len(self._control) == 1:
            self._loop.last(self.pump)  # a packet costs more than its bytes

    def finish(self, kind: str, **fields: Any) -> None:
        """Queue the last frame: the launcher then closes the connection, so anything sent later would be refused."""
        self._control.append(encode(kind, fields, b""))
        self._is_finished = True
        self.pump()

    def notice(self, text: str) -> None:
        """Queue a message for the user, or only count it if there have been too many."""
        now = time.monotonic()
        self._notices = min(NOTICES, self._notices + (now - self._noticed_at) / NOTICE_S)
        self._noticed_at = now
        if self._notices < 1:
            self._unnoticed += 1
            if self._unnoticed == 1:
                self._loop.after(NOTICES * NOTICE_S / 2, self._tell_unnoticed)
            return
        self._notices -= 1
        self.send("notice", text=text[:NOTICE_SIZE])

    def loss(self, text: str) -> None:
        """Queue a message about lost output, and store it for the final list."""
        if len(self.losses) < MOST_LOSSES:
            self.losses.append(text[:NOTICE_SIZE])
        self.notice(text)

    def _tell_unnoticed(self) -> None:
        count, self._unnoticed = self._unnoticed, 0
        if count:
            self.send("notice", text="%d more messages were not shown (rate limit)" % count)

    def newest(self, kind: str, proc: str, fields: Fields) -> None:
        """Queue a recurring report; it replaces a queued frame of the same kind and process."""
        self._newest[kind, proc] = fields
        self.soon()

    def line(self, proc: str, body: bytes, log: str, partial: bool, moment: float) -> None:
        """Queue output for the screen, or count it as not shown.

        Args:
            moment: the wall-clock time in seconds when the output was read.
        """
        if self._lines_size > LINES_LIMIT or proc in self._dropped:
            self._dropped[proc] = (self._dropped.get(proc, (0, log))[0] + len(body), log)
            return
        self._add_line({"proc": proc, "stream": "out", "partial": partial, "t": moment}, body)
        self.soon()

    def soon(self) -> None:
        """Schedule a transmission: now if none occurred for `pace_s` or the queue is long, otherwise after `pace_s`."""
        wait_s = self._data_at + self.pace_s - time.monotonic()
        if wait_s <= 0 or self._lines_size >= WRITE_SIZE:
            self.pump()
        elif self._pace is None:
            self._pace = self._loop.after(wait_s, self.pump)

    @property
    def empty(self) -> bool:
        """Return whether all frames have been passed to the operating system."""
        waiting = self._control or (not self._is_finished and (self._newest or self._lines))
        return self._written == self._sent.end and not waiting

    def keep(self) -> None:
        """Retain frames from now on until the launcher acknowledges them."""
        self._keeps = True

    def acknowledged(self, position: int) -> None:
        """Handle the launcher's acknowledgement of `position` bytes.

        Raises:
            ValueError: the number exceeds the bytes sent.
        """
        self._sent.acknowledge(position)
        self.pump()

    def disconnect(self) -> None:
        """Handle a closed connection; queued frames wait for the next connection."""
        self._connected = False
        self._loop.on_writable(self._fd, None)

    def reconnect(self, position: int) -> None:
        """Use the descriptor of a new connection, and continue from the given, acknowledged position."""
        self._written = position
        self._connected = True
        self.pump()

    def pump(self) -> None:
        """Write as much as the link accepts now; the loop calls this again when it accepts more."""
        if self._pumping or not self._connected:
            return
        if self._pace is not None:
            self._pace.cancel()
            self._pace = None
        self._pumping = True
        try:
            blocked = self._write_all()
        except OSError:  # EPIPE, ECONNRESET: the connection to the launcher is closed
            self.disconnect()
            self._on_broken()
            return
        finally:
            self._pumping = False
        self._loop.on_writable(self._fd, self.pump if blocked else None)

    def _write_all(self) -> bool:
        """Write until the link is full (return True) or the queue is empty (return False)."""
        while True:
            if self._written == self._sent.end:
                self._sent.append(self._gather())
                if self._written == self._sent.end:
                    return False
            try:
                self._written += os.write(self._fd, self._sent.read(self._written, WRITE_SIZE))
            except BlockingIOError:
                return True
            if not self._keeps:
                self._sent.acknowledge(self._written)

    def _gather(self) -> bytes:
        """Return the next frame, or several small ones."""
        parts: List[bytes] = []
        size = 0
        while size < WRITE_SIZE:
            frame = self._choose()
            if frame is None:
                break
            parts.append(frame)
            size += len(frame)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _choose(self) -> Optional[bytes]:
        if self._control:
            return self._control.popleft()
        if self._is_finished:
            return None
        if self._newest:
            self._data_at = time.monotonic()
            kind, proc = next(iter(self._newest))
            fields = self._newest.pop((kind, proc))
            return encode(kind, dict(fields, proc=proc) if proc else fields)
        if self._sent.is_full:
            return None
        self._lines_turn = not self._lines_turn
        first, second = self._next_line, self.next_chunk
        if not self._lines_turn:
            first, second = second, first
        frame = first() or second()
        if frame is not None:
            self._data_at = time.monotonic()
            return frame
        # A flow without a chunk may still have queued a report, for which there is no other wake-up.
        return self._control.popleft() if self._control else None

    def _add_line(self, fields: Dict[str, Any], body: bytes) -> None:
        frame = encode("line", fields, body)
        self._lines.append(frame)
        self._lines_size += len(frame)

    def _next_line(self) -> Optional[bytes]:
        if not self._lines:
            return None
        frame = self._lines.popleft()
        self._lines_size -= len(frame)
        if self._dropped and self._lines_size < LINES_LIMIT // 2:
            dropped, self._dropped = self._dropped, {}
            for proc, (size, log) in dropped.items():
                fields = {"proc": proc, "stream": "out", "partial": False, "t": time.time()}
                self._add_line(dict(fields, unsent=size, log=log), b"")
        return frame
