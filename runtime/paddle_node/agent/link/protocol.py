# SPDX-License-Identifier: Apache-2.0
"""Frames and message names of launcher <-> agent, the node's side.

The launcher has its own twin; a contract test compares the two. Sans-IO: bytes in, messages out, and back.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, List, NamedTuple, Optional

from paddle_node.agent.link.opening import PROTOCOL_VERSION as PROTOCOL_VERSION
from paddle_node.contract import checked_json

MAX_HEADER = 16 << 20
MAX_BODY = 4 << 20
# Of collected frames that are not acknowledged, as `cost` counts them; as much as SSH lets travel.
WINDOW = 2 << 20
FRAME_COST = 1 << 10  # what a collected frame counts beside its body

LAUNCHER_KINDS = frozenset(
    (
        "hello",
        "probe",
        "reach",
        "manifest",
        "blob",
        "commit",
        "start",
        "stop",
        "ack",
        "verified",
        "ping",
        "received",
        "bye",
        "relay",
        "fetch",
        "stacks",
        "jobs",
        "end_job",
        "clean",
        "checkpoints",
        "verify",
    )
)
AGENT_KINDS = frozenset(
    (
        "hello",
        "probed",
        "reached",
        "lacking",
        "arrived",
        "committed",
        "started",
        "ready",
        "progress",
        "pushes",
        "unsaved",
        "usage",
        "queue",
        "points",
        "line",
        "exited",
        "file",
        "listed",
        "stopped",
        "failed",
        "notice",
        "pong",
        "received",
        "goodbye",
        "relaying",
        "stalled",
        "recovered",
        "stacks",
        "moved",
        "link",
        "removed",
        "jobs_found",
        "job_ended",
        "cleaned",
        "checkpoints_found",
        "verifying",
        "verified",
        "resident",
    )
)

_PREFIX = struct.Struct("!IQ")

Fields = Dict[str, Any]


class ProtocolError(Exception):
    """The launcher sent what the protocol does not allow; the stream cannot be read any further."""


class Message(NamedTuple):
    """One frame: its kind, the other header fields, its raw body."""

    kind: str
    fields: Fields
    body: bytes


def encode(kind: str, fields: Fields, body: bytes = b"") -> bytes:
    """One frame as bytes; text may hold surrogates, which stand for bytes that are not UTF-8."""
    header = json.dumps(dict(fields, kind=kind), separators=(",", ":")).encode()
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise ProtocolError(
            "%s: header of %d or body of %d bytes is too long" % (kind, len(header), len(body))
        )
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def cost(body: bytes) -> int:
    """Return what a collected frame (file, link, removed, moved, listed) takes of the window."""
    return len(body) + FRAME_COST


class Decoder:
    """Turns the bytes of a stream into messages, however they are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> List[Message]:
        """Take the next bytes and return the messages they complete.

        Raises:
            ProtocolError: lengths over the limits, a header that is no JSON object, or a kind nobody knows.
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
            raise ProtocolError(
                "a frame says %d + %d bytes; is the peer an agent's launcher?" % (header_size, body_size)
            )
        body_at = _PREFIX.size + header_size
        end = body_at + body_size
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:  # a slice of the buffer itself would be one copy more
            header, body = bytes(view[_PREFIX.size : body_at]), bytes(view[body_at:end])
        del self._buffer[:end]
        return _message(header, body)


def _message(header: bytes, body: bytes) -> Message:
    try:
        fields = checked_json.as_object(header)
    except ValueError as error:
        raise ProtocolError("a header is no JSON: %s" % error) from error
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in LAUNCHER_KINDS:
        raise ProtocolError("no launcher says %r" % (kind,))
    return Message(kind, fields, body)
