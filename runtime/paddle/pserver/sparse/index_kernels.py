# SPDX-License-Identifier: Apache-2.0
"""Compiled loops over the buckets of an `Index`.

The top bits of an id's mixed number choose its segment, the next 32 its home bucket; from there on buckets
are searched one after the other. A segment of c buckets is c ids and then c numbers, at one address. An
empty bucket holds an id that belongs to another segment, so that no id is reserved. Every segment has an
empty bucket, or searches would not end.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.pserver.sparse.compiling import compiled, int64s, prefetch, uint32s
from paddle.pserver.sparse.mixing import FIRST, SECOND, SEGMENT_BITS

ABSENT = 0xFFFFFFFF
"""Number of an id that is not there."""

_BLOCK = 64
_FIRST, _SECOND = np.uint64(FIRST), np.uint64(SECOND)
_TO_SEGMENT = np.uint64(64 - SEGMENT_BITS)
_PAST_SEGMENT = np.uint64(SEGMENT_BITS)
_30, _27, _31, _32 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_4, _8 = np.uint64(4), np.uint64(8)


@compiled
def mix(z: Any) -> Any:
    """Return one uint64 mixed: see `mixing`."""
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return z ^ (z >> _31)


@compiled
def empty_of(segment: Any) -> Any:
    """Return the id that marks a segment's empty buckets: 0 lies in segment 0, and 1 does not."""
    return 1 if segment == 0 else 0


@compiled
def _home(mixed: Any, capacity: Any) -> Any:
    return np.int64((((mixed << _PAST_SEGMENT) >> _32) * np.uint64(capacity)) >> _32)


@compiled
def _search(keys: Any, key: Any, home: Any, empty: Any) -> Any:
    """Return the bucket that holds the key, or the empty one where it would go."""
    bucket = home
    while keys[bucket] != key and keys[bucket] != empty:
        bucket += 1
        if bucket == len(keys):
            bucket = 0
    return bucket


@compiled
def find(ids: Any, address: Any, capacity: Any, out: Any) -> Any:
    """Write each id's number, or ABSENT, to out (n,) uint32; return how many are absent.

    Args:
        ids: (n,) int64.
        address: (segments,) uint64.
        capacity: (segments,) int64, buckets of each.
    """
    absent = 0
    homes = np.empty(_BLOCK, np.int64)
    segments = np.empty(_BLOCK, np.int64)
    for start in range(0, len(ids), _BLOCK):
        count = min(_BLOCK, len(ids) - start)
        # All misses of a block are under way before the first one is waited for.
        for i in range(count):
            mixed = mix(np.uint64(ids[start + i]))
            segment = np.int64(mixed >> _TO_SEGMENT)
            home = _home(mixed, capacity[segment])
            homes[i] = home
            segments[i] = segment
            at = address[segment]
            prefetch(at + _8 * np.uint64(home))
            prefetch(at + _8 * np.uint64(capacity[segment]) + _4 * np.uint64(home))
        for i in range(count):
            segment = segments[i]
            size = capacity[segment]
            keys = int64s(address[segment], size)
            empty = empty_of(segment)
            bucket = _search(keys, ids[start + i], homes[i], empty)
            if keys[bucket] == ids[start + i]:
                out[start + i] = uint32s(address[segment] + _8 * np.uint64(size), size)[bucket]
            else:
                out[start + i] = ABSENT
                absent += 1
    return absent


@compiled
def insert(ids: Any, numbers: Any, address: Any, capacity: Any, count: Any) -> None:
    """Add ids (n,) int64, none of them there and none twice, with their numbers (n,) uint32.

    Every segment has room: its `count` stays below its capacity.
    """
    for i in range(len(ids)):
        mixed = mix(np.uint64(ids[i]))
        segment = np.int64(mixed >> _TO_SEGMENT)
        size = capacity[segment]
        keys = int64s(address[segment], size)
        empty = empty_of(segment)
        bucket = _search(keys, ids[i], _home(mixed, size), empty)
        keys[bucket] = ids[i]
        uint32s(address[segment] + _8 * np.uint64(size), size)[bucket] = numbers[i]
        count[segment] += 1


@compiled
def put(ids: Any, numbers: Any, address: Any, capacity: Any) -> None:
    """Change the numbers of ids (n,) that are all there."""
    for i in range(len(ids)):
        mixed = mix(np.uint64(ids[i]))
        segment = np.int64(mixed >> _TO_SEGMENT)
        size = capacity[segment]
        bucket = _search(int64s(address[segment], size), ids[i], _home(mixed, size), empty_of(segment))
        uint32s(address[segment] + _8 * np.uint64(size), size)[bucket] = numbers[i]


@compiled
def remove(ids: Any, address: Any, capacity: Any, count: Any) -> None:
    """Remove ids (n,) that are all there; those behind move up, so that searches still find them."""
    for i in range(len(ids)):
        mixed = mix(np.uint64(ids[i]))
        segment = np.int64(mixed >> _TO_SEGMENT)
        size = capacity[segment]
        keys = int64s(address[segment], size)
        numbers = uint32s(address[segment] + _8 * np.uint64(size), size)
        hole = _search(keys, ids[i], _home(mixed, size), empty_of(segment))
        bucket = hole
        while True:
            bucket = bucket + 1 if bucket + 1 < size else 0
            if keys[bucket] == empty_of(segment):
                break
            home = _home(mix(np.uint64(keys[bucket])), size)
            # It may move into the hole unless its home lies behind the hole, going round.
            if (bucket - home) % size >= (bucket - hole) % size:
                keys[hole] = keys[bucket]
                numbers[hole] = numbers[bucket]
                hole = bucket
        keys[hole] = empty_of(segment)
        count[segment] -= 1


@compiled
def entries(address: Any, capacity: Any, empty: Any, ids: Any, numbers: Any) -> Any:
    """Write the ids and numbers of one segment to arrays that are long enough; return how many there are."""
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
def move(address: Any, capacity: Any, new_address: Any, new_capacity: Any, empty: Any) -> None:
    """Copy one segment into another, empty one of another capacity."""
    keys = int64s(address, capacity)
    numbers = uint32s(address + _8 * np.uint64(capacity), capacity)
    new_keys = int64s(new_address, new_capacity)
    new_numbers = uint32s(new_address + _8 * np.uint64(new_capacity), new_capacity)
    for bucket in range(capacity):
        if keys[bucket] != empty:
            home = _home(mix(np.uint64(keys[bucket])), new_capacity)
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
