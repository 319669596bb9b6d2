# SPDX-License-Identifier: Apache-2.0
"""Frames and message names of launcher <-> agent, the launcher's side.

The agent has its own twin; a contract test compares the two. Sans-IO: bytes in, messages out, and back.
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from paddle_node.contract import checked_json

PROTOCOL_VERSION = 2
MAX_HEADER = 16 << 20
MAX_BODY = 4 << 20
# Of collected frames that are not acknowledged, as `cost` counts them; as much as SSH lets travel.
WINDOW = 2 << 20
FRAME_COST = 1 << 10  # what a collected frame counts beside its body
NOISE_KEPT = 500
MAX_NOISE = 1 << 20  # what a login shell may say before the agent does

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

Fields = dict[str, Any]


class FrameError(ValueError):
    """Bytes that the protocol does not allow; the stream cannot be read any further."""


class Message(NamedTuple):
    """One frame: its kind, the other header fields, its raw body."""

    kind: str
    fields: Fields
    body: bytes


def marker(nonce: str) -> bytes:
    """The line that parts a login shell's noise from the frames."""
    return f"PADDLE-AGENT-{PROTOCOL_VERSION} {nonce}\n".encode()


def encode(kind: str, fields: Fields, body: bytes = b"") -> bytes:
    """One frame as bytes; text may hold surrogates, which stand for bytes that are not UTF-8.

    Raises:
        FrameError: header or body are over the limits.
    """
    header = json.dumps({**fields, "kind": kind}, separators=(",", ":")).encode()
    if len(header) > MAX_HEADER or len(body) > MAX_BODY:
        raise FrameError(f"{kind}: a header of {len(header)} or a body of {len(body)} bytes is too long")
    return b"".join((_PREFIX.pack(len(header), len(body)), header, body))


def cost(body: bytes) -> int:
    """Return what a collected frame (file, link, removed, moved, listed) takes of the window."""
    return len(body) + FRAME_COST


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
        self._frames_size = 0
        self._hello_size = 0

    def feed(self, data: bytes) -> list[Message]:
        """Take the next bytes and return the messages they complete.

        Raises:
            FrameError: no marker within MAX_NOISE bytes, lengths over the limits, a header that is no JSON
                object, or a kind that no agent says.
        """
        self._buffer += data
        if not self.started and not self._find_marker():
            return []
        messages: list[Message] = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages

    @property
    def received(self) -> int:
        """How many bytes have come behind the agent's first frame."""
        return self._frames_size + len(self._buffer) - self._hello_size

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

    def _next(self) -> Message | None:
        if len(self._buffer) < _PREFIX.size:
            return None
        header_size, body_size = _PREFIX.unpack_from(self._buffer)
        if header_size > MAX_HEADER or body_size > MAX_BODY:
            raise FrameError(
                f"a frame says {header_size} + {body_size} bytes; something else writes to the stream"
            )
        body_at = _PREFIX.size + header_size
        end = body_at + body_size
        if len(self._buffer) < end:
            return None
        header, body = bytes(self._buffer[_PREFIX.size : body_at]), bytes(self._buffer[body_at:end])
        del self._buffer[:end]
        self._frames_size += end
        self._hello_size = self._hello_size or end
        return _message(header, body)


def _message(header: bytes, body: bytes) -> Message:
    try:
        fields = checked_json.as_object(header)
    except ValueError as error:
        raise FrameError(f"a header is no JSON: {error}") from error
    kind = fields.pop("kind", None)
    if not isinstance(kind, str) or kind not in AGENT_KINDS:
        raise FrameError(f"no agent says {kind!r:.80}")
    return Message(kind, fields, body)
