# SPDX-License-Identifier: Apache-2.0
"""The commonest large message, one (n,) float32 without a name, put into bytes and read at once.

`message.encode` and `message.decode` are the general form. Everything that the interpreter does between two large
arrays it does with cold caches: here it does little.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence

import numpy as np

from paddle.pserver.wire.arithmetic import Findings
from paddle.pserver.wire.message import Frame, Message, Section, decode, encode
from paddle.pserver.wire.verbs import VERBS, Chunk, Values

# What `message` draws, for records of one number (its number) and one section, without a name, of one dimension:
#
#     magic 4s | version B | verb B | 1 H | trainer I | crc I | session Q | request Q | stamp Q | number Q |
#     name length 0 B | dtype B | 1 B | checksum Q | elements Q
_HEADER = struct.Struct("<4sBBHIIQQQQBBBQQ")
_CRC = struct.Struct("<I")
_CRC_AT = 12
_NO_CRC = bytes(4)
_FLOATS = np.dtype(np.float32)
_KINDS: dict[int, type[Chunk | Values]] = {VERBS[kind]: kind for kind in (Chunk, Values)}

SIZE = _HEADER.size

# What all have in common comes from the general form itself.
_EXAMPLE = _HEADER.unpack(encode(Message(Chunk(), sections=(Section("", np.zeros(1, np.float32)),)))[0])
_MAGIC, _VERSION = _EXAMPLE[:2]
_COUNT, _NAME_BYTES, _CODE, _NDIM = _EXAMPLE[3], *_EXAMPLE[10:13]


def chunk_header(message: Message) -> bytes | None:
    """Return the header of a message as `encode` makes it, or None if it is not of this kind."""
    record, trainer, session, request, stamp, sections = message
    if len(sections) != 1 or not isinstance(record, Chunk | Values):
        return None
    section = sections[0]
    array = section.array
    if section.name or array.dtype is not _FLOATS or array.ndim != 1 or not array.size:
        return None
    header = bytearray(
        _HEADER.pack(
            *(
                _MAGIC,
                _VERSION,
                VERBS[type(record)],
                _COUNT,
                trainer,
                0,
                session,
                request,
                stamp,
                record.number,
            ),
            *(_NAME_BYTES, _CODE, _NDIM, section.checksum, array.size),
        )
    )
    _CRC.pack_into(header, _CRC_AT, zlib.crc32(header))
    return bytes(header)


def read_message(frames: Sequence[Frame], found: Findings | None = None) -> Message:
    """Return a message in the shortest way that leads to it; see `decode` for the rest."""
    chunk = read_chunk(frames[0], frames[1], found) if found is not None else None
    return decode(frames, found) if chunk is None else chunk


def read_chunk(header: bytes | memoryview, frame: bytes | memoryview, found: Findings) -> Message | None:
    """Return a message as `decode` reads it, or None if it is not of this kind, or damaged: `decode` tells.

    Args:
        header: frame 0.
        frame: the array's bytes.
        found: what `inspect` says of them.
    """
    if len(header) != SIZE:
        return None
    (magic, version, verb, count, trainer, crc, session, request, stamp, number, *rest) = _HEADER.unpack(
        header
    )
    name_bytes, code, ndim, checksum, size = rest
    bare = zlib.crc32(header[_CRC_AT + 4 :], zlib.crc32(_NO_CRC, zlib.crc32(header[:_CRC_AT])))
    if (
        (magic, version, count) != (_MAGIC, _VERSION, _COUNT)
        or (name_bytes, code, ndim, 4 * size) != (_NAME_BYTES, _CODE, _NDIM, len(frame))
        or (crc, checksum) != (bare, found.checksum)
        or verb not in _KINDS
    ):
        return None
    section = Section("", np.frombuffer(frame, _FLOATS), checksum)
    section.note(found)
    return Message(_KINDS[verb](number), trainer, session, request, stamp, (section,))
