# SPDX-License-Identifier: Apache-2.0
"""Packs a message into one packet of a local socket; arrays in shared memory are sent as references."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import WireError
from paddle.pserver.wire.codec import encode, parse
from paddle.pserver.wire.message import Frame, Message, Section
from paddle.pserver.wire.shared_memory import Floats

MAX_PACKET = 1 << 17
FAR = (1 << 32) - 1
_LENGTH = struct.Struct("<I")
_PLACE = struct.Struct("<BQQ")
_FAR = _LENGTH.pack(FAR)


def lies_in(memory: Floats, array: npt.NDArray[Any]) -> bool:
    """Return whether a non-empty array is in shared memory; an array is never partly in it."""
    return np.may_share_memory(memory, array)


def pack(message: Message, shared: Sequence[Floats] = ()) -> bytes:
    """Return a message as one packet. A packet of more than `MAX_PACKET` bytes cannot be sent.

    Args:
        shared: the sender's arrays that the receiver has mapped.
    """
    return pack_placed(message, [_place(section.array, shared) for section in message.sections])


def pack_placed(message: Message, places: Sequence[bytes]) -> bytes:
    """Pack a message whose arrays have the given `places`; see `pack` and `place_of`.

    An array with an empty place is sent in the packet.
    """
    if any(places):
        pairs = zip(message.sections, places, strict=True)
        # Data that is not sent needs no checksum.
        sections = [each if not at else Section(each.name, each.array, 0) for each, at in pairs]
        message = Message(*message[:-1], tuple(sections))
    parts: list[Frame] = []
    for frame, at in zip(encode(message), [b"", *places], strict=True):
        parts += (_FAR, at) if at else (_LENGTH.pack(len(frame)), frame)
    return b"".join(parts)


def place_of(number: int, offset: int, nbytes: int) -> bytes:
    """Return the frame that refers to bytes in the sender's shared array `number`."""
    return _PLACE.pack(number, offset, nbytes)


def _place(array: npt.NDArray[Any], shared: Sequence[Floats]) -> bytes:
    for number, memory in enumerate(shared):
        if lies_in(memory, array):
            return place_of(number, address_of(array) - address_of(memory), array.nbytes)
    return b""


def address_of(array: npt.NDArray[Any]) -> int:
    """Return the address of an array's first byte."""
    address: int = array.__array_interface__["data"][0]  # `ctypes.data` takes twice as long
    return address


def unpack(packet: bytes, mapped: Sequence[Floats] = ()) -> Message:
    """Return the message in a packet. Checksums are not verified, because transfers within a machine are reliable.

    Args:
        mapped: the sender's arrays, in the same order as in `pack`.

    Raises:
        WireError: the packet is truncated, is not a message, or refers to memory that is not shared.
    """
    frames: list[Frame] = []
    start = _LENGTH.size
    while start <= len(packet):
        length = _LENGTH.unpack_from(packet, start - _LENGTH.size)[0]
        stop = start + (_PLACE.size if length == FAR else length)
        if stop > len(packet):
            raise WireError("a packet is truncated")
        frames.append(_seen(packet[start:stop], mapped) if length == FAR else packet[start:stop])
        start = stop + _LENGTH.size
    return parse(frames or [b""])


def _seen(place: bytes, mapped: Sequence[Floats]) -> memoryview:
    number, offset, count = _PLACE.unpack(place)
    if number >= len(mapped) or offset + count > mapped[number].nbytes:
        raise WireError(
            f"a packet refers to bytes {offset} to {offset + count} of shared memory {number}, which do not exist"
        )
    whole: memoryview = mapped[number].data.cast("B")
    return whole[offset : offset + count]
