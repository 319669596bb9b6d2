# SPDX-License-Identifier: Apache-2.0
"""Snappy compression in its framing format, used for recordio chunks.

A stream is frames: uint8 type | uint24 length | content. Types: 0xff is the stream's identifier; 0x00 holds a masked
CRC-32C and a compressed block, 0x01 one that is stored as is, of at most 64 KiB of data each; 0x80 to 0xfe are skipped.
A block is a varint with its length, followed by elements: literals, and copies of bytes at most 4 GiB before.
"""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from paddle.errors import PaddleError
from paddle.protobuf import varint

BLOCK = 1 << 16
_IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
_COMPRESSED, _STORED, _FIRST_SKIPPED = 0x00, 0x01, 0x80
_LANES = 256
_U32 = struct.Struct("<I")


class SnappyError(PaddleError, ValueError):
    """Raised when data is damaged or is not in Snappy's format."""


def decompress(data: bytes, most: int) -> bytes:
    """Decompress a stream in the framing format.

    CRCs are not checked, because recordio has its own CRC over the whole stream.

    Args:
        data: the stream.
        most: limit of the decompressed size in bytes.

    Raises:
        SnappyError: the stream is damaged or too large.
    """
    out, at, size = [], 0, 0
    if not data.startswith(_IDENTIFIER):
        raise SnappyError("the stream does not begin with snappy's identifier")
    while at < len(data):
        if at + 4 > len(data):
            raise SnappyError(f"the stream ends inside a frame's header at byte {at}")
        kind, length = data[at], int.from_bytes(data[at + 1 : at + 4], "little")
        content = data[at + 4 : at + 4 + length]
        if len(content) < length:
            raise SnappyError(f"the frame at byte {at} needs {length} bytes, but only {len(content)} remain")
        if kind in (_COMPRESSED, _STORED):
            if length < 4:
                raise SnappyError(f"the frame at byte {at} has no checksum")
            block = content[4:] if kind == _STORED else decompress_block(content[4:], BLOCK)
            if len(block) > BLOCK:
                raise SnappyError(f"the frame at byte {at} holds {len(block)} bytes, more than {BLOCK}")
            size += len(block)
            if size > most:
                raise SnappyError(f"the stream holds more than {most} bytes")
            out.append(block)
        elif kind < _FIRST_SKIPPED:
            raise SnappyError(f"the frame at byte {at} has unknown type {kind:#04x}")
        at += 4 + length
    return b"".join(out)


def compress(data: bytes) -> bytes:
    """Compress data to a stream in the framing format."""
    out = [_IDENTIFIER]
    for start in range(0, len(data), BLOCK):
        block = data[start : start + BLOCK]
        packed = compress_block(block)
        kind = _COMPRESSED if len(packed) < len(block) - len(block) // 8 else _STORED
        content = packed if kind == _COMPRESSED else block
        out.append(_U32.pack((len(content) + 4) << 8 | kind))
        out.append(_U32.pack(_masked(crc32c(block))) + content)
    return b"".join(out)


def decompress_block(data: bytes, most: int) -> bytes:
    """Decompress a block of at most `most` bytes.

    Raises:
        SnappyError: the block is damaged or too large.
    """
    size, at = _length(data)
    if size > most:
        raise SnappyError(f"a block holds {size} bytes, more than {most}")
    out, end = bytearray(), len(data)
    while at < end:
        tag = data[at]
        at += 1
        kind = tag & 3
        if kind == 0:
            length = tag >> 2
            if length >= 60:
                extra = length - 59
                length = int.from_bytes(data[at : at + extra], "little")
                at += extra
            length += 1
            if at + length > end or len(out) + length > size:
                raise SnappyError(f"a literal of {length} bytes at byte {at} is longer than its block")
            out += data[at : at + length]
            at += length
            continue
        width = (0, 1, 2, 4)[kind]
        if at + width > end:
            raise SnappyError(f"the block ends inside an element at byte {at}")
        offset = int.from_bytes(data[at : at + width], "little")
        at += width
        if kind == 1:
            length, offset = 4 + (tag >> 2 & 7), offset | tag >> 5 << 8
        else:
            length = 1 + (tag >> 2)
        _copy(out, offset, length, size)
    if len(out) != size:
        raise SnappyError(f"a block declares {size} bytes, but has {len(out)}")
    return bytes(out)


def compress_block(data: bytes) -> bytes:
    """Compress a block of at most 64 KiB, greedily, with the last position of every four bytes."""
    out = bytearray(varint(len(data)))
    seen: dict[bytes, int] = {}
    at = start = 0
    misses, last = 32, len(data) - 4
    while at <= last:
        word = data[at : at + 4]
        found = seen.get(word)
        seen[word] = at
        if found is None:
            # Search less often after a long run without matches.
            at += misses >> 5
            misses += 1
            continue
        length = 4
        while at + length < len(data) and data[found + length] == data[at + length]:
            length += 1
        _put_literal(out, data[start:at])
        _put_copies(out, at - found, length)
        at += length
        start, misses = at, 32
    _put_literal(out, data[start:])
    return bytes(out)


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of data, computed in parallel lanes whose checksums are then combined."""
    rows = len(data) // _LANES
    crc = 0xFFFFFFFF
    if rows:
        lanes = np.frombuffer(data, np.uint8, rows * _LANES).reshape(_LANES, rows)
        states = np.zeros(_LANES, np.uint32)
        for column in np.ascontiguousarray(lanes.T):
            states = _TABLE[(states ^ column) & 0xFF] ^ states >> 8
        shift = _shift_by(rows)
        for state in states.tolist():
            crc = _apply(shift, crc) ^ state
    for byte in data[rows * _LANES :]:
        crc = int(_TABLE[(crc ^ byte) & 0xFF]) ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _copy(out: bytearray, offset: int, length: int, size: int) -> None:
    begin = len(out) - offset
    if offset == 0 or begin < 0 or len(out) + length > size:
        raise SnappyError(
            f"at byte {len(out)}, a copy with length {length} and offset {offset} is outside its block"
        )
    if offset >= length:
        out += out[begin : begin + length]
    else:
        pattern = bytes(out[begin:])
        out += (pattern * (length // offset + 1))[:length]


def _length(data: bytes) -> tuple[int, int]:
    value = 0
    for at, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << 7 * at
        if byte < 0x80:
            return value, at + 1
    raise SnappyError("the length of a block is missing or malformed")


def _put_literal(out: bytearray, data: bytes) -> None:
    if not data:
        return
    length = len(data) - 1
    if length < 60:
        out.append(length << 2)
    else:
        width = 1 if length < 256 else 2
        out.append(59 + width << 2)
        out += length.to_bytes(width, "little")
    out += data


def _put_copies(out: bytearray, offset: int, length: int) -> None:
    while length:
        part = min(length, 64)
        if 4 <= part <= 11 and offset < 2048:
            out += bytes((offset >> 8 << 5 | part - 4 << 2 | 1, offset & 0xFF))
        else:
            out.append(part - 1 << 2 | 2)
            out += offset.to_bytes(2, "little")
        length -= part


def _table() -> NDArray[np.uint32]:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, table >> 1 ^ np.uint32(0x82F63B78), table >> 1)
    return table


def _shift_by(count: int) -> list[int]:
    """Return each bit of a checksum after `count` further zero bytes, bit 0 first."""
    states = np.left_shift(np.uint32(1), np.arange(32, dtype=np.uint32))
    for _ in range(count):
        states = _TABLE[states & 0xFF] ^ states >> 8
    return [int(state) for state in states]


def _apply(shift: list[int], crc: int) -> int:
    result = 0
    for bit in range(32):
        if crc >> bit & 1:
            result ^= shift[bit]
    return result


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


_TABLE = _table()
