# SPDX-License-Identifier: Apache-2.0
"""Frames of launcher and agent: the one codec of both sides. Sans-IO: bytes in, messages out, and back.

A frame is a header of UTF-8 JSON, an object with `kind`, and a raw body; `opening` has the first bytes of a stream.
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
# Of collected frames that are not acknowledged, as `cost` counts them; as much as SSH lets travel.
WINDOW = 2 << 20
FRAME_COST = 1 << 10  # what a collected frame counts beside its body

_PREFIX = struct.Struct("!IQ")


class FrameError(ValueError):
    """Bytes that the protocol does not allow; the stream cannot be read any further."""


class Message(NamedTuple):
    """One frame: its kind, the other header fields, its raw body."""

    kind: str
    fields: Fields
    body: bytes


def encode(kind: str, fields: Fields, body: bytes = b"") -> bytes:
    """Return one frame as bytes; text can hold surrogates for bytes that are not UTF-8.

    Raises:
        FrameError: header or body are over the limits.
    """
    header = json.dumps(dict(fields, kind=kind), separators=(",", ":")).encode()
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise FrameError(
            "%s: a header of %d or a body of %d bytes is too long" % (kind, len(header), len(body))
        )
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def cost(body: bytes) -> int:
    """Return what a collected frame (file, link, removed, moved, listed) takes of the window."""
    return len(body) + FRAME_COST


class Decoder:
    """Turns the bytes of a stream into messages, however they are cut.

    Args:
        sender: who writes the stream, for messages: "launcher" or "agent".
        kinds: of the messages that it may send.

    Attributes:
        first_size: bytes of the first frame; 0 until it is there.
    """

    def __init__(self, sender: str, kinds: Container[str]) -> None:
        self.first_size = 0
        self._sender = sender
        self._kinds = kinds
        self._buffer = bytearray()
        self._taken = 0

    @property
    def received(self) -> int:
        """How many bytes have come behind the first frame."""
        return self._taken + len(self._buffer) - self.first_size

    def feed(self, data: bytes) -> List[Message]:
        """Take the next bytes and return the messages they complete.

        Raises:
            FrameError: lengths over the limits, a header that is no JSON object, or a kind that the sender
                does not know.
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
                "a frame announces %d + %d bytes; another program writes to the stream"
                % (header_size, body_size)
            )
        body_at = _PREFIX.size + header_size
        end = body_at + body_size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:  # a slice of the buffer itself would be one copy more
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
            raise FrameError("no %s says %.80r" % (self._sender, kind))
        return Message(kind, fields, body)
