# SPDX-License-Identifier: Apache-2.0
"""The codec of the messages that two nodes exchange over TLS. Performs no I/O.

The receiving node requests files, each from a byte offset: `!I length | JSON [[digest, offset], ...]`. The sending node
answers with messages, `!BI kind, length | bytes`: the files' bytes, one file after another in the order requested
(DATA, split anywhere), MISSING (this node will not send the current file), AGAIN (the current file restarts at byte 0),
WAIT (nothing yet, but alive).
"""

from __future__ import annotations

import json
import struct
from typing import List, Tuple

from paddle_node.contract.records import RecordError, read_text
from paddle_node.contract.to_agent import Wants

DATA, MISSING, AGAIN, WAIT = 1, 2, 3, 4
CHUNK = 1 << 18  # bytes in one DATA, at most
WANT_LIMIT = 1 << 20

WORD = struct.Struct("!BI")
_LENGTH = struct.Struct("!I")

Want = Tuple[str, int]


class WireError(Exception):
    """Raised when a peer sent a malformed message."""


def reply(kind: int, body: bytes = b"") -> bytes:
    """Encode a message from the sending node; its kind is DATA, MISSING, AGAIN or WAIT."""
    return WORD.pack(kind, len(body)) + body


def wants(items: List[Want]) -> bytes:
    """Encode one request for files: a length, and a JSON list of (digest, offset)."""
    body = json.dumps(items, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


class WantReader:
    """An incremental parser of the requests for files that another node sends."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: memoryview) -> List[Want]:
        """Parse further bytes, and return the requests that they complete.

        Raises:
            WireError: the bytes are not a valid request.
        """
        self._buffer += data
        found: List[Want] = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > WANT_LIMIT:
                raise WireError("the list of requested files is malformed (%d bytes)" % size)
            end = _LENGTH.size + size
            if len(self._buffer) < end:
                break
            try:
                found += read_text(
                    Wants, bytes(self._buffer[_LENGTH.size : end]), "wants", "another node"
                ).wants
            except RecordError as error:
                raise WireError(str(error)) from None
            del self._buffer[:end]
        return found


class MessageReader:
    """An incremental parser of a sending node's messages; the bytes of DATA are passed on as they arrive."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # bytes of a DATA still to be received

    def feed(self, view: memoryview) -> List[Tuple[int, memoryview]]:
        """Parse further bytes, and return the messages that they complete as (kind, bytes), and parts of DATA.

        Raises:
            WireError: the bytes are not valid messages.
        """
        found: List[Tuple[int, memoryview]] = []
        while view:
            if self._left:
                piece, view = view[: self._left], view[self._left :]
                self._left -= len(piece)
                found.append((DATA, piece))
                continue
            need = WORD.size - len(self._head)
            self._head += bytes(view[:need])
            view = view[need:]
            if len(self._head) < WORD.size:
                break
            kind, size = WORD.unpack(self._head)
            self._head = b""
            if kind not in (DATA, MISSING, AGAIN, WAIT) or size > CHUNK or (size and kind != DATA):
                raise WireError("unexpected message of kind %d with %d bytes" % (kind, size))
            if kind == DATA:
                self._left = size
            else:
                found.append((kind, memoryview(b"")))
        return found
