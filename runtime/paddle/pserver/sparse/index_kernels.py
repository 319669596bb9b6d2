# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over the buckets of an `Index`.

The first bits of an id's mixed number choose its piece, the next 32 its home line; from there on lines are searched
one after the other. A line is a cache line: 5 ids, compared at once, then their 5 numbers, then how many ids passed it,
since it was full, on the way from their home to a line behind. A search ends at a line that nobody passed, so that most
fetch one line and no more. An empty bucket holds an id that belongs to another piece, so that no id is reserved. Every
piece has an empty bucket, or insertions would not end. `directory` (2^bits,) of ENTRY says where pieces are.

    mixed id   | depth bits: which piece | 32 bits h | the rest |      home line = ⌊h · lines / 2^32⌋

    directory    entry   0   1   2   3   4   5   6   7               bits = 3
                 piece   0   0   0   0   4   4   6   7               depth = 1, 2, 3, 3: a piece has its first
                                                                     entry's number, and 2^(bits − depth) entries
    a line       address | id 0 | id 1 | .. | id 4 |                 8 bytes each
                    + 40 | number 0 | .. | number 4 | passed |       4 bytes each

A home is in proportion to h, not h modulo the lines: a piece has any number of them, and grows by an eighth.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import (
    compiled,
    first_equal,
    inner,
    int64_at,
    prefetch,
    set_int64,
    set_uint32,
    uint32_at,
)
from paddle.pserver.sparse.mixing import FIRST, SECOND

ABSENT = 0xFFFFFFFF
"""Number of an id that is not there."""

ENTRY = np.dtype([("address", np.uint64), ("lines", np.int64), ("depth", np.int64)])
"""A piece: where its lines are, how many, and how many bits tell it."""

LINE_BYTES, LINE_BUCKETS = 64, 5

_AHEAD = 32
_FIRST, _SECOND = np.uint64(FIRST), np.uint64(SECOND)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_4, _8, _BUCKETS, _NUMBERS, _PASSED = np.uint64(4), np.uint64(8), np.uint64(5), np.uint64(40), np.uint64(60)
_ONE = np.uint32(1)


@inner
def mix(z: Any) -> Any:
    """Return one uint64 mixed: see `mixing`."""
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


def empty_of(piece: int) -> int:
    """Return the id that marks a piece's empty buckets: 0 lies in piece 0, and 1 does not."""
    return 1 if piece == 0 else 0


@inner
def _home(mixed: Any, piece: Any) -> Any:
    """Return the address of the line where a search begins."""
    line = (((mixed << np.uint64(piece.depth)) >> _32) * np.uint64(piece.lines)) >> _32
    return piece.address + np.uint64(LINE_BYTES) * line


@inner
def _next(line: Any, piece: Any) -> Any:
    line += np.uint64(LINE_BYTES)
    return piece.address if line == piece.address + np.uint64(LINE_BYTES * piece.lines) else line


@inner
def _search(key: Any, home: Any, piece: Any) -> Any:
    """Return the line that holds a key, and its place there: 5 if it is nowhere."""
    line = home
    while True:
        place = first_equal(line, key)
        if place < _BUCKETS or uint32_at(line + _PASSED) == 0:
            return line, place
        line = _next(line, piece)
        if line == home:  # where ids come and go, all lines of a small piece may have been passed
            return line, _BUCKETS


@inner
def _place(key: Any, number: Any, line: Any, piece: Any, empty: Any) -> None:
    """Put a key that is not there where it belongs."""
    place = first_equal(line, empty)
    while place == _BUCKETS:
        set_uint32(line + _PASSED, uint32_at(line + _PASSED) + _ONE)
        line = _next(line, piece)
        place = first_equal(line, empty)
    set_int64(line + _8 * place, key)
    set_uint32(line + _NUMBERS + _4 * place, number)


@inner
def _locate(key: Any, directory: Any, bits: Any) -> Any:
    """Return where the search for an id begins, and the entry of its piece."""
    mixed = mix(np.uint64(key))
    entry = np.int64(mixed >> np.uint64(64 - bits))
    return _home(mixed, directory[entry]), entry


@inner
def _fetch(key: Any, directory: Any, bits: Any) -> None:
    """Begin to bring near the line where the search for an id begins, and the next, to which many of them go on."""
    home, _ = _locate(key, directory, bits)
    prefetch(home)
    prefetch(home + np.uint64(LINE_BYTES))


@compiled
def find(ids: Any, directory: Any, bits: Any, out: Any) -> None:
    """Write each id's number, or ABSENT, to out (n,) uint32."""
    count = len(ids)
    for i in range(-_AHEAD, count):
        if i + _AHEAD < count:
            _fetch(ids[i + _AHEAD], directory, bits)
        if i >= 0:
            home, entry = _locate(ids[i], directory, bits)
            line, place = _search(ids[i], home, directory[entry])
            out[i] = ABSENT if place == _BUCKETS else uint32_at(line + _NUMBERS + _4 * place)


@compiled
def insert(ids: Any, numbers: Any, directory: Any, bits: Any, counts: Any) -> None:
    """Add ids (n,) int64, none of them there and none twice, with their numbers (n,) uint32.

    Every piece has room: its count stays below its number of buckets.
    """
    count = len(ids)
    for i in range(-_AHEAD, count):
        if i + _AHEAD < count:
            _fetch(ids[i + _AHEAD], directory, bits)
        if i >= 0:
            home, entry = _locate(ids[i], directory, bits)
            shift = bits - directory[entry].depth
            number = entry >> shift << shift
            _place(ids[i], numbers[i], home, directory[entry], np.int64(number == 0))
            counts[number] += 1


@compiled
def put(ids: Any, numbers: Any, directory: Any, bits: Any) -> None:
    """Change the numbers of ids (n,) that are all there."""
    for i in range(len(ids)):
        home, entry = _locate(ids[i], directory, bits)
        line, place = _search(ids[i], home, directory[entry])
        set_uint32(line + _NUMBERS + _4 * place, numbers[i])


@compiled
def remove(ids: Any, directory: Any, bits: Any, counts: Any) -> None:
    """Remove ids (n,) that are all there."""
    for i in range(len(ids)):
        home, entry = _locate(ids[i], directory, bits)
        piece = directory[entry]
        shift = bits - piece.depth
        number = entry >> shift << shift
        line, hole = _search(ids[i], home, piece)
        while home != line:  # the lines that it passed no longer send anybody on for its sake
            set_uint32(home + _PASSED, uint32_at(home + _PASSED) - _ONE)
            home = _next(home, piece)
        set_int64(line + _8 * hole, np.int64(number == 0))
        counts[number] -= 1


@inner
def _move(old: Any, lines: Any, piece: Any, empty: Any) -> None:
    """Copy what old lines hold to a piece's new, empty ones. Homes keep their order, so both are gone through."""
    for at in range(lines):
        line = old + np.uint64(LINE_BYTES * at)
        for bucket in range(LINE_BUCKETS):
            place = np.uint64(bucket)
            key = int64_at(line + _8 * place)
            if key != empty:
                home = _home(mix(np.uint64(key)), piece)
                _place(key, uint32_at(line + _NUMBERS + _4 * place), home, piece, empty)


@compiled
def grow(pieces: Any, addresses: Any, lines: Any, directory: Any, bits: Any) -> None:
    """Copy what pieces (n,) int64 hold to new lines, as many as `lines` (n,) says, at addresses (n,) uint64."""
    for k in range(len(pieces)):
        number, address = pieces[k], addresses[k]
        empty = np.int64(number == 0)
        for at in range(lines[k]):
            line = address + np.uint64(LINE_BYTES * at)
            for word in range(LINE_BYTES // 8):
                set_int64(line + _8 * np.uint64(word), empty if word < LINE_BUCKETS else 0)
        piece = directory[number]  # a view, which will tell of the new lines
        old, old_lines = piece.address, piece.lines
        for entry in range(number, number + (1 << (bits - piece.depth))):
            directory[entry].address = address
            directory[entry].lines = lines[k]
        _move(old, old_lines, piece, empty)


@compiled
def pieces_of(ids: Any, directory: Any, bits: Any, out: Any) -> None:
    """Write the piece of each id (n,) to out (n,) int64."""
    for i in range(len(ids)):
        entry = np.int64(mix(np.uint64(ids[i])) >> np.uint64(64 - bits))
        shift = bits - directory[entry].depth
        out[i] = entry >> shift << shift


@compiled
def entries(piece: Any, empty: Any, ids: Any, numbers: Any) -> Any:
    """Write the ids and numbers of one piece to arrays that are long enough; return how many there are."""
    found = 0
    for at in range(piece.lines):
        line = piece.address + np.uint64(LINE_BYTES * at)
        for bucket in range(LINE_BUCKETS):
            place = np.uint64(bucket)
            if int64_at(line + _8 * place) != empty:
                ids[found] = int64_at(line + _8 * place)
                numbers[found] = uint32_at(line + _NUMBERS + _4 * place)
                found += 1
    return found


@compiled
def group(ids: Any, first: Any, order: Any, starts: Any, heads: Any, which: Any) -> Any:
    """Find equal ids: the distinct ones in order of their first appearance, and where each appears.

    Args:
        ids: (n,) int64.
        first: (n,) int64; its first m entries become the position of each distinct id's first appearance.
        order: (n,) int64; becomes all positions, those of one distinct id together and ascending.
        starts: (n + 2,) int64, all 0; distinct id k is at order[starts[k] : starts[k + 1]].
        heads: (a power of 2, at least 2n,) int32, all −1, and which (n,) int32: for this function's use.

    Returns:
        m.
    """
    # A small table of the batch's own, at most half full: a bucket has the number of a distinct id, and the id itself
    # is looked up where it first appears. Then a counting sort by that number.
    #     ids  7 2 7 9 2        first  0 1 3        order  0 2 | 1 4 | 3        starts  0   2   4   5
    size = len(heads)
    found = 0
    for i in range(len(ids)):
        bucket = np.int64(mix(np.uint64(ids[i])) & np.uint64(size - 1))
        while heads[bucket] >= 0 and ids[first[heads[bucket]]] != ids[i]:
            bucket = (bucket + 1) & (size - 1)
        if heads[bucket] < 0:
            heads[bucket] = found
            first[found] = i
            found += 1
        which[i] = heads[bucket]
        starts[which[i] + 2] += 1
    for k in range(found):
        starts[k + 2] += starts[k + 1]
    # starts[k + 1] is where k begins, and moves on to where it ends as its positions are written.
    for i in range(len(ids)):
        k = which[i]
        order[starts[k + 1]] = i
        starts[k + 1] += 1
    return found
