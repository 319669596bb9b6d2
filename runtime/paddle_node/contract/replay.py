# SPDX-License-Identifier: Apache-2.0
"""The replay buffer of a stream: unacknowledged bytes, so that another connection can continue from there.

Positions count bytes from the beginning of the stream. The launcher and the agent have the same one, line for line.
"""

from __future__ import annotations

from collections import deque

ACK_EACH = 1 << 16  # bytes that come between two acknowledgements
KEPT = 2 << 20  # bytes that may be said and not acknowledged; what is urgent goes out all the same


class ReplayBuffer:
    """One direction of a stream, the side that speaks.

    Attributes:
        acked: position before which everything has arrived.
        end: position behind the last byte that was said.
    """

    def __init__(self) -> None:
        self.acked = 0
        self.end = 0
        self._first = 0  # position of the first chunk
        self._chunks: deque[bytes] = deque()

    @property
    def is_full(self) -> bool:
        """Whether as much as may be kept waits for its acknowledgement."""
        return self.end - self.acked >= KEPT

    def append(self, data: bytes) -> None:
        """Say more."""
        if data:
            self._chunks.append(data)
            self.end += len(data)

    def acknowledge(self, position: int) -> None:
        """Forget what is before a position; one that was acknowledged already changes nothing.

        Raises:
            ValueError: so much was never said.
        """
        if not 0 <= position <= self.end:
            raise ValueError(f"{position} bytes are reported as received, but {self.end} were sent")
        self.acked = max(self.acked, position)
        while self._chunks and self._first + len(self._chunks[0]) <= self.acked:
            self._first += len(self._chunks.popleft())

    def read(self, position: int, most: int) -> memoryview:
        """What was said from a position on, `most` bytes at most: not all of it, but something unless it is the end.

        Raises:
            ValueError: it was acknowledged and forgotten, or never said.
        """
        if not self.acked <= position <= self.end:
            raise ValueError(f"bytes from {position} on: those from {self.acked} to {self.end} are there")
        begin = self.end
        for chunk in reversed(self._chunks):  # who reads is mostly near the end
            begin -= len(chunk)
            if begin <= position:
                return memoryview(chunk)[position - begin :][:most]
        return memoryview(b"")
