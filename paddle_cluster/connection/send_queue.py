# SPDX-License-Identifier: Apache-2.0
"""The queue of frames to send on one link, by urgency.

The agent's first modules are sent first. After its `hello`, the first frame and the remaining modules follow; then
single frames are sent ahead of the next frame of a stream. Any thread can add frames. Bytes are read by position, so
that unacknowledged bytes can be read again for a new connection.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator

from paddle_cluster.connection.bootstrap import packed_agent
from paddle_node.contract.frames import encode
from paddle_node.contract.records import Fields
from paddle_node.contract.replay import ReplayBuffer

TOGETHER = 1 << 15  # bytes of small frames in one write

Frame = tuple[str, Fields, bytes]


class SendQueue:
    """The queue of frames to send on one link.

    Args:
        greeting: data that is sent before the agent has sent anything; not a frame of a job.
        keeps: whether written data is stored until the agent acknowledges it.

    Attributes:
        bytes_sent: bytes of frames that were written.
        is_stopped: whether sending has stopped.
    """

    def __init__(self, greeting: bytes, keeps: bool = False) -> None:
        self.bytes_sent = 0
        self.is_stopped = False
        self._lock = threading.Lock()
        self._making = (
            threading.Lock()
        )  # for making frames: the thread of a released connection may still be at work
        self._urgent: deque[Frame] = deque()
        self._streams: deque[Iterator[Frame]] = deque()
        self._sent = ReplayBuffer()
        self._sent.append(greeting)
        self._greeting_size = len(greeting)
        self._keeps = keeps
        self._opening_size = 0  # greeting, first frame and modules: the agent counts from their end on
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
        """Queue a stream of frames, which are produced one by one; return False after `stop`."""
        with self._lock:
            if not self.is_stopped:
                self._streams.append(iter(frames))
            return not self.is_stopped

    def greeted(self, magic: object) -> None:
        """Record that the agent's greeting has arrived.

        Args:
            magic: the code format that its interpreter can use.
        """
        self._magic = magic
        self._has_greeted = True

    def stop(self) -> None:
        """Discard the queued frames and accept no more."""
        with self._lock:
            self.is_stopped = True
            self._urgent.clear()
            self._streams.clear()

    @property
    def can_repeat(self) -> bool:
        """Return whether unacknowledged bytes can be sent again, because the agent counts the received bytes."""
        return self._keeps and self._opening_size > 0

    def read(self, position: int, most: int) -> bytes:
        """Return at most `most` bytes from the given position, or b"" if nothing is ready to be sent.

        Raises:
            Exception: any error that a stream raised.
        """
        with self._making:
            if self.is_stopped:
                return b""
            if position == self._sent.end:
                frames = self._frames()
                with self._lock:
                    self._sent.append(frames)
            with self._lock:
                # an old connection may lag behind what the agent acknowledged over a newer one
                return bytes(self._sent.read(position, most)) if position >= self._sent.acked else b""

    def took(self, position: int) -> None:
        """Record that all bytes before a position have been written, so that they may be discarded."""
        self.bytes_sent = max(self.bytes_sent, position - self._greeting_size)
        if not self._keeps:
            with self._lock:
                self._sent.acknowledge(position)

    def acknowledged(self, count: int) -> None:
        """Record how many bytes the agent has received since it started to count.

        Raises:
            ValueError: the number exceeds the bytes sent.
        """
        with self._lock:
            self._sent.acknowledge(self._opening_size + count)

    def repeat_from(self, count: int) -> int:
        """Return the position in the output after `count` acknowledged bytes, to continue from on a new connection.

        Raises:
            ValueError: the number exceeds the bytes sent, or some of the following bytes are no longer in memory.
        """
        self.acknowledged(count)
        position = self._opening_size + count
        with self._lock:
            self._sent.read(position, 0)
        return position

    def _frames(self) -> bytes:
        """Return the next frame, or several small frames together to save writes."""
        if not self._has_greeted:
            return b""
        parts: list[bytes] = []
        size = 0
        while size < TOGETHER and (frame := self._next_frame()) is not None:
            if self._frames_out == 1:
                parts.append(encode("modules", {}, packed_agent().rest_for(self._magic)))
                self._opening_size = self._sent.end + sum(map(len, parts))
            self._frames_out += 1
            parts.append(encode(*frame))
            size += len(parts[-1])
        return b"".join(parts)

    def _next_frame(self) -> Frame | None:
        """Return the next frame; None if there is none, or after `stop`."""
        while True:
            with self._lock:
                if self._urgent:
                    return self._urgent.popleft()
                if not self._streams or (self._keeps and self._sent.is_full):
                    return None
                stream = self._streams[0]
            frame = next(stream, None)
            if frame is not None:
                return frame
            with self._lock:
                if self._streams and self._streams[0] is stream:
                    self._streams.popleft()
