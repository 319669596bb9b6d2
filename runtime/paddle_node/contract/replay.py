# SPDX-License-Identifier: Apache-2.0
"""The replay buffer of a stream: its unacknowledged bytes, from which a new connection can continue.

Positions count bytes from the start of the stream. Launcher and agent use the same code.
"""

from __future__ import annotations

from collections import deque

ACK_EACH = 1 << 16  # bytes that arrive between two acknowledgements
KEPT = 2 << 20  # bytes that may be sent without an acknowledgement; urgent frames are sent anyway


class ReplayBuffer:
    """The unacknowledged bytes of a stream, which are sent again after a reconnection.

    Attributes:
        acked: the position before which everything has arrived.
        end: the position after the last byte that was sent.
    """

    def __init__(self) -> None:
        self.acked = 0
        self.end = 0
        self._first = 0  # position of the first chunk
        self._chunks: deque[bytes] = deque()

    @property
    def is_full(self) -> bool:
        """Return whether the maximum number of unacknowledged bytes is reached."""
        return self.end - self.acked >= KEPT

    def append(self, data: bytes) -> None:
        """Add bytes that are about to be sent to the end of the stream."""
        if data:
            self._chunks.append(data)
            self.end += len(data)

    def acknowledge(self, position: int) -> None:
        """Discard all bytes before a position; a position that was already acknowledged has no effect.

        Raises:
            ValueError: the position was never reached.
        """
        if not 0 <= position <= self.end:
            raise ValueError(f"the peer reports {position} bytes as received, but only {self.end} were sent")
        self.acked = max(self.acked, position)
        while self._chunks and self._first + len(self._chunks[0]) <= self.acked:
            self._first += len(self._chunks.popleft())

    def read(self, position: int, most: int) -> memoryview:
        """Return 1 to `most` bytes from a position; no bytes only at the end of the stream.

        Raises:
            ValueError: the position was acknowledged and discarded, or was never reached.
        """
        if not self.acked <= position <= self.end:
            raise ValueError(
                f"cannot replay from byte {position}: only bytes {self.acked} to {self.end} are available"
            )
        begin = self.end
        for chunk in reversed(self._chunks):  # reads are mostly near the end
            begin -= len(chunk)
            if begin <= position:
                return memoryview(chunk)[position - begin :][:most]
        return memoryview(b"")
