# SPDX-License-Identifier: Apache-2.0
"""Encodes messages as bytes: one binary header frame, then one raw frame per array.

    frame 0:  magic 4s | version B | verb B | number of sections H | trainer I | crc I |
              session Q | request Q | stamp Q | record, as `verbs` says | a section for each array
    frame 1, 2, ...: the bytes of an array each

    section: name length B | dtype B | ndim B | checksum Q | name, UTF-8 | dims Q each          (all little-endian)

Decoding validates everything: lengths, names, dtypes and sizes are checked before any array is created, and arrays are
views of the received frames. The crc covers the header, and thus the checksums of all arrays; it detects damage and
mixed-up frames of different messages, which encryption alone does not. Magic, version and crc have the same positions
in all versions, so that each side recognizes a different release by its first message.

The most common messages, those with one unnamed (n,) float32 array, are encoded to the same bytes by shorter code;
`encode_any` and `decode_any` are the general form. Between two large arrays, the interpreter runs with cold caches, and
it takes most of the time of a small message.
"""

from __future__ import annotations

import functools
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.wire.arithmetic import SMALL_BYTES, Findings, inspect
from paddle.pserver.wire.message import (
    MAX_FRAME_BYTES,
    MAX_HEADER_BYTES,
    MAX_SECTIONS,
    WIRE_VERSION,
    DamagedError,
    Frame,
    Message,
    Section,
)
from paddle.pserver.wire.verbs import LAYOUTS, VERBS, Chunk, Ok, PushPull, Record, Values, Verb
from paddle_node.contract.classes import NamedTuple

DTYPES = tuple(np.dtype(code) for code in ("<f4", "<i8", "u1", "<f8", "<i4", "<f2", "?", "<u2"))

_MAGIC = b"PDPS"
_BEFORE = struct.Struct("<4sBBHIIQQQ")
_BEFORE_CRC = struct.Struct("<4sBBHI")
_VERB_AT = 5
_CRC_AT, _CRC, _NO_CRC = 12, struct.Struct("<I"), bytes(4)
_SECTION = struct.Struct("<BBBQ")
_SHAPES = [struct.Struct(f"<{ndim}Q") for ndim in range(9)]  # by number of dimensions
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_FLOATS = DTYPES[0]
_AFTER_CRC = _CRC_AT + _CRC.size
_ONE_FLOATS = bytes((0, _CODES[_FLOATS], 1))  # name length, dtype, ndim
_MANY = 256  # trainers and verbs whose beginnings of headers are remembered


class _Layout:
    """The layout of a header's beginning, for one verb.

    Attributes:
        kind: type of the record.
        size: size of the record in bytes.
        pack, unpack: the header's own fields, then those of the record.
        short: the header of a message with one (n,) float32 without a name, beginning after the CRC.
        short_size: size in bytes of that whole header.
    """

    __slots__ = ("_flags", "_signed", "kind", "pack", "short", "short_size", "size", "unpack", "verb")

    def __init__(self, verb: Verb) -> None:
        self.kind, fields = LAYOUTS[verb]
        self.verb = verb
        whole = struct.Struct(_BEFORE.format + fields)
        self.pack, self.unpack, self.size = whole.pack, whole.unpack_from, whole.size
        self.short = struct.Struct(f"<QQQ{fields}{len(_ONE_FLOATS)}sQQ")
        self.short_size = _AFTER_CRC + self.short.size
        at = [_BEFORE.size + struct.calcsize("<" + fields[:number]) for number in range(len(fields))]
        self._flags = [place for place, code in zip(at, fields, strict=True) if code == "?"]
        self._signed = [number for number, code in enumerate(fields) if code == "q"]

    def record(self, header: bytes | memoryview, fields: Sequence[int]) -> Record:
        """Return the record of a header, whose fields were unpacked.

        Raises:
            WireError: a field has an invalid value.
        """
        for place in self._flags:
            if header[place] > 1:
                raise WireError(f"{self.verb.name}: expected a flag of 0 or 1, got {header[place]}")
        for number in self._signed:
            if fields[number] < -1:
                raise WireError(f"{self.verb.name}: expected a number of at least -1, got {fields[number]}")
        # Like `_make`, but without its check of the number of fields, which the layout decides: every message pays.
        return tuple.__new__(self.kind, fields)


_LAYOUTS: dict[int, _Layout] = {verb: _Layout(verb) for verb in Verb}
_SHORT: dict[type, _Layout] = {kind: _LAYOUTS[VERBS[kind]] for kind in (Chunk, Values, PushPull, Ok)}
_PARTS = (Verb.CHUNK, Verb.VALUES)


def encode(message: Message) -> list[Frame]:
    """Encode a message as frames; array frames are views, not copies.

    Raises:
        WireError: a number does not fit in its field.
    """
    header = encode_short(message)
    return encode_any(message) if header is None else [header, message.sections[0].frame]


def encode_short(message: Message) -> bytes | None:
    """Encode frame 0 of a message as `encode_any` does; return None if the short form does not apply."""
    record, trainer, session, request, stamp, sections = message
    if len(sections) != 1 or (layout := _SHORT.get(type(record))) is None:
        return None
    section = sections[0]
    array = section.array
    if section.name or array.dtype is not _FLOATS or array.ndim != 1 or not array.size:
        return None
    try:
        before, crc = _short_before(layout.verb, trainer)
        after = layout.short.pack(session, request, stamp, *record, _ONE_FLOATS, section.checksum, array.size)
    except struct.error:  # `encode_any` reports why
        return None
    return b"".join((before, _CRC.pack(zlib.crc32(after, crc)), after))


@functools.lru_cache(_MANY)
def _short_before(verb: Verb, trainer: int) -> tuple[bytes, int]:
    """Return the bytes of a short header before its CRC, and the CRC up to and including its own field."""
    before = _BEFORE_CRC.pack(_MAGIC, WIRE_VERSION, verb, 1, trainer)
    return before, zlib.crc32(before + _NO_CRC)


def encode_any(message: Message) -> list[Frame]:
    """Return the frames of a message of any type: the header, and one frame per array.

    Raises:
        WireError: a number does not fit in its field.
    """
    record, trainer, session, request, stamp, sections = message
    verb = VERBS[type(record)]
    before = (_MAGIC, WIRE_VERSION, verb, len(sections), trainer, 0, session, request, stamp)
    try:
        header = bytearray(_LAYOUTS[verb].pack(*before, *record))
    except struct.error as error:
        raise WireError(f"cannot encode {record}: {error}") from None
    frames: list[Frame] = [b""]
    for section in sections:
        name, array = section.name.encode(), section.array
        header += _SECTION.pack(len(name), _CODES[array.dtype], array.ndim, section.checksum)
        header += name + _SHAPES[array.ndim].pack(*array.shape)
        frames.append(section.frame)
    _CRC.pack_into(header, _CRC_AT, zlib.crc32(header))
    frames[0] = bytes(header)
    return frames


def decode(frames: Sequence[Frame], found: Findings | None = None) -> Message:
    """Decode the frames of one message, and verify their checksums.

    Args:
        frames: the frames received.
        found: the result of `inspect` for the only array, if it has already been called.

    Raises:
        DamagedError: the frames changed in transit, or are not a message.
        WireError: the frames are undamaged, but not a message of this wire version.
    """
    message = decode_short(frames[0], frames[1], found) if len(frames) == 2 else None
    return decode_any(frames, found) if message is None else message


def decode_short(header: Frame, frame: Frame, found: Findings | None = None) -> Message | None:
    """Decode a message in the short form; return None if that does not apply or the message is damaged.

    Raises:
        WireError: the message is undamaged, but its record is invalid.
    """
    layout, trainer, crc = _read_short_before(bytes(header[:_CRC_AT]))
    if layout is None or len(header) != layout.short_size:
        return None
    session, request, stamp, *fields, kind, checksum, size = layout.short.unpack_from(header, _AFTER_CRC)
    if kind != _ONE_FLOATS or 4 * size != len(frame) or not size:
        return None
    if header[_CRC_AT:_AFTER_CRC] != _CRC.pack(zlib.crc32(header[_AFTER_CRC:], crc)):
        return None
    if found is None and len(frame) >= SMALL_BYTES:
        found = inspect(frame)
    if checksum != (zlib.crc32(frame) if found is None else found.checksum):
        return None
    section = Section("", np.frombuffer(frame, _FLOATS), checksum, found)
    record = layout.record(header, fields)
    return tuple.__new__(Message, (record, trainer, session, request, stamp, (section,)))


@functools.lru_cache(_MANY)
def _read_short_before(before: bytes) -> tuple[_Layout | None, int, int]:
    """Return the layout of a short header, its trainer, and the CRC up to and including its own field.

    The layout is None if a header that begins with these bytes is not in the short form.
    """
    for layout in _SHORT.values() if len(before) == _CRC_AT else ():
        trainer = _BEFORE_CRC.unpack(before)[-1]
        if _short_before(layout.verb, trainer)[0] == before:
            return layout, trainer, zlib.crc32(before + _NO_CRC)
    return None, 0, 0


def decode_any(frames: Sequence[Frame], found: Findings | None = None) -> Message:
    """Decode the frames of a message of any type; see `decode` for arguments and errors."""
    if not frames or not _BEFORE.size <= len(frames[0]) <= MAX_HEADER_BYTES:
        raise DamagedError(f"not a message: header of {len(frames[0]) if frames else 0} bytes")
    header = bytes(frames[0])
    if header[: len(_MAGIC)] != _MAGIC:
        raise DamagedError(f"not a message: expected {_MAGIC!r}, got {header[: len(_MAGIC)]!r}")
    if _CRC.unpack_from(header, _CRC_AT)[0] != _crc_of(header):
        raise DamagedError("a message was damaged in transit: the checksum of its header differs")
    message, checksums = _parse(header, frames, found)
    for section, checksum in zip(message.sections, checksums, strict=True):
        if section.checksum != checksum:
            raise DamagedError("a message was damaged in transit: its checksum differs", message)
    return message


def peek(header: bytes) -> Message:
    """Decode only the fixed fields of a header; their values are not verified.

    Raises:
        WireError: the header is too short, or has an unknown verb.
    """
    layout = _layout(header)
    _, _, _, _, trainer, _, session, request, stamp, *fields = layout.unpack(header)
    return tuple.__new__(Message, (tuple.__new__(layout.kind, fields), trainer, session, request, stamp, ()))


def is_part(header: Frame) -> bool:
    """Return whether a header, which is not verified, belongs to one of several messages that follow each other."""
    return len(header) > _VERB_AT and header[_VERB_AT] in _PARTS


def parse(frames: Sequence[Frame]) -> Message:
    """Decode frames without verifying checksums; their contents are not trusted.

    Raises:
        WireError: the frames are not a message of this wire version.
    """
    return _parse(bytes(frames[0]), frames)[0]


def _parse(
    header: bytes, frames: Sequence[Frame], of_only: Findings | None = None
) -> tuple[Message, list[int]]:
    layout = _layout(header)
    _, _, _, count, trainer, _, session, request, stamp, *fields = layout.unpack(header)
    if count != len(frames) - 1 or count > MAX_SECTIONS:
        raise WireError(f"expected {count} array frames (at most {MAX_SECTIONS}), got {len(frames) - 1}")
    record = layout.record(header, fields)
    if not count and len(header) == layout.size:
        return Message(record, trainer, session, request, stamp), []
    found = _arrays(header, layout.size, frames[1:])
    of_each = of_only if count == 1 else None
    sections = tuple([Section(name, array, None, of_each) for name, array, _ in found])
    return Message(record, trainer, session, request, stamp, sections), [each.checksum for each in found]


def _crc_of(header: Frame) -> int:
    """Return the CRC of a header, whose CRC field counts as zeros."""
    return zlib.crc32(b"".join((header[:_CRC_AT], _NO_CRC, header[_CRC_AT + _CRC.size :])))


def _layout(header: bytes) -> _Layout:
    """Return the layout of a header's beginning."""
    if len(header) < _BEFORE.size:
        raise WireError(f"expected a header of at least {_BEFORE.size} bytes, got {len(header)}")
    version, verb = header[len(_MAGIC)], header[_VERB_AT]
    if version != WIRE_VERSION:
        raise WireError(
            f"wire version: this side uses {WIRE_VERSION}, but the peer uses {version}; use the same release everywhere"
        )
    layout = _LAYOUTS.get(verb)
    if layout is None:
        raise WireError(f"unknown verb {verb}")
    if len(header) < layout.size:
        raise WireError(f"expected a header of at least {layout.size} bytes, got {len(header)}")
    return layout


class _Described(NamedTuple):
    name: str
    array: npt.NDArray[Any]
    checksum: int


def _arrays(header: bytes, at: int, frames: Iterable[Frame]) -> list[_Described]:
    """Return a header's arrays with their descriptions; the first one's section is at `at`."""
    found = []
    for frame in frames:
        try:
            name_bytes, code, ndim, checksum = _SECTION.unpack_from(header, at)
            at += _SECTION.size
            name = header[at : at + name_bytes].decode()
            at += name_bytes
            if ndim >= len(_SHAPES) or code >= len(DTYPES):
                raise WireError(
                    f"section {name!r}: expected a dtype code below {len(DTYPES)} and fewer than {len(_SHAPES)} "
                    f"dimensions, got {code} and {ndim}"
                )
            shape = _SHAPES[ndim].unpack_from(header, at)
            at += 8 * ndim
        except (struct.error, UnicodeDecodeError) as error:
            raise WireError(f"a section's description is damaged: {error}") from None
        dtype = DTYPES[code]
        expected = dtype.itemsize
        for dim in shape:
            expected *= dim
        if expected != len(frame) or expected > MAX_FRAME_BYTES:
            raise WireError(
                f"section {name!r}: {shape} {dtype} needs {expected} bytes, but the frame has {len(frame)}"
            )
        try:
            array = np.frombuffer(frame, dtype)
            found.append(_Described(name, array if ndim == 1 else array.reshape(shape), checksum))
        except ValueError as error:  # no bytes, yet a dimension beyond every limit
            raise WireError(f"section {name!r}: {shape}: {error}") from None
    if at != len(header):
        raise WireError(f"header: expected {at} bytes, got {len(header)}")
    return found
