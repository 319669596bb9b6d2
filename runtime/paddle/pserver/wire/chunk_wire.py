# SPDX-License-Identifier: Apache-2.0
"""The commonest messages, those with one (n,) float32 without a name, put into bytes and read at once.

`message.encode` and `message.decode` are the general form. Everything that the interpreter does between two large
arrays it does with cold caches, and of a small message it is most of the cost: here it does little.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import Frame, Message, Section, decode, encode
from paddle.pserver.wire.verbs import LAYOUTS, VERBS, Chunk, HeadLayout, Ok, PushPull, Record, Values, Verb

# What `message` draws, with one section, without a name, of one dimension:
#
#     magic 4s | version B | verb B | 1 H | trainer I | crc I | session Q | request Q | stamp Q | record |
#     name length 0 B | dtype B | 1 B | checksum Q | elements Q
_BEFORE, _BEHIND = struct.Struct("<4sBBHIIQQQ"), "BBBQQ"
_SECTION = struct.Struct("<" + _BEHIND)
_VERB_AT = 5
_CRC = struct.Struct("<I")
_CRC_AT = 12
_CRC_OF_NONE = bytes(4)
_FLOATS = np.dtype(np.float32)


class _Form(NamedTuple):
    """Headers of one kind of record: `head` is how they begin, `layout` all of it."""

    verb: Verb
    head: HeadLayout
    layout: struct.Struct


def _form(kind: type[Record]) -> _Form:
    verb = VERBS[kind]
    layout = struct.Struct(_BEFORE.format + LAYOUTS[verb][1] + _BEHIND)
    return _Form(verb, HeadLayout(verb, _BEFORE), layout)


_KINDS: tuple[type[Record], ...] = (Chunk, Values, PushPull, Ok)
_FORMS = {kind: _form(kind) for kind in _KINDS}
_BY_VERB: dict[int, _Form] = {form.verb: form for form in _FORMS.values()}

# What all have in common comes from the general form itself.
_EXAMPLE = encode(Message(Chunk(), sections=(Section("", np.zeros(1, np.float32)),)))[0]
_MAGIC, _VERSION, _, _COUNT = struct.unpack_from("<4sBBH", _EXAMPLE)
_NAME_BYTES, _CODE, _NDIM = _SECTION.unpack_from(_EXAMPLE, len(_EXAMPLE) - _SECTION.size)[:3]


def chunk_header(message: Message) -> bytes | None:
    """Return the header of a message as `encode` makes it, or None if it is not of this kind."""
    record, trainer, session, request, stamp, sections = message
    if len(sections) != 1 or (form := _FORMS.get(type(record))) is None:
        return None
    section = sections[0]
    array = section.array
    if section.name or array.dtype is not _FLOATS or array.ndim != 1 or not array.size:
        return None
    try:
        header = bytearray(
            form.layout.pack(
                *(_MAGIC, _VERSION, form.verb, _COUNT, trainer, 0, session, request, stamp, *record),
                *(_NAME_BYTES, _CODE, _NDIM, section.checksum, array.size),
            )
        )
    except struct.error:  # `encode` says why
        return None
    _CRC.pack_into(header, _CRC_AT, zlib.crc32(header))
    return bytes(header)


def read_message(frames: Sequence[Frame], found: Findings | None = None) -> Message:
    """Return a message in the shortest way that leads to it; see `decode` for the rest."""
    chunk = read_chunk(frames[0], frames[1], found) if len(frames) == 2 else None
    return decode(frames, found) if chunk is None else chunk


def read_chunk(header: Frame, frame: Frame, found: Findings | None = None) -> Message | None:
    """Return a message as `decode` reads it, or None if it is not of this kind, or damaged: `decode` tells.

    Args:
        header: frame 0.
        frame: the array's bytes.
        found: what `inspect` says of them, if they were looked at already.

    Raises:
        WireError: it is whole, with a record that it cannot have.
    """
    form = _BY_VERB.get(header[_VERB_AT]) if len(header) > _VERB_AT else None
    if form is None or len(header) != form.layout.size:
        return None
    magic, version, _, count, trainer, crc, session, request, stamp, *more = form.layout.unpack(header)
    *fields, name_bytes, code, ndim, checksum, size = more
    if (
        (magic, version, count) != (_MAGIC, _VERSION, _COUNT)
        or (name_bytes, code, ndim) != (_NAME_BYTES, _CODE, _NDIM)
        or 4 * size != len(frame)
        or not size
    ):
        return None
    bare = zlib.crc32(header[_CRC_AT + _CRC.size :], zlib.crc32(_CRC_OF_NONE, zlib.crc32(header[:_CRC_AT])))
    if crc != bare:
        return None
    if found is None:
        section = Section("", np.frombuffer(frame, _FLOATS))
        if section.checksum != checksum:
            return None
    else:
        if found.checksum != checksum:
            return None
        section = Section("", np.frombuffer(frame, _FLOATS), checksum)
        section.note(found)
    return Message(form.head.record(header, fields), trainer, session, request, stamp, (section,))
