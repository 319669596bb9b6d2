# SPDX-License-Identifier: Apache-2.0
"""A map from int64 ids to uint32 numbers that grows one piece at a time: open addressing, about 15 bytes per id.

The map is divided into pieces by the ids' mixed bits: initially one for each of the 1024 segments. Each grows
separately, by about an eighth, until it holds some thousands of ids; then it is split in two. So no step moves more
than one piece of at most 16,384 ids however large the map is, memory never holds an old and a new copy of the whole
map, and pieces, whose thresholds differ, do not all grow simultaneously.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.kernels import library
from paddle.pserver.sparse.mixing import SEGMENT_BITS, SEGMENTS, mix, segments_of

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]

ABSENT = 0xFFFFFFFF
"""Number of an id that is not there."""
MOST_AT_ONCE = (1 << 31) - 3
"""Ids that kernels group by one call: positions are int32 there, up to two behind the last id."""

KERNELS = library.Kernels(
    index_find="pnpnp",
    index_insert="ppnpnp",
    index_put="ppnpn:n",
    index_remove="pnpnp:n",
    index_clear="pnn",
    index_grow="pppnpn",
    index_pieces="pnpnp",
    index_entries="pnpp:n",
    index_group="pnpppppnp:n",
)
"""The loops of `index.c` and `table.c`; `index.h` tells how a piece lies in memory."""

_ENTRY = np.dtype([("address", np.uint64), ("lines", np.int64), ("depth", np.int64)])
"""`struct piece` of `index.h`."""
_LINE_BYTES, _LINE_BUCKETS = 64, 5

_MAX_LOAD = 0.93
# After it grew, a piece's load is between these, by its segment's number: neighbours then grow at other times.
_LOW_LOAD, _HIGH_LOAD = 0.79, 0.86
# Ids in a piece: one that would hold more is split; later segments' are split earlier, the last one's at half.
_MOST_IDS = 1 << 14
# Pieces that are copied by one call: each takes and gives up the interpreter's lock, and ends with two copies of these.
_PIECES_AT_ONCE = 64


class Index:
    """The map. Not thread-safe."""

    def __init__(self) -> None:
        self._loops = KERNELS.loaded
        # The directory has an entry for each value of the ids' first `bits` mixed bits. A piece that fewer bits
        # tell has several entries, which are alike; the first of them, whose number is the piece's, counts its ids.
        self._bits = SEGMENT_BITS
        self._directory = np.zeros(SEGMENTS, _ENTRY)
        self._count = np.zeros(SEGMENTS, np.int64)
        self._memory: dict[int, npt.NDArray[np.uint8]] = {}
        for piece in range(SEGMENTS):
            self._give(piece, SEGMENT_BITS, 1)

    def __len__(self) -> int:
        return int(self._count.sum())

    @property
    def nbytes(self) -> int:
        """The memory of the buckets and the directory in bytes."""
        return sum(memory.nbytes for memory in self._memory.values()) + self._directory.nbytes

    def find(self, ids: Ids) -> Numbers:
        """Return the number of each id (n,), ABSENT for missing ids."""
        ids, numbers = np.ascontiguousarray(ids), np.empty(len(ids), np.uint32)
        self._loops.index_find(_of(ids), len(ids), *self.where, numbers.ctypes.data)
        return numbers

    def insert(self, ids: Ids, numbers: Numbers) -> None:
        """Add ids (n,), all new and distinct, with their numbers (n,), not ABSENT."""
        ids, numbers = np.ascontiguousarray(ids), np.ascontiguousarray(numbers)
        while not self._make_room(ids):
            pass
        self._insert(ids, numbers)

    def put(self, ids: Ids, numbers: Numbers) -> None:
        """Change the numbers of ids (n,).

        Raises:
            KeyError: some ids are missing; the others have their new numbers.
        """
        ids, numbers, n = np.ascontiguousarray(ids), np.ascontiguousarray(numbers), len(ids)
        _all_here(self._loops.index_put(_of(ids), library.address(numbers, np.uint32, n), n, *self.where), n)

    def remove(self, ids: Ids) -> None:
        """Remove ids (n,); their room is reused.

        Raises:
            KeyError: some ids are missing; the others are removed.
        """
        ids, n = np.ascontiguousarray(ids), len(ids)
        _all_here(self._loops.index_remove(_of(ids), n, *self.where, self._count.ctypes.data), n)

    def segment(self, segment: int) -> tuple[Ids, Numbers]:
        """Return copies of the ids and the numbers in one segment, in an internal order."""
        pieces = self._pieces_of(segment)
        ids = np.empty(sum(int(self._count[piece]) for piece in pieces), np.int64)
        numbers = np.empty(len(ids), np.uint32)
        at = 0
        for piece in pieces:
            at += self._entries(piece, ids[at:], numbers[at:])
        return ids, numbers

    def segments(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield the result of `segment` for every segment."""
        return (self.segment(segment) for segment in range(SEGMENTS))

    def replace(self, segment: int, ids: Ids, numbers: Numbers) -> None:
        """Set the contents of one segment, which shrinks to fit."""
        for piece in self._pieces_of(segment):
            self._count[piece] = 0
            self._give(piece, int(self._directory["depth"][piece]), 1)
        if len(ids):
            self.insert(ids, numbers)

    def _make_room(self, ids: Ids) -> bool:
        """Make room for more ids; return False if a piece was split for it, whose halves may still have to grow."""
        pieces = np.empty(len(ids), np.int64)
        self._loops.index_pieces(_of(ids), len(ids), *self.where, pieces.ctypes.data)
        coming = np.bincount(pieces, minlength=len(self._count))
        needed = self._count + coming
        full = np.flatnonzero((coming > 0) & (needed > _MAX_LOAD * _LINE_BUCKETS * self._directory["lines"]))
        split = needed[full] > _most(full >> (self._bits - SEGMENT_BITS))
        self._grow(full[~split], needed[full[~split]])
        if not split.any():
            return True
        sizes = needed[full[split]].tolist()
        pieces = full[split]
        if (self._directory["depth"][pieces] == self._bits).any():
            self._double()
            pieces = 2 * pieces
        for piece, size in zip(pieces.tolist(), sizes, strict=True):
            self._split(piece, size)
        return False

    def _grow(self, pieces: Ids, counts: Ids) -> None:
        """Copy the contents of pieces (n,) to new lines, with room for `counts` (n,) ids in each."""
        lines = self._roomy(pieces, counts)
        for start in range(0, len(pieces), _PIECES_AT_ONCE):
            some = slice(start, start + _PIECES_AT_ONCE)
            memories = [_aligned(count * _LINE_BYTES) for count in lines[some].tolist()]
            addresses = np.array([memory.ctypes.data for memory in memories], np.uint64)
            given = _of(pieces[some]), addresses.ctypes.data, _of(lines[some])
            self._loops.index_grow(*given, len(addresses), *self.where)
            self._memory.update(zip(pieces[some].tolist(), memories, strict=True))  # the old ones end here

    def _split(self, piece: int, count: int) -> None:
        """Give the upper half of a piece's mixed numbers a new piece.

        Both get room for the ids that they hold, and for half of `count` ids.
        """
        held = self._take(piece)
        depth = int(self._directory["depth"][piece]) + 1
        halves = np.array([piece, piece + (1 << (self._bits - depth))])
        in_upper = int(np.count_nonzero(mix(held[0].view(np.uint64)) >> np.uint64(64 - depth) & np.uint64(1)))
        # Ids fall into either half as heads and tails do, unless they come in the order of a checkpoint: by half.
        expected = count // 2 + 2 * int(count**0.5)
        lines = self._roomy(halves, np.maximum(expected, (len(held[0]) - in_upper, in_upper)))
        for half, its_lines in zip(halves.tolist(), lines.tolist(), strict=True):
            self._give(half, depth, its_lines)
        self._insert(*held)

    def _take(self, piece: int) -> tuple[Ids, Numbers]:
        """Return copies of a piece's contents, and empty the piece."""
        count = int(self._count[piece])
        ids, numbers = np.empty(count, np.int64), np.empty(count, np.uint32)
        self._entries(piece, ids, numbers)
        self._count[piece] = 0
        return ids, numbers

    def _entries(self, piece: int, ids: Ids, numbers: Numbers) -> int:
        at = self._directory.ctypes.data + piece * _ENTRY.itemsize
        return int(self._loops.index_entries(at, _empty_of(piece), ids.ctypes.data, numbers.ctypes.data))

    def _insert(self, ids: Ids, numbers: Numbers) -> None:
        n = len(ids)
        given = _of(ids), library.address(numbers, np.uint32, n), n
        self._loops.index_insert(*given, *self.where, self._count.ctypes.data)

    @property
    def where(self) -> tuple[int, int]:
        """The directory's address and its number of bits, for a kernel."""
        return self._directory.ctypes.data, self._bits

    @property
    def counts(self) -> int:
        """The address of the pieces' counts, for a kernel that inserts."""
        return self._count.ctypes.data

    def _double(self) -> None:
        """Double the directory: it uses one more bit."""
        self._bits += 1
        self._directory = np.repeat(self._directory, 2)
        self._count = np.stack((self._count, np.zeros_like(self._count)), axis=1).ravel()
        self._memory = {2 * piece: memory for piece, memory in self._memory.items()}

    def _give(self, piece: int, depth: int, lines: int) -> None:
        """Give a piece new, empty lines."""
        memory = _aligned(lines * _LINE_BYTES)
        self._loops.index_clear(memory.ctypes.data, lines, _empty_of(piece))
        self._memory[piece] = memory
        entries = slice(piece, piece + (1 << (self._bits - depth)))
        self._directory[entries] = (memory.ctypes.data, lines, depth)

    def _pieces_of(self, segment: int) -> list[int]:
        shift = self._bits - SEGMENT_BITS
        piece, end, found = segment << shift, segment + 1 << shift, []
        while piece < end:
            found.append(piece)
            piece += 1 << (self._bits - int(self._directory["depth"][piece]))
        return found

    def _roomy(self, pieces: Ids, counts: Ids) -> Ids:
        """Return the lines (n,) that pieces (n,) with `counts` ids (n,) get when they have to grow."""
        load = _LOW_LOAD + (_HIGH_LOAD - _LOW_LOAD) * (pieces >> (self._bits - SEGMENT_BITS)) / SEGMENTS
        lines: Ids = (counts / load / _LINE_BUCKETS).astype(np.int64) + 1
        return lines


def _most(segments: Ids) -> npt.NDArray[np.float64]:
    most: npt.NDArray[np.float64] = _MOST_IDS * 2.0 ** (-segments / SEGMENTS)
    return most


class PlainIndex:
    """The plain form of `Index`, for machines without a library: a dict for each segment."""

    def __init__(self) -> None:
        self._segments: list[dict[int, int]] = [{} for _ in range(SEGMENTS)]

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    @property
    def nbytes(self) -> int:
        """The approximate memory of dicts of ints."""
        return 100 * len(self)

    def find(self, ids: Ids) -> Numbers:
        """See `Index.find`."""
        return np.array([held.get(each, ABSENT) for each, held in self._each(ids)], np.uint32)

    def insert(self, ids: Ids, numbers: Numbers) -> None:
        """See `Index.insert`."""
        for (each, held), number in zip(self._each(ids), numbers.tolist(), strict=True):
            held[each] = number

    def put(self, ids: Ids, numbers: Numbers) -> None:
        """See `Index.put`."""
        here = self.find(ids) != ABSENT
        self.insert(ids[here], numbers[here])
        _all_here(len(ids) - int(here.sum()), len(ids))

    def remove(self, ids: Ids) -> None:
        """See `Index.remove`."""
        _all_here(sum(held.pop(each, None) is None for each, held in self._each(ids)), len(ids))

    def segment(self, segment: int) -> tuple[Ids, Numbers]:
        """See `Index.segment`."""
        held = self._segments[segment]
        return np.fromiter(held, np.int64, len(held)), np.fromiter(held.values(), np.uint32, len(held))

    def segments(self) -> Iterator[tuple[Ids, Numbers]]:
        """See `Index.segments`."""
        return map(self.segment, range(SEGMENTS))

    def replace(self, segment: int, ids: Ids, numbers: Numbers) -> None:
        """See `Index.replace`."""
        self._segments[segment] = dict(zip(ids.tolist(), numbers.tolist(), strict=True))

    def _each(self, ids: Ids) -> Iterator[tuple[int, dict[int, int]]]:
        return (
            (each, self._segments[at])
            for each, at in zip(ids.tolist(), segments_of(ids).tolist(), strict=True)
        )


def new_index() -> Index | PlainIndex:
    """Return an empty index, in the form that this machine supports."""
    return PlainIndex() if KERNELS.loaded is None else Index()


def grouped(ids: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """Group equal ids (n,).

    Returns:
        The position of each distinct id's first occurrence, in order; the distinct ids; all positions, those of one
        distinct id together and ascending; the start of each distinct id's positions, and the end of the last ones.
    """
    n = len(ids)
    if (loops := KERNELS.loaded) is None or n > MOST_AT_ONCE:
        return grouped_plainly(ids)
    first, distinct, order = (np.empty(n, np.int64) for _ in range(3))
    starts, which = np.empty(n + 2, np.int64), np.empty(n, np.int32)
    heads = np.empty(buckets_for(n), np.int32)
    made = (each.ctypes.data for each in (first, distinct, order, starts, heads))
    found = loops.index_group(_of(ids), n, *made, len(heads), which.ctypes.data)
    return first[:found], distinct[:found], order, starts[: found + 1]


def grouped_plainly(ids: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """The plain form of `grouped`."""
    distinct, first, which, counts = np.unique(
        ids, return_index=True, return_inverse=True, return_counts=True
    )
    appearance = np.argsort(first)
    rank = np.empty_like(appearance)
    rank[appearance] = np.arange(len(appearance))
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts[appearance])))
    return first[appearance], distinct[appearance], np.argsort(rank[which], kind="stable"), starts


def buckets_for(n: int) -> int:
    """Return the number of buckets that `group` of `table.c` needs for n ids."""
    return max(16, 1 << (2 * n).bit_length())


def _all_here(absent: int, n: int) -> None:
    if absent:
        raise KeyError(f"{absent} of {n} ids are not in the index")


def _of(array: Ids) -> int:
    return library.address(array, np.int64)


def _empty_of(piece: int) -> int:
    """Return the id that marks a piece's empty buckets: 0 lies in piece 0, and 1 does not."""
    return int(piece == 0)


def _aligned(nbytes: int) -> npt.NDArray[np.uint8]:
    memory = np.empty(nbytes + _LINE_BYTES - 16, np.uint8)  # which numpy aligns to 16 bytes
    start = -memory.ctypes.data % _LINE_BYTES
    return memory[start : start + nbytes]
