# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over the buckets of an `Index`.

The first bits of an id's mixed number choose its piece, the next 32 its home bucket; from there on buckets
are searched one after the other. A piece of c buckets is c ids and then c numbers, at one address. An
empty bucket holds an id that belongs to another piece, so that no id is reserved. Every piece has an
empty bucket, or searches would not end. `directory` (2^bits,) of ENTRY says where pieces are.

    mixed id   | depth bits: which piece | 32 bits h | the rest |      home bucket = ⌊h · c / 2^32⌋, for any c

    directory    entry   0   1   2   3   4   5   6   7               bits = 3
                 piece   0   0   0   0   4   4   6   7               depth = 1, 2, 3, 3: a piece has its first
                                                                     entry's number, and 2^(bits − depth) entries
    a piece      address | id 0 | id 1 | .. | id c−1 |  8 bytes each
                         | number 0 | .. | number c−1 | 4 bytes each, at address + 8c

A home is in proportion to h, not h modulo c: a piece has any number of buckets and grows by a seventh, not twofold.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import compiled, int64s, prefetch, uint32s
from paddle.pserver.sparse.mixing import FIRST, SECOND, SEGMENT_BITS, SEGMENTS

ABSENT = 0xFFFFFFFF
"""Number of an id that is not there."""

ENTRY = np.dtype([("address", np.uint64), ("capacity", np.int64), ("depth", np.int64)])
"""A piece: where its buckets are, how many, and how many bits tell it."""

_BLOCK = 64
_FIRST, _SECOND = np.uint64(FIRST), np.uint64(SECOND)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_4, _8 = np.uint64(4), np.uint64(8)


@compiled
def mix(z: Any) -> Any:
    """Return one uint64 mixed: see `mixing`."""
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@compiled
def empty_of(piece: Any) -> Any:
    """Return the id that marks a piece's empty buckets: 0 lies in piece 0, and 1 does not."""
    return 1 if piece == 0 else 0


@compiled
def _entry_of(mixed: Any, bits: Any) -> Any:
    return np.int64(mixed >> np.uint64(64 - bits))


@compiled
def _piece_of(entry: Any, bits: Any, depth: Any) -> Any:
    """Return the first of the entries that are one piece's."""
    return entry >> (bits - depth) << (bits - depth)


@compiled
def _home(mixed: Any, depth: Any, capacity: Any) -> Any:
    return np.int64((((mixed << np.uint64(depth)) >> _32) * np.uint64(capacity)) >> _32)


@compiled
def _search(keys: Any, key: Any, home: Any, empty: Any) -> Any:
    """Return the bucket that holds the key, or the empty one where it would go."""
    # Linear probing: what is searched next lies in the same cache line most of the time.
    bucket = home
    while keys[bucket] != key and keys[bucket] != empty:
        bucket += 1
        if bucket == len(keys):
            bucket = 0
    return bucket


@compiled
def by_place(places: Any, num_places: Any) -> Any:
    """Return the positions (n,) int64 of places (n,), each below num_places, those of one place together.

    Whoever then goes from place to place finds the page tables of each near, which a walk across gigabytes does not.
    """
    # A counting sort: ends[p] is where place p begins, and moves on as its positions are written.
    #     places  2 0 2 1        ends  0 1 2 4        turns  1 | 3 | 0 2
    ends = np.zeros(num_places + 1, np.int64)
    for i in range(len(places)):
        ends[places[i] + 1] += 1
    for place in range(num_places):
        ends[place + 1] += ends[place]
    turns = np.empty(len(places), np.int64)
    for i in range(len(places)):
        turns[ends[places[i]]] = i
        ends[places[i]] += 1
    return turns


@compiled
def _bring_near(
    ids: Any, turns: Any, start: Any, count: Any, directory: Any, bits: Any, entries: Any, homes: Any
) -> None:
    """Find the entries and home buckets of `count` ids: all misses are under way before one is waited for."""
    for i in range(count):
        mixed = mix(np.uint64(ids[turns[start + i]]))
        entries[i] = _entry_of(mixed, bits)
        piece = directory[entries[i]]
        homes[i] = _home(mixed, piece.depth, piece.capacity)
        prefetch(piece.address + _8 * np.uint64(homes[i]))
        prefetch(piece.address + _8 * np.uint64(piece.capacity) + _4 * np.uint64(homes[i]))


@compiled
def find(ids: Any, directory: Any, bits: Any, out: Any) -> Any:
    """Write each id's number, or ABSENT, to out (n,) uint32; return how many of ids (n,) int64 are absent."""
    # By segment and not by piece: one pass knows an id's segment without a look at the directory.
    absent = 0
    segments = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        segments[i] = _entry_of(mix(np.uint64(ids[i])), SEGMENT_BITS)
    turns = by_place(segments, SEGMENTS)
    homes = np.empty(_BLOCK, np.int64)
    entries = np.empty(_BLOCK, np.int64)
    for start in range(0, len(ids), _BLOCK):
        count = min(_BLOCK, len(ids) - start)
        _bring_near(ids, turns, start, count, directory, bits, entries, homes)
        for i in range(count):
            at = turns[start + i]
            piece = directory[entries[i]]
            keys = int64s(piece.address, piece.capacity)
            empty = empty_of(_piece_of(entries[i], bits, piece.depth))
            bucket = _search(keys, ids[at], homes[i], empty)
            if keys[bucket] == ids[at]:
                out[at] = uint32s(piece.address + _8 * np.uint64(piece.capacity), piece.capacity)[bucket]
            else:
                out[at] = ABSENT
                absent += 1
    return absent


@compiled
def insert(ids: Any, numbers: Any, directory: Any, bits: Any, counts: Any) -> None:
    """Add ids (n,) int64, none of them there and none twice, with their numbers (n,) uint32.

    Every piece has room: its count stays below its capacity.
    """
    turns = np.arange(len(ids))
    homes = np.empty(_BLOCK, np.int64)
    entries = np.empty(_BLOCK, np.int64)
    for start in range(0, len(ids), _BLOCK):
        count = min(_BLOCK, len(ids) - start)
        _bring_near(ids, turns, start, count, directory, bits, entries, homes)
        for i in range(count):
            piece = directory[entries[i]]
            number = _piece_of(entries[i], bits, piece.depth)
            keys = int64s(piece.address, piece.capacity)
            bucket = _search(keys, ids[start + i], homes[i], empty_of(number))
            keys[bucket] = ids[start + i]
            uint32s(piece.address + _8 * np.uint64(piece.capacity), piece.capacity)[bucket] = numbers[
                start + i
            ]
            counts[number] += 1


@compiled
def put(ids: Any, numbers: Any, directory: Any, bits: Any) -> None:
    """Change the numbers of ids (n,) that are all there."""
    for i in range(len(ids)):
        mixed = mix(np.uint64(ids[i]))
        entry = _entry_of(mixed, bits)
        piece = directory[entry]
        size = piece.capacity
        empty = empty_of(_piece_of(entry, bits, piece.depth))
        bucket = _search(int64s(piece.address, size), ids[i], _home(mixed, piece.depth, size), empty)
        uint32s(piece.address + _8 * np.uint64(size), size)[bucket] = numbers[i]


@compiled
def remove(ids: Any, directory: Any, bits: Any, counts: Any) -> None:
    """Remove ids (n,) that are all there; those behind move up, so that searches still find them."""
    for i in range(len(ids)):
        mixed = mix(np.uint64(ids[i]))
        entry = _entry_of(mixed, bits)
        piece = directory[entry]
        depth, size = piece.depth, piece.capacity
        number = _piece_of(entry, bits, depth)
        keys = int64s(piece.address, size)
        numbers = uint32s(piece.address + _8 * np.uint64(size), size)
        hole = _search(keys, ids[i], _home(mixed, depth, size), empty_of(number))
        # A hole would end searches for those behind it. So the next one that may lie there moves in, which leaves a
        # hole in its place, until an empty bucket follows. No bucket is ever marked as once used.
        #     bucket               3 4 5 6 7
        #     home of who is there 3 3 5 3 -      without the first: 3 3 5 - -, for the one of 5 stays at home
        bucket = hole
        while True:
            bucket = bucket + 1 if bucket + 1 < size else 0
            if keys[bucket] == empty_of(number):
                break
            home = _home(mix(np.uint64(keys[bucket])), depth, size)
            # It may move into the hole unless its home lies behind the hole, going round.
            if (bucket - home) % size >= (bucket - hole) % size:
                keys[hole] = keys[bucket]
                numbers[hole] = numbers[bucket]
                hole = bucket
        keys[hole] = empty_of(number)
        counts[number] -= 1


@compiled
def pieces_of(ids: Any, directory: Any, bits: Any) -> Any:
    """Return the piece of each id (n,), as (n,) int64."""
    pieces = np.empty(len(ids), np.int64)
    for i in range(len(ids)):
        entry = _entry_of(mix(np.uint64(ids[i])), bits)
        pieces[i] = _piece_of(entry, bits, directory[entry].depth)
    return pieces


@compiled
def entries(address: Any, capacity: Any, empty: Any, ids: Any, numbers: Any) -> Any:
    """Write the ids and numbers of one piece to arrays that are long enough; return how many there are."""
    keys = int64s(address, capacity)
    values = uint32s(address + _8 * np.uint64(capacity), capacity)
    found = 0
    for bucket in range(capacity):
        if keys[bucket] != empty:
            ids[found] = keys[bucket]
            numbers[found] = values[bucket]
            found += 1
    return found


@compiled
def move(address: Any, capacity: Any, piece: Any, empty: Any) -> None:
    """Copy what one piece's old buckets hold into its new, empty ones; `piece` is its ENTRY with the new ones."""
    keys = int64s(address, capacity)
    numbers = uint32s(address + _8 * np.uint64(capacity), capacity)
    size = piece.capacity
    new_keys = int64s(piece.address, size)
    new_numbers = uint32s(piece.address + _8 * np.uint64(size), size)
    for bucket in range(capacity):
        if keys[bucket] != empty:
            home = _home(mix(np.uint64(keys[bucket])), piece.depth, size)
            free = _search(new_keys, keys[bucket], home, empty)
            new_keys[free] = keys[bucket]
            new_numbers[free] = numbers[bucket]


@compiled
def group(ids: Any, first: Any, order: Any, starts: Any) -> Any:
    """Find equal ids: the distinct ones in order of their first appearance, and where each appears.

    Args:
        ids: (n,) int64.
        first: (n,) int64; its first m entries become the position of each distinct id's first appearance.
        order: (n,) int64; becomes all positions, those of one distinct id together and ascending.
        starts: (n + 1,) int64; distinct id k is at order[starts[k] : starts[k + 1]].

    Returns:
        m.
    """
    # A small table of the batch's own, at most half full: a bucket has the number of a distinct id, and the id itself
    # is looked up where it first appears. Then a counting sort by that number.
    #     ids  7 2 7 9 2        first  0 1 3        order  0 2 | 1 4 | 3        starts  0   2   4   5
    size = 16
    while size < 2 * len(ids):
        size *= 2
    heads = np.full(size, -1, np.int32)
    which = np.empty(len(ids), np.int32)
    starts[: len(ids) + 1] = 0
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
        starts[which[i] + 1] += 1
    for k in range(found):
        starts[k + 1] += starts[k]
    filled = starts[:found].copy()
    for i in range(len(ids)):
        k = which[i]
        order[filled[k]] = i
        filled[k] += 1
    return found
