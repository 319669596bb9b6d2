# SPDX-License-Identifier: Apache-2.0
"""A codec for the part of protocol buffers' wire format that parameter and program files use.

Lengths are never trusted: a field that does not end inside the message raises ModelFileError with its position.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from paddle.errors import ModelFileError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_DOUBLE = struct.Struct("<d")
_MASK64 = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Encode an integer as a varint (base 128); negative values are encoded as 64-bit two's complement."""
    value &= _MASK64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def varint_field(number: int, value: int) -> bytes:
    """Encode an integer, bool or enum field (wire type 0): its tag and value."""
    return varint(number << 3 | VARINT) + varint(value)


def double_field(number: int, value: float) -> bytes:
    """Encode a double field (wire type 1): its tag and value."""
    return varint(number << 3 | FIXED64) + _DOUBLE.pack(value)


def bytes_field(number: int, value: bytes) -> bytes:
    """Encode a string, bytes or message field (wire type 2): its tag, length and value."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def fields(message: bytes) -> Iterator[tuple[int, int | float | bytes]]:
    """Decode a message: yield its fields in file order as (number, value); fixed32 values are raw bytes.

    Raises:
        ModelFileError: the message is cut short or has an unknown wire type.
    """
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _read_varint(message, at)
            yield number, value
        elif wire == FIXED64:
            raw, at = _take(message, at, 8)
            yield number, float(_DOUBLE.unpack(raw)[0])
        elif wire == BYTES:
            length, at = _read_varint(message, at)
            raw, at = _take(message, at, length)
            yield number, raw
        elif wire == FIXED32:
            raw, at = _take(message, at, 4)
            yield number, raw
        else:
            raise ModelFileError(f"field {number} at byte {at} has the unsupported wire type {wire}")


def text(raw: int | float | bytes, what: str) -> str:
    """Decode the value of a string field as UTF-8; `what` names the field in messages.

    Raises:
        ModelFileError: the field is not UTF-8.
    """
    if not isinstance(raw, bytes):
        raise ModelFileError(f"the description of {what} is damaged: expected a string, got a number")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelFileError(f"the text of {what} is not UTF-8: {raw[:40]!r}") from error


def varints(packed: bytes) -> Iterator[int]:
    """Yield the integers of a packed repeated field. Raises ModelFileError if it is cut short."""
    at = 0
    while at < len(packed):
        value, at = _read_varint(packed, at)
        yield value


def signed(value: int) -> int:
    """Convert the unsigned value of a varint to a signed 64-bit integer."""
    return value - (1 << 64) if value >> 63 else value


def _take(message: bytes, at: int, length: int) -> tuple[bytes, int]:
    if length > len(message) - at:
        raise ModelFileError(
            f"a field at byte {at} needs {length} bytes, but only {len(message) - at} remain"
        )
    return message[at : at + length], at + length


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ModelFileError(f"the message ends in the middle of a number at byte {at}")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, at
    raise ModelFileError(f"a number before byte {at} is longer than ten bytes")
