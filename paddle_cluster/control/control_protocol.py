# SPDX-License-Identifier: Apache-2.0
"""Frames between a job's launcher and whoever looks at the job on the same machine. Sans-IO.

A frame is `!I` length and one line of JSON: an object with "kind". The launcher speaks first: `welcome` with its
version; a client of another version is told so and leaves.

client -> launcher: attach {lines} | look {} | stacks {procs} | stop {signal, force, by}
launcher -> client: welcome {version, job_id, launcher, lease_s} | shown {event, ...: screen_events} | missed {count}
| status {status} | stacks {process, text} | beat {} | refused {reason} | end {exit_code, left, lines}
"""

from __future__ import annotations

import json
import struct
from typing import Any, NamedTuple

from paddle_node.contract import checked_json

VERSION = 1
MAX_FRAME = 8 << 20
MAX_REQUEST = 64 << 10
MAX_STACKS = 32  # processes of one request for stacks: each may answer with 32 kB

_LENGTH = struct.Struct("!I")


class ControlError(ValueError):
    """Bytes that the protocol does not allow."""


class Frame(NamedTuple):
    """One message."""

    kind: str
    fields: dict[str, Any]


def encode(kind: str, **fields: Any) -> bytes:
    """One frame as bytes."""
    line = json.dumps({**fields, "kind": kind}, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_FRAME:
        raise ControlError(f"a frame {kind!r} of {len(line)} bytes is too long")
    return _LENGTH.pack(len(line)) + line


class ControlDecoder:
    """Turns bytes into frames, however they are cut.

    Args:
        limit: bytes that a frame may have.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Take the next bytes and return the frames they complete.

        Raises:
            ControlError: a length over the limit, or a line that is no frame.
        """
        self._buffer += data
        frames = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > self._limit:
                raise ControlError(f"a frame of {size} bytes; expected at most {self._limit}")
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                break
            frames.append(_frame(bytes(self._buffer[_LENGTH.size : end])))
            del self._buffer[:end]
        return frames


def _frame(line: bytes) -> Frame:
    try:
        fields = checked_json.as_object(line)
    except ValueError as error:
        raise ControlError(f"a frame is no JSON: {error}") from error
    kind = fields.pop("kind", None)
    if not isinstance(kind, str):
        raise ControlError("a frame has no kind")
    return Frame(kind, fields)
