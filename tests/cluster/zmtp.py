# SPDX-License-Identifier: Apache-2.0
"""Cuts one direction of a TCP stream into units a fault can be done to: as received, or as ZMTP 3 messages.

A ZMTP stream is a greeting of 64 bytes, then frames: flags (1 = more follows, 2 = long, 4 = command), a
length of 1 or 8 bytes, the body. Frames of one message stay together: a repeated unit is a repeated message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

GREETING_BYTES = 64
MORE, LONG, COMMAND = 1, 2, 4


class Unit(NamedTuple):
    """A piece of a stream.

    Attributes:
        data: its bytes.
        is_payload: whether faults may be done to it; a greeting or a handshake is passed on as it is.
    """

    data: bytes
    is_payload: bool


class Splitter(Protocol):
    """Takes bytes as they arrive, gives units as they become complete."""

    def feed(self, data: bytes) -> Iterator[Unit]: ...


class AsReceived:
    """Every read is a unit."""

    def feed(self, data: bytes) -> Iterator[Unit]:
        yield Unit(data, is_payload=True)


class ZmtpMessages:
    """Every ZMTP message is a unit."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._greeting_left = GREETING_BYTES

    def feed(self, data: bytes) -> Iterator[Unit]:
        self._pending += data
        if self._greeting_left:  # passed on byte by byte: each side waits for the other's first ten
            greeting = self._take(min(self._greeting_left, len(self._pending)))
            self._greeting_left -= len(greeting)
            yield Unit(greeting, is_payload=False)
        while (size := self._whole()) is not None:
            is_command = bool(self._pending[0] & COMMAND)
            yield Unit(self._take(size), is_payload=not is_command)

    def _take(self, size: int) -> bytes:
        taken = bytes(self._pending[:size])
        del self._pending[:size]
        return taken

    def _whole(self) -> int | None:
        """Bytes of the command or the whole message at the front, or None while its end is missing."""
        at = 0
        while at < len(self._pending):
            flags = self._pending[at]
            width = 8 if flags & LONG else 1
            if len(self._pending) < at + 1 + width:
                return None
            length = int.from_bytes(self._pending[at + 1 : at + 1 + width], "big")
            at += 1 + width + length
            if at > len(self._pending):
                return None
            if not flags & MORE:
                return at
        return None
