# SPDX-License-Identifier: Apache-2.0
"""How a large slab is cut for the wire: pieces small enough for caches, so that all that happens to them overlaps."""

from __future__ import annotations

CHUNK = 1 << 18
"""Elements of a chunk; the last one of a slab is shorter. A slab of one chunk travels within its message."""

WINDOW = 4
"""Chunks that a trainer sends ahead of the answers: it bounds what a server must keep for each."""


def chunk_count(size: int) -> int:
    """Return the number of chunks of a slab of `size` elements."""
    return -(-size // CHUNK)


def chunk_span(index: int, size: int) -> slice:
    """Return where chunk `index` lies in a slab of `size` elements."""
    return slice(index * CHUNK, min((index + 1) * CHUNK, size))


PART = 1 << 24
"""Elements of a part of a slab that is set or pulled as a whole; the last one is shorter."""


def part_span(start: int, size: int) -> slice:
    """Return where the part that begins at `start` lies in a slab of `size` elements."""
    return slice(start, min(start + PART, size))
