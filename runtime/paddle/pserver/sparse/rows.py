# SPDX-License-Identifier: Apache-2.0
"""Operations on rows in slabs, by row number: compiled, or in plain numpy for machines without the library.

Both forms have the same methods and give bitwise equal results. Row numbers come from `Slabs`, so all of them are in
range.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.kernels import library
from paddle.pserver.sparse.blocks import (
    cells_of,
    largest_of,
    magnitude,
    narrowed,
    packed,
    unpacked,
    widened,
)
from paddle.pserver.sparse.distinct import Sums, added_up, added_up_plainly, sums_struct
from paddle.pserver.sparse.formulas import Formula
from paddle.pserver.sparse.index import ABSENT, MOST_AT_ONCE, Index, PlainIndex, buckets_for, grouped
from paddle.pserver.sparse.initial import KINDS, Initial
from paddle.pserver.sparse.structures import (
    BatchStruct,
    ComingRows,
    CompiledStep,
    Flags,
    FormulaStruct,
    FoundRows,
    Ids,
    Numbers,
    RowsStruct,
    ScoreStruct,
    Scoring,
)

Floats = npt.NDArray[np.float32]
Memory = npt.NDArray[np.uint8]

KERNELS = library.Kernels(
    rows_read="pppnip",
    rows_gather="ppnppupp",
    rows_scatter="ppnpp",
    rows_ticks="ppnp",
    rows_set_ticks="ppnp",
    rows_change="ppppnppufp",
    table_lookup="pppnip",
    table_update="ppppufp",
    rows_touch="ppn",
)
"""The loops of `rows.c` and `table.c`."""

_address = library.address
_LINE, _SMALL = 64, 1 << 16
_KINDS = [np.dtype(kind) for kind in ("i8", "i8", "i8", "u4", "u1", "i4", "i4")]  # of `struct batch`'s arrays


class CompiledRows:
    """The compiled operations on the rows of slabs, by row number."""

    def __init__(
        self, bits: int, width: int, parts: int, initial: Initial, per_row: int = 0, *, is_half: bool = False
    ) -> None:
        """Prepare for slabs of 2^bits rows, each of `parts` times `width + per_row` floats: see `Slabs`."""
        self._loops = KERNELS.loaded
        part = width + per_row
        self._width, self._floats = width, parts * part
        drawing = initial.key, initial.mean, initial.spread, KINDS.index(initial.kind)
        cells = cells_of(width, self._floats, is_half=is_half)
        self._rows = RowsStruct(None, bits, self._floats, width, part, *drawing, cells, is_half)
        self._at = ctypes.byref(self._rows)
        self._slabs: list[Memory] = []
        self._addresses = np.zeros(0, np.uint64)
        self._scratch = np.zeros(0, np.uint8)  # kept: finding fresh memory takes as long as finding equal ids

    @property
    def nbytes(self) -> int:
        """The memory used in addition to the slabs, in bytes."""
        return self._addresses.nbytes

    @property
    def largest(self) -> float:
        """The largest magnitude of any value so far, if values are float16; new rows count from their first step."""
        return magnitude(self._rows.largest)

    def add(self, slab: Memory) -> None:
        """Add a slab, and hold a reference to it."""
        self._slabs.append(slab)
        self._addresses = np.append(self._addresses, np.uint64(slab.ctypes.data))
        self._rows.slabs = self._addresses.ctypes.data

    def lookup(self, index: Index | PlainIndex, ids: Ids, out: Floats, as_zero: bool) -> None:
        """Write the values of each id (n,) into `out` (n, width); a missing id has its initial values, or 0."""
        assert isinstance(index, Index)
        n = len(ids)
        where, to = _address(ids, np.int64), _address(out, np.float32, n * self._width)
        self._loops.table_lookup(index.address, self._at, where, n, as_zero, to)

    def update(
        self,
        index: Index | PlainIndex,
        ids: Ids,
        values: Floats,
        coming: ComingRows,
        step: CompiledStep | None,
    ) -> FoundRows:
        """Find the rows of a batch's ids (n,), and create missing rows while the index has room.

        If a step is given and prepared rows suffice to give every id a row, the same call also takes the step with the
        sums of values (n, width).
        """
        assert isinstance(index, Index)
        n = len(ids)
        if n > MOST_AT_ONCE:
            return _found_plainly(index, ids)
        floats = _address(values, np.float32, n * self._width)
        size = buckets_for(n)
        distinct, order, starts, numbers, fresh, *_ = arrays = self._room(n, size)
        batch = BatchStruct(_address(ids, np.int64), n, *map(_start, arrays))
        batch.size, batch.index = size, index.address
        batch.free, batch.num_free = _start(coming.free), len(coming.free)
        batch.used, batch.most, batch.ready = coming.used, coming.most, coming.ready
        formula = None if step is None else ctypes.byref(_formula(step.formula, step.scoring))
        times = (0, 0) if step is None else (step.tick, step.caught_up)
        g = np.empty(2 * self._width, np.float32)
        self._loops.table_update(ctypes.byref(batch), self._at, floats, formula, *times, g.ctypes.data)
        found = slice(batch.found)
        where = order, starts[: batch.found + 1]
        return FoundRows(
            distinct[found],
            numbers[found],
            fresh[found].view(np.bool_),
            *where,
            batch.made,
            bool(batch.changed),
        )

    def _room(self, n: int, size: int) -> list[npt.NDArray[Any]]:
        """Return the arrays of `struct batch` for n ids, in reused memory."""
        counts = n, n, n + 2, n, n, size, n
        ends = [
            0,
            *accumulate(
                -(-count * kind.itemsize // _LINE) * _LINE for count, kind in zip(counts, _KINDS, strict=True)
            ),
        ]
        if not ends[-1] <= len(self._scratch) <= 4 * ends[-1] + _SMALL:
            self._scratch = np.empty(ends[-1], np.uint8)
        return [
            self._scratch[start : start + count * kind.itemsize].view(kind)
            for start, count, kind in zip(ends, counts, _KINDS, strict=False)
        ]

    def read(self, numbers: Numbers, ids: Ids, out: Floats, as_zero: bool) -> None:
        """Write the values of each row number (n,) into `out` (n, width); ABSENT has its id's initial values, or 0."""
        n = len(numbers)
        where, to = _numbers(numbers), _address(out, np.float32, n * self._width)
        self._loops.rows_read(self._at, where, _address(ids, np.int64, n), n, as_zero, to)

    def gather(self, numbers: Numbers, parts: Floats, ticks: Numbers) -> None:
        """Copy the rows with the given numbers into `parts` (parts, n, part) and their ticks into `ticks` (n,)."""
        self._gather(numbers, None, None, 0, parts, ticks)

    def begin(
        self, numbers: Numbers, ids: Ids, fresh: Flags, tick: int, parts: Floats, ticks: Numbers
    ) -> None:
        """Gather rows; set `fresh` ones (n,) to the initial values of their ids, with states 0 and this tick."""
        n = len(numbers)
        self._gather(numbers, _address(ids, np.int64, n), _address(fresh, np.bool_, n), tick, parts, ticks)

    def scatter(self, numbers: Numbers, parts: Floats, ticks: Numbers) -> None:
        """Write the arrays that `gather` filled back to the rows."""
        n = len(numbers)
        floats = _address(parts, np.float32, n * self._floats)
        self._loops.rows_scatter(self._at, _numbers(numbers), n, floats, _address(ticks, np.uint32, n))

    def ticks(self, numbers: Numbers) -> Numbers:
        """Return, for each row number (n,), the number of the batch that last changed that row."""
        ticks = np.empty(len(numbers), np.uint32)
        self._loops.rows_ticks(self._at, _numbers(numbers), len(numbers), ticks.ctypes.data)
        return ticks

    def set_ticks(self, numbers: Numbers, ticks: Numbers) -> None:
        """Set the tick of each row number (n,): the number of the batch that last changed that row."""
        n = len(numbers)
        self._loops.rows_set_ticks(self._at, _numbers(numbers), n, _address(ticks, np.uint32, n))

    def add_up(self, sums: Sums, which: Ids) -> Floats:
        """Return the summed gradients (n, width) of the distinct ids at the positions `which` (n,)."""
        return added_up(sums, which)

    def change(
        self,
        ids: Ids,
        numbers: Numbers,
        fresh: Flags,
        sums: Sums,
        formula: Formula,
        tick: int,
        caught_up: int,
        scoring: Scoring | None = None,
    ) -> bool:
        """Take a step of rows in place, all of which were last decayed at batch `caught_up`; skip ABSENT ones.

        Return whether the step was taken; the plain form returns False.
        """
        n = len(numbers)
        given = sums_struct(sums, self._width)
        made = _formula(formula, scoring)
        g = np.empty(2 * self._width, np.float32)
        self._loops.rows_change(
            self._at,
            _numbers(numbers),
            _address(ids, np.int64, n),
            _address(fresh, np.bool_, n),
            n,
            ctypes.byref(given),
            ctypes.byref(made),
            tick,
            caught_up,
            g.ctypes.data,
        )
        return True

    def _gather(
        self, numbers: Numbers, ids: int | None, fresh: int | None, tick: int, parts: Floats, ticks: Numbers
    ) -> None:
        n = len(numbers)
        floats = _address(parts, np.float32, n * self._floats)
        self._loops.rows_gather(
            self._at, _numbers(numbers), n, ids, fresh, tick, floats, _address(ticks, np.uint32, n)
        )


class PlainRows:
    """The operations of `CompiledRows` in plain numpy."""

    def __init__(
        self, bits: int, width: int, parts: int, initial: Initial, per_row: int = 0, *, is_half: bool = False
    ) -> None:
        self._bits, self._width, self._initial = bits, width, initial
        self._shape, self._is_half = (parts, width + per_row), is_half
        self._cells = cells_of(width, parts * (width + per_row), is_half=is_half)
        self._slabs: list[tuple[Floats, Numbers]] = []
        self._largest = self.nbytes = 0

    @property
    def largest(self) -> float:
        """Return the largest magnitude of any value so far; see `CompiledRows.largest`."""
        return magnitude(self._largest)

    def add(self, slab: Memory) -> None:
        """Add a slab, without copying it."""
        end = 4 * self._cells << self._bits
        self._slabs.append((slab[:end].view(np.float32).reshape(-1, self._cells), slab[end:].view(np.uint32)))

    def lookup(self, index: Index | PlainIndex, ids: Ids, out: Floats, as_zero: bool) -> None:
        """Write the values of each id (n,) into `out` (n, width); a missing id has its initial values, or 0."""
        self.read(index.find(ids), ids, out, as_zero)

    def update(
        self,
        index: Index | PlainIndex,
        ids: Ids,
        values: Floats,
        coming: ComingRows,
        step: CompiledStep | None,
    ) -> FoundRows:
        """Find the rows of a batch's ids; unlike the compiled form, create and change none."""
        return _found_plainly(index, ids)

    def read(self, numbers: Numbers, ids: Ids, out: Floats, as_zero: bool) -> None:
        """Write the values of each row number (n,) into `out` (n, width); ABSENT has its id's initial values, or 0."""
        absent = numbers == ABSENT
        out[absent] = 0.0 if as_zero else self._drawn(ids[absent])
        here = np.flatnonzero(~absent)
        for which, places, cells, _ in self._by_slab(numbers[here]):
            out[here[which]] = self._unpacked(cells[places])[0, :, : self._width]

    def gather(self, numbers: Numbers, parts: Floats, ticks: Numbers) -> None:
        """Copy the rows with the given numbers into `parts` and their ticks into `ticks`; see `CompiledRows.gather`."""
        self._gather(np.arange(len(numbers)), numbers, parts, ticks)

    def begin(
        self, numbers: Numbers, ids: Ids, fresh: Flags, tick: int, parts: Floats, ticks: Numbers
    ) -> None:
        """Gather rows, and give new ones the initial values of their ids; see `CompiledRows.begin`."""
        old = np.flatnonzero(~fresh)
        self._gather(old, numbers[old], parts, ticks)
        parts[:, fresh] = 0.0
        parts[0, fresh, : self._width] = self._drawn(ids[fresh])
        ticks[fresh] = tick

    def scatter(self, numbers: Numbers, parts: Floats, ticks: Numbers) -> None:
        """Write the arrays that `gather` filled back to the rows."""
        found = packed(parts, self._width, is_half=self._is_half)
        if self._is_half:
            self._largest = largest_of(found.view(np.uint16)[:, : self._width], self._largest)
        for which, places, cells, theirs in self._by_slab(numbers):
            cells[places] = found[which]
            theirs[places] = ticks[which]

    def ticks(self, numbers: Numbers) -> Numbers:
        """Return, for each row number (n,), the number of the batch that last changed that row."""
        ticks = np.empty(len(numbers), np.uint32)
        for which, places, _, theirs in self._by_slab(numbers):
            ticks[which] = theirs[places]
        return ticks

    def set_ticks(self, numbers: Numbers, ticks: Numbers) -> None:
        """Set the tick of each row number (n,): the number of the batch that last changed that row."""
        for which, places, _, theirs in self._by_slab(numbers):
            theirs[places] = ticks[which]

    def add_up(self, sums: Sums, which: Ids) -> Floats:
        """Return the summed gradient of each selected distinct id; see `CompiledRows.add_up`."""
        return added_up_plainly(sums, which)

    def change(self, *_: object) -> bool:
        """Apply one step of the update rule to rows, in place; see `CompiledRows.change`."""
        return False

    def _drawn(self, ids: Ids) -> Floats:
        rows = self._initial.rows(ids, self._width)
        return widened(narrowed(rows)) if self._is_half else rows

    def _unpacked(self, cells: Floats) -> Floats:
        return unpacked(cells, self._shape, self._width, is_half=self._is_half)

    def _gather(self, to: Ids, numbers: Numbers, parts: Floats, ticks: Numbers) -> None:
        for which, places, cells, theirs in self._by_slab(numbers):
            parts[:, to[which]] = self._unpacked(cells[places])
            ticks[to[which]] = theirs[places]

    def _by_slab(self, numbers: Numbers) -> Iterator[tuple[Ids, Numbers, Floats, Numbers]]:
        """Yield for each slab: which of the rows it contains, their positions in it, its cells and its ticks."""
        slabs, places = numbers >> np.uint32(self._bits), numbers & np.uint32((1 << self._bits) - 1)
        for slab in np.unique(slabs).tolist():
            which = np.flatnonzero(slabs == slab)
            yield which, places[which], *self._slabs[slab]


def rows_of(
    bits: int, width: int, parts: int, initial: Initial, per_row: int, *, is_half: bool = False
) -> CompiledRows | PlainRows:
    """Return operations on rows: compiled if this machine has the library, otherwise plain."""
    form = PlainRows if KERNELS.loaded is None else CompiledRows
    return form(bits, width, parts, initial, per_row, is_half=is_half)


def _found_plainly(index: Index | PlainIndex, ids: Ids) -> FoundRows:
    _, distinct, order, starts = grouped(ids)
    return FoundRows(distinct, index.find(distinct), np.zeros(len(distinct), np.bool_), order, starts)


def _formula(given: Formula, scoring: Scoring | None) -> FormulaStruct:
    made = FormulaStruct(given.kind, tuple(given.factors), given.clip, given.l1, given.l2)
    if scoring is not None:
        weights = None if scoring.weights is None else _address(scoring.weights, np.float32)
        made.kept = ScoreStruct(scoring.at, weights, tuple(scoring.powers))  # as long as the formula
        made.score = ctypes.addressof(made.kept)
    return made


def _start(array: npt.NDArray[Any]) -> int:
    return array.ctypes.data


def _numbers(numbers: Numbers) -> int:
    return _address(numbers, np.uint32)
