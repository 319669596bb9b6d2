# SPDX-License-Identifier: Apache-2.0
"""One request in a journal: a head that is written last, a description, the arrays.

    head: magic "PDJ2" | crc of the rest of the head and of the description I | sequence number Q |
          bytes of the description I | bytes of the arrays Q                       (little-endian)

A journal outlives its process, not its machine: a request is whole if its head is, since memory that was
written stays as it was written.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from typing import NamedTuple

import numpy as np

from paddle.pserver.wire.message import Frame, Message, Section
from paddle.pserver.wire.verbs import LAYOUTS, Verb

HEAD = struct.Struct("<4sIQIQ")
_MAGIC = b"PDJ2"
_CHECKED = struct.Struct("<QIQ")


class Head(NamedTuple):
    """What the head of a record says."""

    crc: int
    sequence: int
    described: int
    nbytes: int


def encode(sequence: int, message: Message) -> tuple[bytes, list[Frame]]:
    """Return the head, and the frames that come after it and are written before it."""
    m = message
    description = json.dumps(
        [
            [m.verb, m.record, m.trainer, m.session, m.request, m.stamp],
            [[section.name, section.array.dtype.str, section.array.shape] for section in m.sections],
        ]
    ).encode()
    nbytes = sum(section.array.nbytes for section in m.sections)
    checked = _CHECKED.pack(sequence, len(description), nbytes)
    crc = zlib.crc32(description, zlib.crc32(checked))
    head = HEAD.pack(_MAGIC, crc, sequence, len(description), nbytes)
    return head, [description, *(section.frame for section in m.sections if section.array.size)]


def read_head(data: bytes) -> Head | None:
    """Return what a head says; None if there is none."""
    if len(data) < HEAD.size:
        return None
    magic, *rest = HEAD.unpack_from(data)
    return Head(*rest) if magic == _MAGIC else None


def decode(head: Head, description: bytes, data: bytes) -> Message | None:
    """Return the request of a record; None if it is not whole."""
    checked = _CHECKED.pack(head.sequence, head.described, head.nbytes)
    if zlib.crc32(description, zlib.crc32(checked)) != head.crc or len(data) != head.nbytes:
        return None
    numbers, described = json.loads(description)
    sections, at = [], 0
    for name, code, shape in described:
        dtype = np.dtype(code)
        nbytes = dtype.itemsize * math.prod(shape)
        array = np.frombuffer(data[at : at + nbytes], dtype).reshape(shape)
        sections.append(Section(name, array))
        at += nbytes
    verb, fields, trainer, session, request, stamp = numbers
    record = LAYOUTS[Verb(verb)][0]._make(fields)
    return Message(record, trainer, session, request, stamp, tuple(sections))
