# SPDX-License-Identifier: Apache-2.0
"""A map from int64 ids to uint32 numbers that grows piece by piece: open addressing, about 15 bytes per id.

The map is divided into pieces, initially one for each of the 1024 segments. Each piece grows separately, by about a
fifth, until it holds several thousand ids; then it is split in two. However large the map is, no step moves more than
one piece of at most 16,384 ids, and memory never holds two copies of the whole map. Pieces have different thresholds,
so that they do not all grow at the same time. `growth.c` has the details.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from paddle.kernels import library
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]

ABSENT = 0xFFFFFFFF
"""The number of a missing id."""
MOST_AT_ONCE = (1 << 31) - 3
"""Ids that kernels group by one call: positions are int32 there, up to two behind the last id."""

SALT = np.frombuffer(os.urandom(16), np.uint64) | np.uint64(1)
"""Two random odd numbers of this process that decide where ids lie, so that ids cannot be chosen to collide."""

_NO_IDS, _NO_NUMBERS = np.empty(0, np.int64), np.empty(0, np.uint32)  # a small map has many empty segments

KERNELS = library.Kernels(
    index_new="p:q",
    index_free="p",
    index_facts="pp",
    index_find="ppnp",
    index_insert="pppn:n",
    index_put="pppn:n",
    index_remove="ppn:n",
    index_segment="pnpp:n",
    index_clear="pn:n",
    index_group="pnpppppnpp:n",
)
"""The loops of `index.c`, `growth.c` and `table.c`; `index.h` tells how an index lies in memory."""


class Index:
    """The compiled map from ids to row numbers. Not thread-safe.

    Attributes:
        address: the address of the kernels' `struct index`.
    """

    def __init__(self) -> None:
        """Create an empty map. Raises MemoryError if there is not enough memory."""
        self._loops = KERNELS.loaded
        self.address = self._loops.index_new(SALT.ctypes.data)
        if not self.address:
            raise MemoryError("not enough memory for the index of a growing table")
        weakref.finalize(self, self._loops.index_free, self.address).atexit = False

    def __len__(self) -> int:
        return self._facts()[0]

    @property
    def nbytes(self) -> int:
        """The memory of the buckets and the directory in bytes."""
        return self._facts()[1]

    def find(self, ids: Ids) -> Numbers:
        """Return the number of each id (n,), or ABSENT where the id is missing."""
        ids, numbers = np.ascontiguousarray(ids), np.empty(len(ids), np.uint32)
        self._loops.index_find(self.address, _of(ids), len(ids), numbers.ctypes.data)
        return numbers

    def insert(self, ids: Ids, numbers: Numbers) -> None:
        """Add new, distinct ids (n,) with their numbers (n,), none of which is ABSENT.

        Raises:
            MemoryError: there is not enough memory for all ids; none was added.
        """
        ids, numbers, n = np.ascontiguousarray(ids), np.ascontiguousarray(numbers), len(ids)
        given = _of(ids), library.address(numbers, np.uint32, n)
        if (done := self._loops.index_insert(self.address, *given, n)) < n:
            self.remove(ids[:done])
            raise MemoryError(f"not enough memory to add {n} ids to an index of {len(self)}")

    def put(self, ids: Ids, numbers: Numbers) -> None:
        """Change the numbers of ids (n,).

        Raises:
            KeyError: some ids are missing; the others have their new numbers.
        """
        ids, numbers, n = np.ascontiguousarray(ids), np.ascontiguousarray(numbers), len(ids)
        given = _of(ids), library.address(numbers, np.uint32, n)
        _all_here(self._loops.index_put(self.address, *given, n), n)

    def remove(self, ids: Ids) -> None:
        """Remove ids (n,); their memory is reused.

        Raises:
            KeyError: some ids are missing; the others are removed.
        """
        ids, n = np.ascontiguousarray(ids), len(ids)
        _all_here(self._loops.index_remove(self.address, _of(ids), n), n)

    def segment(self, segment: int, *, in_any_order: bool = False) -> tuple[Ids, Numbers]:
        """Return copies of the ids in one segment (ascending unless `in_any_order`) and of their numbers.

        The positions of ids depend on `SALT`, so the order of `in_any_order` differs between processes.
        """
        if not (count := self._loops.index_segment(self.address, segment, None, None)):
            return _NO_IDS, _NO_NUMBERS
        ids, numbers = np.empty(count, np.int64), np.empty(count, np.uint32)
        self._loops.index_segment(self.address, segment, ids.ctypes.data, numbers.ctypes.data)
        if in_any_order:
            return ids, numbers
        ids.sort()
        return ids, self.find(ids)  # faster than np.argsort

    def segments(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield, for every segment, copies of its ids in ascending order and of their row numbers."""
        return (self.segment(segment) for segment in range(SEGMENTS))

    def replace(self, segment: int, ids: Ids, numbers: Numbers) -> None:
        """Replace the contents of one segment by ids (n,) and numbers (n,), and shrink the segment to fit.

        Raises:
            MemoryError: there is not enough memory for another copy of a part.
        """
        if not self._loops.index_clear(self.address, segment):
            raise MemoryError("not enough memory for another copy of part of an index")
        self.insert(ids, numbers)

    def _facts(self) -> tuple[int, int]:
        facts = np.empty(2, np.int64)
        self._loops.index_facts(self.address, facts.ctypes.data)
        return int(facts[0]), int(facts[1])


class PlainIndex:
    """The map from ids to row numbers as one dict per segment, for machines without the compiled library."""

    def __init__(self) -> None:
        self._segments: list[dict[int, int]] = [{} for _ in range(SEGMENTS)]

    def __len__(self) -> int:
        return sum(map(len, self._segments))

    @property
    def nbytes(self) -> int:
        """The approximate memory of the dicts in bytes."""
        return 100 * len(self)

    def find(self, ids: Ids) -> Numbers:
        """Return the number of each id (n,), or ABSENT where the id is missing."""
        return np.array([held.get(each, ABSENT) for each, held in self._each(ids)], np.uint32)

    def insert(self, ids: Ids, numbers: Numbers) -> None:
        """Add new, distinct ids (n,) with their numbers (n,), none of which is ABSENT."""
        for (each, held), number in zip(self._each(ids), numbers.tolist(), strict=True):
            held[each] = number

    def put(self, ids: Ids, numbers: Numbers) -> None:
        """Change the numbers of ids (n,); raises KeyError, after changing the others, if some ids are missing."""
        here = self.find(ids) != ABSENT
        self.insert(ids[here], numbers[here])
        _all_here(len(ids) - int(here.sum()), len(ids))

    def remove(self, ids: Ids) -> None:
        """Remove ids (n,); raises KeyError, after removing the others, if some ids are missing."""
        _all_here(sum(held.pop(each, None) is None for each, held in self._each(ids)), len(ids))

    def segment(self, segment: int, *, in_any_order: bool = False) -> tuple[Ids, Numbers]:
        """Return copies of the ids in one segment, and of their numbers; see `Index.segment`."""
        if not (found := sorted(self._segments[segment].items())):
            return _NO_IDS, _NO_NUMBERS
        return np.array([each for each, _ in found], np.int64), np.array([n for _, n in found], np.uint32)

    def segments(self) -> Iterator[tuple[Ids, Numbers]]:
        """Yield the ids of every segment with their numbers; see `Index.segments`."""
        return map(self.segment, range(SEGMENTS))

    def replace(self, segment: int, ids: Ids, numbers: Numbers) -> None:
        """Replace the contents of one segment by these ids (n,) and their numbers (n,)."""
        self._segments[segment] = dict(zip(ids.tolist(), numbers.tolist(), strict=True))

    def _each(self, ids: Ids) -> Iterator[tuple[int, dict[int, int]]]:
        return (
            (each, self._segments[at])
            for each, at in zip(ids.tolist(), segments_of(ids).tolist(), strict=True)
        )


def new_index() -> Index | PlainIndex:
    """Return an empty index, in compiled form if this machine supports it."""
    return PlainIndex() if KERNELS.loaded is None else Index()


def grouped(ids: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """Group the positions of equal ids in an array (n,).

    Returns:
        The position of each distinct id's first occurrence, in order; the distinct ids; all positions, grouped by id
            and ascending within a group; and the start of each group, plus the end of the last group.
    """
    n = len(ids)
    if (loops := KERNELS.loaded) is None or n > MOST_AT_ONCE:
        return grouped_plainly(ids)
    first, distinct, order = (np.empty(n, np.int64) for _ in range(3))
    starts, which = np.empty(n + 2, np.int64), np.empty(n, np.int32)
    heads = np.empty(buckets_for(n), np.int32)
    made = (each.ctypes.data for each in (first, distinct, order, starts, heads))
    found = loops.index_group(_of(ids), n, *made, len(heads), which.ctypes.data, SALT.ctypes.data)
    return first[:found], distinct[:found], order, starts[: found + 1]


def grouped_plainly(ids: Ids) -> tuple[Ids, Ids, Ids, Ids]:
    """Group the positions of equal ids as `grouped` does, in plain numpy."""
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
