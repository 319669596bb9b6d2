# SPDX-License-Identifier: Apache-2.0
"""The frames waiting to be sent on one link, in order of sending.

First the agent's first modules. When it has said `hello`: the first frame, its other modules, and then single frames
before the next one of a stream. Frames are put in by any thread; bytes are read from a position on, so that what was
read and not acknowledged can be read again for another connection.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from paddle_cluster.connection.bootstrap import packed_agent
from paddle_node.contract.frames import encode
from paddle_node.contract.records import Fields
from paddle_node.contract.replay import ReplayBuffer

TOGETHER = 1 << 15  # bytes of small frames that are written at once

Frame = tuple[str, Fields, bytes]


class SendQueue:
    """The frames of one link.

    Args:
        greeting: what goes out before the agent has said anything; no frame of a job.
        keeps: whether what was written is kept until the agent acknowledges it.

    Attributes:
        bytes_sent: bytes of frames that were written.
        is_stopped: nothing more is sent.
    """

    def __init__(self, greeting: bytes, keeps: bool = False) -> None:
        self.bytes_sent = 0
        self.is_stopped = False
        self._lock = threading.Lock()
        self._making = (
            threading.Lock()
        )  # of frames: the thread of a connection that was let go of may still be at it
        self._urgent: deque[Frame] = deque()
        self._streams: deque[Iterator[Frame]] = deque()
        self._said = ReplayBuffer()
        self._said.append(greeting)
        self._greeting_size = len(greeting)
        self._keeps = keeps
        self._opening_size = 0  # greeting, first frame and modules: with them an agent begins to count
        self._magic: object = None
        self._has_greeted = False
        self._frames_out = 0

    def put(self, frame: Frame) -> bool:
        """Queue a frame ahead of all stream frames; return False after `stop`."""
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

    @property
    def can_repeat(self) -> bool:
        """Whether the agent counts the received bytes."""
        return self._keeps and self._opening_size > 0

    def read(self, position: int, most: int) -> bytes:
        """The bytes from a position on, `most` at most; none when nothing is to be sent now.

        Raises:
            Exception: what a stream raises.
        """
        with self._making:
            if self.is_stopped:
                return b""
            if position == self._said.end:
                frames = self._frames()
                with self._lock:
                    self._said.append(frames)
            with self._lock:
                # an old connection may be behind what the agent acknowledged over a newer one
                return bytes(self._said.read(position, most)) if position >= self._said.acked else b""

    def took(self, position: int) -> None:
        """Everything before a position was written."""
        self.bytes_sent = max(self.bytes_sent, position - self._greeting_size)
        if not self._keeps:
            with self._lock:
                self._said.acknowledge(position)

    def acknowledged(self, count: int) -> None:
        """The agent says how many bytes have come since it counts.

        Raises:
            ValueError: so many were never sent.
        """
        with self._lock:
            self._said.acknowledge(self._opening_size + count)

    def repeat_from(self, count: int) -> int:
        """Return the position after the given number of bytes, to continue on another connection.

        Raises:
            ValueError: this number was never sent, or some of the following bytes are no longer in memory.
        """
        self.acknowledged(count)
        position = self._opening_size + count
        with self._lock:
            self._said.read(position, 0)
        return position

    def _frames(self) -> bytes:
        """The next frame, or several small ones: a write for each would cost more than they do."""
        if not self._has_greeted:
            return b""
        parts: list[bytes] = []
        size = 0
        while size < TOGETHER and (frame := self._next_frame()) is not None:
            if self._frames_out == 1:
                parts.append(encode("modules", {}, packed_agent().rest_for(self._magic)))
                self._opening_size = self._said.end + sum(map(len, parts))
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
                if not self._streams or (self._keeps and self._said.is_full):
                    return None
                stream = self._streams[0]
            frame = next(stream, None)
            if frame is not None:
                return frame
            with self._lock:
                if self._streams and self._streams[0] is stream:
                    self._streams.popleft()
