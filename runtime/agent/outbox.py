# SPDX-License-Identifier: Apache-2.0
"""Frames on their way to the launcher: the most urgent first, in bounded memory, without ever blocking.

Control frames always go out. `progress` keeps the newest per process. `line` frames are dropped and counted
while more than LINES_LIMIT bytes wait: the log file has them. File chunks are asked for only when the link
has room, in turn with lines.
"""

from __future__ import annotations

import os
from collections import deque
from typing import Any, Callable, Deque, Dict, Optional, Tuple

from agent.loop import Loop
from agent.protocol import encode

LINES_LIMIT = 1 << 20  # bytes
WRITE_SIZE = 1 << 16


class Outbox:
    """Owns the descriptor to the launcher."""

    def __init__(self, loop: Loop, fd: int, on_broken: Callable[[], None]) -> None:
        """Args: on_broken: called once when nobody reads any more."""
        self.next_chunk: Callable[[], Optional[bytes]] = lambda: None
        self._loop = loop
        self._fd = fd
        self._on_broken = on_broken
        self._broken = False
        self._pumping = False
        self._lines_turn = True
        self._current = memoryview(b"")
        self._control: Deque[bytes] = deque()
        self._progress: Dict[str, Dict[str, Any]] = {}
        self._lines: Deque[bytes] = deque()
        self._lines_size = 0
        self._dropped: Dict[str, Tuple[int, str]] = {}

    def send(self, kind: str, body: bytes = b"", **fields: Any) -> None:
        """Queue a frame that must arrive."""
        self._control.append(encode(kind, fields, body))
        self.pump()

    def notice(self, text: str) -> None:
        """Queue a sentence for the user."""
        self.send("notice", text=text)

    def progress(self, proc: str, fields: Dict[str, Any]) -> None:
        """Queue a process's progress; an older one that still waits is replaced."""
        self._progress[proc] = fields
        self.pump()

    def line(self, proc: str, body: bytes, log: str, partial: bool) -> None:
        """Queue output for the screen, or count it as not shown."""
        if self._lines_size > LINES_LIMIT or proc in self._dropped:
            self._dropped[proc] = (self._dropped.get(proc, (0, log))[0] + len(body), log)
            return
        frame = encode("line", {"proc": proc, "stream": "out", "partial": partial}, body)
        self._lines.append(frame)
        self._lines_size += len(frame)
        self.pump()

    @property
    def empty(self) -> bool:
        """Whether every frame so far was handed to the operating system."""
        return not (self._current or self._control or self._progress or self._lines)

    def pump(self) -> None:
        """Write what the link takes now; the loop goes on when it takes more."""
        if self._pumping or self._broken:
            return
        self._pumping = True
        try:
            blocked = self._write_all()
        except OSError:  # EPIPE, ECONNRESET: the launcher is gone
            self._broken = True
            self._loop.on_writable(self._fd, None)
            self._on_broken()
            return
        finally:
            self._pumping = False
        self._loop.on_writable(self._fd, self.pump if blocked else None)

    def _write_all(self) -> bool:
        """True when the link is full."""
        while True:
            if not self._current:
                frame = self._choose()
                if frame is None:
                    return False
                self._current = memoryview(frame)
            try:
                written = os.write(self._fd, self._current[:WRITE_SIZE])
            except BlockingIOError:
                return True
            self._current = self._current[written:]

    def _choose(self) -> Optional[bytes]:
        if self._control:
            return self._control.popleft()
        if self._progress:
            proc = next(iter(self._progress))
            return encode("progress", dict(self._progress.pop(proc), proc=proc))
        self._lines_turn = not self._lines_turn
        if self._lines_turn:
            return self._next_line() or self.next_chunk()
        return self.next_chunk() or self._next_line()

    def _next_line(self) -> Optional[bytes]:
        if not self._lines:
            return None
        frame = self._lines.popleft()
        self._lines_size -= len(frame)
        if self._dropped and self._lines_size < LINES_LIMIT // 2:
            for proc, (size, log) in self._dropped.items():
                text = "%s writes faster than the link takes: %d bytes are not on the screen; %s has them"
                self._control.append(encode("notice", {"text": text % (proc, size, log)}))
            self._dropped.clear()
        return frame
