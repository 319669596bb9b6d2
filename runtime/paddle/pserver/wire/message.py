# SPDX-License-Identifier: Apache-2.0
"""The messages between trainer and server: a record of numbers and named arrays; `codec` encodes them as bytes.

A large slab is sent in chunks that fit into caches, so that the steps of their processing overlap.

A reader is not a trainer, and receives values in small parts. It addresses a server by a different stamp than trainers
do, so that a server can distinguish readers' requests from trainers'.
"""

from __future__ import annotations

import zlib
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from paddle.errors import PaddleError, WireError
from paddle.pserver.wire.arithmetic import SMALL_BYTES, Findings, inspect, is_small_finite
from paddle.pserver.wire.verbs import VERBS, Error, Record, Verb
from paddle_node.contract.classes import NamedTuple

WIRE_VERSION = 10
MAX_FRAME_BYTES = 1 << 30
MAX_SECTIONS = 4096
MAX_HEADER_BYTES = 1 << 20

CHUNK = 1 << 18
"""Elements per chunk; the last chunk of a slab is shorter. A slab of a single chunk is sent within its message."""

WINDOW = 4
"""The number of chunks that a trainer sends ahead of answers, which bounds a server's memory for each trainer."""

PART = 1 << 24
"""Elements per part of a slab that is set or pulled as a whole; the last part is shorter."""

READER = (1 << 32) - 1
"""`trainer` of a reader's messages."""

READ_PART = 1 << 18
"""Maximum number of elements that a reader gets in one answer, or one row: training continues between two parts."""

Frame: TypeAlias = bytes | memoryview
_Record = TypeVar("_Record", bound=Record)


class DamagedError(WireError):
    """Raised when the checksum of a message differs: it was damaged in transit, and sending it again may help.

    Attributes:
        message: the decoded message if only its arrays are damaged; their contents are undefined.
    """

    def __init__(self, text: str, message: Message | None = None) -> None:
        super().__init__(text)
        self.message = message


class Section:
    """A named array in a message. Its checksum is computed only once, even if several peers receive it."""

    __slots__ = ("_checksum", "_copy", "_findings", "array", "name")

    def __init__(
        self, name: str, array: npt.NDArray[Any], checksum: int | None = None, found: Findings | None = None
    ) -> None:
        """Name a C-contiguous array of a dtype in `codec.DTYPES`; it must not change until it is sent.

        Args:
            checksum: checksum of its bytes, if it is known.
            found: result of `inspect` for its bytes, if it is known.
        """
        self.name = name
        self.array = array
        self._checksum = checksum
        self._findings = found
        self._copy: bytes | None = None

    @classmethod
    def text(cls, name: str, text: str) -> Section:
        """Return a section whose array contains a text as UTF-8."""
        return cls(name, np.frombuffer(text.encode("utf-8", "replace"), np.uint8))

    def as_text(self) -> str:
        """Return the text in a section that `text` created."""
        return bytes(self.array).decode("utf-8", "replace")

    @property
    def frame(self) -> Frame:
        """The array's bytes, which are copied only if they are few."""
        if self._copy is None:
            if self.array.nbytes >= SMALL_BYTES:
                return self.array.data.cast("B")
            self._copy = self.array.tobytes()
        return self._copy

    @property
    def checksum(self) -> int:
        """The checksum of the array's bytes: a CRC if they are few, else `Findings.checksum`."""
        if self._checksum is None:
            is_small = self.array.nbytes < SMALL_BYTES
            self._checksum = zlib.crc32(self.frame) if is_small else self._inspect().checksum
        return self._checksum

    @property
    def is_finite(self) -> bool:
        """Return whether a float32 array contains neither NaN nor infinity."""
        is_small = self.array.nbytes < SMALL_BYTES
        return is_small_finite(self.array) if is_small else self._inspect().is_finite

    def _inspect(self) -> Findings:
        if self._findings is None:
            self._findings = inspect(self.frame)
        return self._findings


class Message(NamedTuple):
    """A request or a reply: a record, its arrays, and the numbers that identify its sender.

    Attributes:
        record: the content of the request or reply; `verb` names it.
        trainer: rank of the requesting trainer.
        session: random number of the requesting client; it changes when a trainer restarts.
        request: number of the request within the session, increasing; a reply repeats it.
        stamp: random number of the server process; 0 while the client does not know it.
    """

    record: Record
    trainer: int = 0
    session: int = 0
    request: int = 0
    stamp: int = 0
    sections: tuple[Section, ...] = ()

    @property
    def verb(self) -> Verb:
        """The type of the message's record."""
        return VERBS[type(self.record)]

    def expect(self, kind: type[_Record]) -> _Record:
        """Return the record, which must be of this type. Raises WireError if it has a different type."""
        if not isinstance(self.record, kind):
            raise WireError(f"expected a message {VERBS[kind].name}, got {self.verb.name}")
        return self.record

    def numbered(self, trainer: int, session: int, request: int, stamp: int) -> Message:
        """Return the message with the numbers that identify its sender; faster than `_replace`."""
        return tuple.__new__(Message, (self.record, trainer, session, request, stamp, self.sections))

    def find(self, name: str) -> Section | None:
        """Return the section with this name, or None."""
        for section in self.sections:
            if section.name == name:
                return section
        return None

    def section(self, name: str) -> Section:
        """Return the section with this name. Raises WireError if the section is missing."""
        found = self.find(name)
        if found is None:
            raise WireError(f"{self.verb.name} message without a section named {name!r}")
        return found


def error_message(text: str, *, is_non_finite: bool = False) -> Message:
    """Return the ERROR reply that refuses a request, with its reason; for `is_non_finite`, see `verbs.Error`."""
    return Message(Error(is_non_finite), sections=(Section.text("", text),))


REFUSALS = (PaddleError, MemoryError)
"""What a request can raise; the peer gets `refusal`."""


def refusal(error: BaseException) -> Message:
    """Return the ERROR reply to a request that raised one of the exceptions in `REFUSALS`."""
    if not isinstance(error, MemoryError):
        return error_message(str(error))
    return error_message(
        f"this pserver has no memory for the request: {error or 'an allocation failed'}. Use more servers, or limit "
        "growing tables with GrowingTable(memory=...)"
    )


def chunk_count(size: int) -> int:
    """Return the number of chunks that a slab of `size` elements is sent in."""
    return -(-size // CHUNK)


def chunk_span(index: int, size: int) -> slice:
    """Return the slice of a slab of `size` elements that chunk `index` covers."""
    return slice(index * CHUNK, min((index + 1) * CHUNK, size))


def part_span(start: int, size: int) -> slice:
    """Return the slice of a slab of `size` elements that the part starting at `start` covers."""
    return slice(start, min(start + PART, size))


def reader_stamp(stamp: int) -> int:
    """Return the stamp by which readers address the server that trainers know by `stamp`."""
    return stamp ^ (1 << 64) - 1


def rows_at_once(width: int) -> int:
    """Return how many rows of `width` elements a reader can request from one server at a time."""
    return max(READ_PART // max(width, 1), 1)


def peer_name(trainer: int) -> str:
    """Return the name of a message's sender for logs, given its `trainer` number."""
    return "a reader" if trainer == READER else f"trainer {trainer}"
