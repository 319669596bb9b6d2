# SPDX-License-Identifier: Apache-2.0
"""sequence_best, sequence_cut and sequence_choose: select the best positions, slices, or sub-sequences of sequences.

Positions are numbers (n, k) of any dtype, k per sequence or sub-sequence; -1 ends a row early.

sequence_reverse, _slice, _erase, _enumerate and _scatter: reverse sequences, or select or change their rows.
sequence_enumerate: for each id, the window that begins with it in its sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import (
    at,
    chosen,
    lengths,
    owners,
    positions,
    ranges,
    require_within,
    reverse,
    scatter_sum,
)
from paddle.ops.base.shapes import any_rows

_NONE = -1


@operator("sequence_best", "X+ -> Out", attrs={"k": Limit(int, least=1)}, infer="-> X(-1, k, lod=0)")
def sequence_best(x: Any, *, k: int) -> Array:
    """Return the positions (n, k) of the k largest numbers in each sequence of the last level, descending, then -1.

    Equal numbers are in order of position. X has one number per row.
    """
    data, offsets = sequences(x, "X")
    scores = to_host(data)
    if scores.size != len(scores):
        raise InputError(f"X must have one number per row, got {tuple(scores.shape)}")
    owner = owners(offsets)
    order = np.lexsort((-scores.reshape(-1), owner))  # stable, so that rows stay within their sequences
    rank = positions(offsets)
    best = rank < k
    out = np.full((len(offsets) - 1, k), _NONE, scores.dtype)
    out[owner[best], rank[best]] = (order - offsets[:-1][owner])[best]
    return from_host(out, data)


@operator("sequence_cut", "X+ Starts? Ends? -> Out+", infer=any_rows)
def sequence_cut(x: Any, starts: Array | None, ends: Array | None) -> LoDArray:
    """Cut slices from each sequence of the last level of X, from row Starts to row Ends, inclusive.

    Without Starts or Ends, slices begin or end where the sequence does. Each sequence has a row of positions and gives
    as many slices as the row has. Slices are sequences; they stay grouped if X has two levels.

    Raises:
        InputError: a slice has no rows, or rows outside its sequence.
    """
    data, _ = sequences(x, "X")
    rows, lod = _pieces(x, starts, ends)
    return LoDArray(data[at(rows, data)], lod)


@gradient("sequence_cut", "X+ Starts? Ends? Out@GRAD -> X@GRAD")
def sequence_cut_grad(x: Any, starts: Array | None, ends: Array | None, dout: Array) -> Array:
    """Return dX, the sum of dOut over all slices that contain the row."""
    rows, _ = _pieces(x, starts, ends)
    return scatter_sum(dout, at(rows, dout), len(plain(x)))


@operator("sequence_choose", "X+ Chosen -> Out+", infer=any_rows)
def sequence_choose(x: Any, chosen: Array) -> LoDArray:
    """Select sub-sequences: for each sequence i of X, those at the positions Chosen[i]; X has two levels.

    Raises:
        InputError: X has one level, or a position in Chosen is beyond the last sub-sequence.
    """
    data = plain(x)
    rows, lod = _sub_sequences(x, chosen)
    return LoDArray(data[at(rows, data)], lod)


@gradient("sequence_choose", "X+ Chosen Out@GRAD -> X@GRAD")
def sequence_choose_grad(x: Any, chosen: Array, dout: Array) -> Array:
    """Return dX, the sum of dOut over all copies of a sub-sequence."""
    rows, _ = _sub_sequences(x, chosen)
    return scatter_sum(dout, at(rows, dout), len(plain(x)))


def places(values: Array, count: int, what: str) -> tuple[Offsets, Offsets]:
    """Return the numbers that precede the first -1 in each row, concatenated, and the offset of each row in the result.

    Raises:
        InputError: the number of rows is not `count`.
    """
    table = to_host(values).reshape(len(values), -1).astype(np.int64)
    if len(table) != count:
        raise InputError(f"{what}: expected {count} rows, one per sequence, got {len(table)}")
    used = np.logical_and.accumulate(table != _NONE, axis=1)
    return table[used], ends_of(used.sum(axis=1))


def _pieces(x: Any, starts: Array | None, ends: Array | None) -> tuple[Offsets, Lod]:
    level = x.lod[-1]
    if starts is None and ends is None:
        raise InputError("give Starts, Ends, or both")
    found = [
        places(each, len(level) - 1, what)
        for each, what in ((starts, "Starts"), (ends, "Ends"))
        if each is not None
    ]
    if len(found) == 2 and not np.array_equal(found[0][1], found[1][1]):
        at_row = int((np.diff(found[0][1]) != np.diff(found[1][1])).argmax())
        raise InputError(
            f"row {at_row} of Starts and row {at_row} of Ends must have the same number of positions"
        )
    per_sequence = found[0][1]
    owner = owners(per_sequence)
    size = lengths(level)[owner]
    first = found[0][0] if starts is not None else np.zeros_like(size)
    last = found[-1][0] if ends is not None else size - 1
    wrong = (first < 0) | (last >= size) | (last < first)
    if wrong.any():
        bad = int(wrong.argmax())
        what = "sub-sequence" if len(x.lod) > 1 else "sequence"
        raise InputError(
            f"{what} {owner[bad]} has {size[bad]} rows, so rows {first[bad]} to {last[bad]} are out of range"
        )
    counts = last - first + 1
    outer = tuple(per_sequence[each] for each in x.lod[:-1])
    return ranges(level[:-1][owner] + first, counts), (*outer, ends_of(counts))


def _sub_sequences(x: Any, which: Array) -> tuple[Offsets, Lod]:
    lod = lod_of(x)
    if len(lod) != 2:
        raise InputError(f"X must have two levels of LoD (sequences of sequences), got {len(lod)}")
    places_, outer = places(which, len(lod[0]) - 1, "sub-sequences")
    owner = owners(outer)
    wrong = (places_ < 0) | (places_ >= lengths(lod[0])[owner])
    if wrong.any():
        bad = int(wrong.argmax())
        raise InputError(
            f"sequence {owner[bad]} has {lengths(lod[0])[owner[bad]]} sub-sequences, so index "
            f"{places_[bad]} is out of range"
        )
    rows, inner = chosen(lod[1:], lod[0][:-1][owner] + places_)
    return rows, (outer, *inner)


@operator("sequence_reverse", "X+ -> Y+", infer="X")
def sequence_reverse(x: Any) -> LoDArray:
    """Return X with the rows of each sequence in reverse order, (rows, ...)."""
    data, offsets = sequences(x, "X")
    return LoDArray(data[at(reverse(offsets), data)], x.lod)


@gradient("sequence_reverse", "X+ Y@GRAD -> X@GRAD")
def sequence_reverse_grad(x: Any, dy: Array) -> Array:
    """Return dX: the rows of dOut, reversed in each sequence."""
    return dy[at(reverse(sequences(x, "X")[1]), dy)]


@operator("sequence_slice", "X+ Offset Length -> Out+", infer=any_rows)
def sequence_slice(x: Any, offset: Array, length: Array) -> LoDArray:
    """Return a slice of each sequence i: Length[i] rows starting at row Offset[i].

    Raises:
        InputError: a slice exceeds its sequence.
    """
    data, _ = sequences(x, "X")
    rows, counts = _slices(x, offset, length)
    return LoDArray(data[at(rows, data)], (*x.lod[:-1], ends_of(counts)))


@gradient("sequence_slice", "X+ Offset Length Out@GRAD -> X@GRAD")
def sequence_slice_grad(x: Any, offset: Array, length: Array, dout: Array) -> Array:
    """Return dX: dOut at the rows of the slices, and zeros elsewhere."""
    rows, _ = _slices(x, offset, length)
    dx: Array = array_module(x.data).zeros_like(x.data)
    dx[at(rows, dx)] = dout
    return dx


@operator("sequence_erase", "X+ -> Out+", attrs={"tokens": tuple}, infer=any_rows)
def sequence_erase(x: Any, *, tokens: tuple[int, ...]) -> LoDArray:
    """Remove the rows whose id is one of `tokens` from each sequence."""
    data, offsets = sequences(x, "X")
    kept = ~np.isin(to_host(data).reshape(len(data)), tokens)
    before = np.concatenate([[0], kept.cumsum()])
    return LoDArray(data[at(np.flatnonzero(kept), data)], (*x.lod[:-1], before[offsets]))


def _slices(x: Any, offset: Array, length: Array) -> tuple[Offsets, Offsets]:
    offsets = sequences(x, "X")[1]
    starts = to_host(offset).reshape(-1).astype(np.int64)
    counts = to_host(length).reshape(-1).astype(np.int64)
    if len(starts) != len(offsets) - 1 or len(counts) != len(starts):
        raise InputError(
            f"expected an Offset and a Length for each of {len(offsets) - 1} sequences, got {len(starts)} and "
            f"{len(counts)}"
        )
    wrong = (starts < 0) | (counts < 0) | (starts + counts > lengths(offsets))
    if wrong.any():
        bad = int(wrong.argmax())
        raise InputError(
            f"sequence {bad} has {lengths(offsets)[bad]} rows, so {counts[bad]} rows "
            f"starting at row {starts[bad]} are out of range"
        )
    return ranges(offsets[:-1] + starts, counts), counts


@operator("sequence_enumerate", "X+ -> Out+", attrs={"win_size": int}, infer="X(N, ...) -> X(N, win_size)")
def sequence_enumerate(x: Any, *, win_size: int, pad_value: int = 0) -> LoDArray:
    """Return the window of win_size ids that starts at each id: X[t], ..., X[t + win_size - 1], padded by pad_value."""
    data, offsets = sequences(x, "X")
    rows = np.arange(len(data))[:, None] + np.arange(win_size)
    ends = np.repeat(offsets[1:], lengths(offsets))[:, None]
    xp = array_module(data)
    table = xp.concatenate([data.reshape(-1), xp.full(1, pad_value, data.dtype)])
    return LoDArray(table[at(np.where(rows < ends, rows, len(data)), data)], x.lod)


@operator("sequence_scatter", "X Ids+ Updates+ -> Out+", infer="X")
def sequence_scatter(x: Array, ids: Any, updates: Any) -> Array:
    """Scatter updates to columns: Out[i, Ids] = X[i, Ids] + Updates, for the ids of sequence i; equal ids add up."""
    places = _places(x, ids)
    added = scatter_sum(plain(updates).reshape(-1), places, x.size)
    return x + added.reshape(x.shape)


@gradient("sequence_scatter", "X Ids+ Updates Out@GRAD -> X@GRAD Updates@GRAD")
def sequence_scatter_grad(x: Array, ids: Any, updates: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX = dOut, dUpdates = dOut at the scattered positions."""
    return dout, dout.reshape(-1)[_places(x, ids)].reshape(updates.shape)


def _places(x: Array, ids: Any) -> Array:
    """Return the positions in the raveled X.

    Raises:
        InputError: the numbers of sequences and rows differ, or an id is not a column.
    """
    data, offsets = sequences(ids, "Ids")
    columns = data.reshape(-1)
    if len(offsets) - 1 != len(x):
        raise InputError(f"Ids has {len(offsets) - 1} sequences, but X has {len(x)} rows")
    require_within(data, x.shape[1], "Ids", "id")
    return from_host(owners(offsets) * x.shape[1], columns) + columns
