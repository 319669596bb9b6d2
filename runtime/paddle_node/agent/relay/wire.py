# SPDX-License-Identifier: Apache-2.0
"""The messages between two nodes inside TLS. Sans-IO.

The asking node says which files it wants, from which byte on: `!I length | JSON [[digest, offset], ...]`. The giving
node answers with words, `!BI kind, length | bytes`: the files' bytes one after the other in the order asked (DATA, cut
anywhere), MISSING (the file that is due will not come from here), AGAIN (the file that is due begins anew at byte 0),
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
    """A peer sent a malformed message."""


def word(kind: int, body: bytes = b"") -> bytes:
    """One message of the sending node."""
    return WORD.pack(kind, len(body)) + body


def wants(items: List[Want]) -> bytes:
    """One list of the asking node."""
    body = json.dumps(items, separators=(",", ":")).encode()
    return _LENGTH.pack(len(body)) + body


class WantReader:
    """Parses the requests of a receiving node."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: memoryview) -> List[Want]:
        """Take bytes and return what they complete.

        Raises:
            WireError: they are no list of wants.
        """
        self._buffer += data
        found: List[Want] = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if size > WANT_LIMIT:
                raise WireError("a list of %d bytes" % size)
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


class WordReader:
    """Parses the messages of a sending node; the bytes of DATA are passed on as they arrive."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0  # bytes of a DATA that are still to come

    def feed(self, view: memoryview) -> List[Tuple[int, memoryview]]:
        """Take bytes and return the words, or parts of DATA, that they hold.

        Raises:
            WireError: they are no words.
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
                raise WireError("a message of kind %d with %d bytes" % (kind, size))
            if kind == DATA:
                self._left = size
            else:
                found.append((kind, memoryview(b"")))
        return found
