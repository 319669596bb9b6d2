# SPDX-License-Identifier: Apache-2.0
"""The codec of the frames between launcher and agent, for both sides. Performs no I/O.

A frame is a header of UTF-8 JSON, an object with `kind`, and a raw body; `opening` defines the first bytes of a stream.
`to_agent` and `to_launcher` list the kinds.
"""

from __future__ import annotations

import json
import struct
from typing import Container, List, Optional

from paddle_node.contract import checked_json
from paddle_node.contract.classes import NamedTuple
from paddle_node.contract.records import Fields

MAX_HEADER = 16 << 20
MAX_BODY = 4 << 20
# Unacknowledged bytes of collected frames, as counted by `cost`; the same as the SSH window.
WINDOW = 2 << 20
FRAME_COST = 1 << 10  # size that a collected frame counts in addition to its body

_PREFIX = struct.Struct("!IQ")
_ENCODER = json.JSONEncoder(separators=(",", ":"))


class FrameError(ValueError):
    """Raised when bytes violate the protocol; the rest of the stream cannot be read."""


class Message(NamedTuple):
    """A decoded frame: its kind, the other header fields, and its raw body."""

    kind: str
    fields: Fields
    body: bytes


def encode(kind: str, fields: Fields, body: bytes = b"") -> bytes:
    """Encode one frame; text may contain surrogates for bytes that are not UTF-8.

    Raises:
        FrameError: header or body exceed the limits.
    """
    header = _ENCODER.encode(dict(fields, kind=kind)).encode()
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise FrameError(
            "%s: a header of %d or a body of %d bytes is too long" % (kind, len(header), len(body))
        )
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def cost(body: bytes) -> int:
    """Return the number of bytes of the window that a frame of collected data with this body uses."""
    return len(body) + FRAME_COST


class Decoder:
    """An incremental decoder of the frames in a stream, which may arrive in chunks of any size.

    Args:
        sender: the writer of the stream, for messages: "launcher" or "agent".
        kinds: the kinds of messages that it may send.

    Attributes:
        first_size: the size of the first frame in bytes; 0 until it is complete.
    """

    def __init__(self, sender: str, kinds: Container[str]) -> None:
        self.first_size = 0
        self._sender = sender
        self._kinds = kinds
        self._buffer = bytearray()
        self._taken = 0

    @property
    def received(self) -> int:
        """Return the number of bytes received after the first frame."""
        return self._taken + len(self._buffer) - self.first_size

    def feed(self, data: bytes) -> List[Message]:
        """Decode the next bytes and return the messages that they complete.

        Raises:
            FrameError: a length exceeds the limits, a header is not a JSON object, or the sender may not send the
                kind.
        """
        self._buffer += data
        messages: List[Message] = []
        while True:
            message = self._next()
            if message is None:
                return messages
            messages.append(message)

    def _next(self) -> Optional[Message]:
        if len(self._buffer) < _PREFIX.size:
            return None
        header_size, body_size = _PREFIX.unpack_from(self._buffer)
        if header_size > MAX_HEADER or body_size > MAX_BODY:
            raise FrameError(
                "a frame announces %d + %d bytes; another program may be writing to the stream"
                % (header_size, body_size)
            )
        body_at = _PREFIX.size + header_size
        end = body_at + body_size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:  # slicing the buffer itself would cost another copy
            header, body = bytes(view[_PREFIX.size : body_at]), bytes(view[body_at:end])
        del self._buffer[:end]
        self._taken += end
        self.first_size = self.first_size or end
        return self._message(header, body)

    def _message(self, header: bytes, body: bytes) -> Message:
        try:
            fields = checked_json.as_object(header)
        except ValueError as error:
            raise FrameError("a header is not JSON: %s" % error) from error
        kind = fields.pop("kind", None)
        if not isinstance(kind, str) or kind not in self._kinds:
            raise FrameError("the %s must not send messages of kind %.80r" % (self._sender, kind))
        return Message(kind, fields, body)
