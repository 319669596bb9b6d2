# SPDX-License-Identifier: Apache-2.0
"""What waits to be sent on one link, in the order in which it goes out.

First the agent's first modules. When it has said `hello`: the first frame, its other modules, and then single frames
before the next one of a stream. Frames are put in by any thread, and taken by one at a time.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from launcher.connection.bootstrap import packed_agent
from launcher.connection.protocol import Fields, encode

TOGETHER = 1 << 15  # bytes of small frames that are written at once

Frame = tuple[str, Fields, bytes]


class SendQueue:
    """The frames of one link.

    Args:
        greeting: what goes out before the agent has said anything; no frame of a job.

    Attributes:
        bytes_sent: bytes of frames that were taken.
        is_stopped: nothing more is sent.
    """

    def __init__(self, greeting: bytes) -> None:
        self.bytes_sent = 0
        self.is_stopped = False
        self._lock = threading.Lock()
        self._urgent: deque[Frame] = deque()
        self._streams: deque[Iterator[Frame]] = deque()
        self._current = memoryview(greeting)
        self._is_greeting = True
        self._magic: object = None
        self._has_greeted = False
        self._frames_out = 0

    def put(self, frame: Frame) -> bool:
        """Take a frame, before those of streams; False after `stop`."""
        with self._lock:
            if not self.is_stopped:
                self._urgent.append(frame)
            return not self.is_stopped

    def put_stream(self, frames: Iterable[Frame]) -> bool:
        """Take many frames, which are made one by one; False after `stop`."""
        with self._lock:
            if not self.is_stopped:
                self._streams.append(iter(frames))
            return not self.is_stopped

    def greeted(self, magic: object) -> None:
        """The agent has spoken.

        Args:
            magic: which code its interpreter can use.
        """
        self._magic = magic
        self._has_greeted = True

    def stop(self) -> None:
        """Forget what waits, and take nothing more."""
        with self._lock:
            self.is_stopped = True
            self._urgent.clear()
            self._streams.clear()

    def next(self, most: int) -> bytes:
        """The next bytes, `most` at most; none when nothing is to be sent now. Raises what a stream raises."""
        if self.is_stopped:
            return b""
        if not self._current:
            self._current = memoryview(self._frames())
        return bytes(self._current[:most])

    def took(self, size: int) -> None:
        """So much of it was written."""
        if not self._is_greeting:
            self.bytes_sent += size
        self._current = self._current[size:]

    def _frames(self) -> bytes:
        """The next frame, or several small ones: a write for each would cost more than they do."""
        if not self._has_greeted:
            return b""
        self._is_greeting = False
        parts: list[bytes] = []
        size = 0
        while size < TOGETHER and (frame := self._next_frame()) is not None:
            if self._frames_out == 1:
                parts.append(encode("modules", {}, packed_agent().rest_for(self._magic)))
            self._frames_out += 1
            parts.append(encode(*frame))
            size += len(parts[-1])
        return b"".join(parts)

    def _next_frame(self) -> Frame | None:
        """None when there is nothing to send, or all was stopped."""
        while True:
            with self._lock:
                if self._urgent:
                    return self._urgent.popleft()
                if not self._streams:
                    return None
                stream = self._streams[0]
            frame = next(stream, None)
            if frame is not None:
                return frame
            with self._lock:
                if self._streams and self._streams[0] is stream:
                    self._streams.popleft()
