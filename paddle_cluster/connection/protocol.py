# SPDX-License-Identifier: Apache-2.0
"""The stream of an agent, from a login shell's noise on: skips what comes before the marker, then reads frames."""

from __future__ import annotations

from paddle_node.contract import frames
from paddle_node.contract.frames import FrameError, Message
from paddle_node.contract.opening import marker
from paddle_node.contract.to_launcher import TO_LAUNCHER

NOISE_KEPT = 500
MAX_NOISE = 1 << 20  # what a login shell may say before the agent does


class Decoder:
    """Turns what an agent writes into messages, however it is cut; skips what comes before the marker.

    Attributes:
        started: whether the marker was seen.
    """

    def __init__(self, nonce: str) -> None:
        self.started = False
        self._noise = b""
        self._marker = marker(nonce)
        self._skipped = 0
        self._buffer = bytearray()
        self._frames = frames.Decoder("agent", TO_LAUNCHER)

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes and return the messages they complete.

        Raises:
            FrameError: no marker within MAX_NOISE bytes, or bytes that are no frame of an agent.
        """
        if self.started:
            return self._frames.feed(data)
        self._buffer += data
        return self._frames.feed(bytes(self._buffer)) if self._find_marker() else []

    @property
    def received(self) -> int:
        """How many bytes have come behind the agent's first frame."""
        return self._frames.received

    @property
    def noise(self) -> str:
        """The end of what came before the marker."""
        rest = b"" if self.started else bytes(self._buffer)
        return (self._noise + rest)[-NOISE_KEPT:].decode("utf-8", "replace").strip()

    def _find_marker(self) -> bool:
        at = self._buffer.find(self._marker)
        self.started = at >= 0
        # what is left may end in the first half of the marker
        noise = at if self.started else max(0, len(self._buffer) - len(self._marker) + 1)
        self._noise = (self._noise + self._buffer[:noise])[-NOISE_KEPT:]
        self._skipped += noise
        del self._buffer[: noise + len(self._marker) if self.started else noise]
        if self._skipped > MAX_NOISE:
            raise FrameError(f"{self._skipped} bytes came, and no agent's first line among them")
        return self.started
