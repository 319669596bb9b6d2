# SPDX-License-Identifier: Apache-2.0
"""What travels between trainer and server: one binary header frame, then one raw frame for each array.

    frame 0:  magic 4s | version B | verb B | number of sections H | trainer I | crc I |
              session Q | request Q | stamp Q | record, as `verbs` says | a section for each array
    frame 1, 2, ...: the bytes of an array each

    section: name length B | dtype B | ndim B | checksum Q | name, UTF-8 | dims Q each          (all little-endian)

`decode` trusts nothing: lengths, names, dtypes and sizes are checked before any array is made, and arrays
are views on the frames received. The crc covers the header, and with it the checksums of all arrays: they
tell damage, and frames of two messages put together, which encryption alone does not. Magic, version and crc
stay where they are in all versions, so that each side can tell another release by its first message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.wire.arithmetic import Findings, checksum_of, inspect, is_looked_at_once, is_small_finite
from paddle.pserver.wire.array_header import description, read_arrays
from paddle.pserver.wire.verbs import VERBS, Error, HeadLayout, Record, Verb

WIRE_VERSION = 5
MAX_FRAME_BYTES = 1 << 30
MAX_SECTIONS = 4096
MAX_HEADER_BYTES = 1 << 20
_MAGIC = b"PDPS"
_BEFORE = struct.Struct("<4sBBHIIQQQ")
_VERB_AT = 5
_CRC_AT = 12
_NO_CRC = bytes(4)
_CRC = struct.Struct("<I")
_FLOATS = np.dtype("<f4")
_LAYOUTS: dict[int, HeadLayout] = {verb: HeadLayout(verb, _BEFORE) for verb in Verb}
_PACKS = {layout.kind: (verb, layout.pack) for verb, layout in _LAYOUTS.items()}

Frame: TypeAlias = bytes | memoryview
_Record = TypeVar("_Record", bound=Record)


class DamagedError(WireError):
    """A message's checksum differs: it changed on the way, and sending it again may help.

    Attributes:
        message: what it says of itself, if only its arrays are damaged; their content means nothing.
    """

    def __init__(self, text: str, message: Message | None = None) -> None:
        super().__init__(text)
        self.message = message


class Section:
    """One named array of a message. Its checksum is computed once, however many peers get it."""

    __slots__ = ("_checksum", "_findings", "array", "name")

    def __init__(self, name: str, array: npt.NDArray[Any], checksum: int | None = None) -> None:
        """Name a C-contiguous array of a dtype in `array_header.DTYPES`; it must not change until it is sent.

        Args:
            checksum: of its bytes, if it is known.
        """
        self.name = name
        self.array = array
        self._checksum = checksum
        self._findings: Findings | None = None

    @classmethod
    def text(cls, name: str, text: str) -> Section:
        """Return a section that carries text."""
        return cls(name, np.frombuffer(text.encode("utf-8", "replace"), np.uint8))

    def as_text(self) -> str:
        """Return the text of a section made by `text`."""
        return bytes(self.array).decode("utf-8", "replace")

    @property
    def frame(self) -> Frame:
        """The array's bytes, not copied."""
        return self.array.data.cast("B") if self.array.size else b""

    @property
    def checksum(self) -> int:
        """What `Findings.checksum` says of the array's bytes."""
        if self._checksum is None:
            at_once = is_looked_at_once(self.array.nbytes) and self.array.dtype == _FLOATS
            self._checksum = self._look().checksum if at_once else checksum_of(self.frame)
        return self._checksum

    @property
    def is_finite(self) -> bool:
        """Whether an array of float32 holds neither NaN nor infinity."""
        array = self.array
        return self._look().is_finite if is_looked_at_once(array.nbytes) else is_small_finite(array)

    def note(self, found: Findings) -> None:
        """Take what `inspect` would say of the array's bytes."""
        self._findings = found

    def _look(self) -> Findings:
        if self._findings is None:
            self._findings = inspect(self.frame)
        return self._findings


class Message(NamedTuple):
    """One request or reply.

    Attributes:
        record: what it asks or answers; `verb` names it.
        trainer: rank of the trainer that asks.
        session: random number of the asking client; a restarted trainer has another.
        request: number of the request within the session, rising; a reply repeats it.
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
        """What kind of record it has."""
        return VERBS[type(self.record)]

    def expect(self, kind: type[_Record]) -> _Record:
        """Return the record, of that kind.

        Raises:
            WireError: it is of another.
        """
        if not isinstance(self.record, kind):
            raise WireError(f"expected a message {VERBS[kind].name}, got {self.verb.name}")
        return self.record

    def numbered(self, trainer: int, session: int, request: int, stamp: int) -> Message:
        """Return the same with the numbers that tell whose it is; `_replace` takes twice as long."""
        return Message(self.record, trainer, session, request, stamp, self.sections)

    def has_section(self, name: str) -> bool:
        """Return whether there is a section of that name."""
        return any(section.name == name for section in self.sections)

    def section(self, name: str) -> Section:
        """Return the section of that name.

        Raises:
            WireError: there is none.
        """
        for section in self.sections:
            if section.name == name:
                return section
        raise WireError(f"{self.verb.name} message without a section named {name!r}")


def error_message(text: str, *, is_strange: bool = False) -> Message:
    """Return the reply that refuses a request; `is_strange`: see `verbs.Error`."""
    return Message(Error(is_strange), sections=(Section.text("", text),))


def encode(message: Message) -> list[Frame]:
    """Return the frames of a message; array frames are views, not copies.

    Raises:
        WireError: a number is larger than those that travel.
    """
    record, trainer, session, request, stamp, sections = message
    verb, pack = _PACKS[type(record)]
    count = len(sections)
    try:
        header = bytearray(
            pack(_MAGIC, WIRE_VERSION, verb, count, trainer, 0, session, request, stamp, *record)
        )
    except struct.error as error:
        raise WireError(f"{record} cannot travel: {error}") from None
    frames: list[Frame] = [b""]
    for section in sections:
        header += description(section.name, section.array, section.checksum)
        frames.append(section.frame)
    _CRC.pack_into(header, _CRC_AT, zlib.crc32(header))
    frames[0] = bytes(header)
    return frames


def decode(frames: Sequence[Frame], found: Findings | None = None) -> Message:
    """Read the frames of one message.

    Args:
        frames: of the wire.
        found: what `inspect` says of the only array, if it was looked at already.

    Raises:
        DamagedError: they changed on the way, or are no message.
        WireError: they are whole, but no message of this wire version.
    """
    if not frames or not _BEFORE.size <= len(frames[0]) <= MAX_HEADER_BYTES:
        raise DamagedError(f"not a message: header of {len(frames[0]) if frames else 0} bytes")
    header = bytes(frames[0])
    if header[: len(_MAGIC)] != _MAGIC:
        raise DamagedError(f"not a message: expected {_MAGIC!r}, got {header[: len(_MAGIC)]!r}")
    bare = header[:_CRC_AT] + _NO_CRC + header[_CRC_AT + len(_NO_CRC) :]
    if _CRC.unpack_from(header, _CRC_AT)[0] != zlib.crc32(bare):
        raise DamagedError("a message was damaged on the way: the checksum of its header differs")
    message, checksums = _parse(header, frames)
    if found is not None and len(message.sections) == 1:
        message.sections[0].note(found)
    for section, checksum in zip(message.sections, checksums, strict=True):
        if section.checksum != checksum:
            raise DamagedError("a message was damaged on the way: its checksum differs", message)
    return message


def peek(header: bytes) -> Message:
    """Read the numbers of a header, and nothing else of it, trusting nothing that they say.

    Raises:
        WireError: it is too short, of an unknown verb, or with numbers that this cannot have.
    """
    layout = _layout(header)
    _, _, _, _, trainer, _, session, request, stamp, *fields = layout.unpack(header)
    return Message(layout.record(header, fields), trainer, session, request, stamp)


def parse(frames: Sequence[Frame]) -> Message:
    """Read frames of which no checksum is looked at, trusting nothing that they say.

    Raises:
        WireError: they are no message of this wire version.
    """
    return _parse(bytes(frames[0]), frames)[0]


def _parse(header: bytes, frames: Sequence[Frame]) -> tuple[Message, list[int]]:
    layout = _layout(header)
    _, _, _, count, trainer, _, session, request, stamp, *fields = layout.unpack(header)
    if count != len(frames) - 1 or count > MAX_SECTIONS:
        raise WireError(f"expected {count} array frames (at most {MAX_SECTIONS}), got {len(frames) - 1}")
    record = layout.record(header, fields)
    if not count and len(header) == layout.size:
        return Message(record, trainer, session, request, stamp), []
    found = read_arrays(header, layout.size, frames[1:], MAX_FRAME_BYTES)
    sections = tuple([Section(name, array) for name, array, _ in found])
    checksums = [checksum for _, _, checksum in found]
    return Message(record, trainer, session, request, stamp, sections), checksums


def _layout(header: bytes) -> HeadLayout:
    """Return how a header begins."""
    if len(header) < _BEFORE.size:
        raise WireError(f"a header of {len(header)} bytes")
    version, verb = header[len(_MAGIC)], header[_VERB_AT]
    if version != WIRE_VERSION:
        raise WireError(
            f"wire version: this side speaks {WIRE_VERSION}, the peer {version}; use one release everywhere"
        )
    layout = _LAYOUTS.get(verb)
    if layout is None:
        raise WireError(f"unknown verb {verb}")
    if len(header) < layout.size:
        raise WireError(f"a header of {len(header)} bytes, expected {layout.size} or more")
    return layout
