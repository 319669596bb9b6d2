# SPDX-License-Identifier: Apache-2.0
"""sequence_reverse, _slice, _erase, _enumerate and _scatter: reverse sequences, or select or change their rows.

sequence_enumerate: for each id, the window that begins with it in its sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import LoDArray, Offsets, ends_of, plain, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import at, lengths, owners, ranges, require_within, reverse, scatter_sum
from paddle.ops.base.shapes import any_rows


@operator("sequence_reverse", "X+ -> Y+", infer="X")
def sequence_reverse(x: Any) -> LoDArray:
    """Return X with the rows of each sequence in reverse order, (rows, ...)."""
    data, offsets = sequences(x, "X")
    return LoDArray(data[at(reverse(offsets), data)], x.lod)


@gradient("sequence_reverse", "X+ Y@GRAD -> X@GRAD")
def sequence_reverse_grad(x: Any, dy: Array) -> Array:
    """Return dX: the rows of dOut, reversed in each sequence."""
    turned: Array = dy[at(reverse(sequences(x, "X")[1]), dy)]
    return turned


@operator("sequence_slice", "X+ Offset Length -> Out+", infer=any_rows)
def sequence_slice(x: Any, offset: Array, length: Array) -> LoDArray:
    """Return a slice of each sequence i: Length[i] rows from row Offset[i] on.

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
            f"sequence {bad} has {lengths(offsets)[bad]} rows, so {counts[bad]} rows from row "
            f"{starts[bad]} on are out of range"
        )
    return ranges(offsets[:-1] + starts, counts), counts


@operator(
    "sequence_enumerate",
    "X+ -> Out+",
    attrs={"win_size": int, "pad_value": 0},
    infer="X(N, ...) -> X(N, win_size)",
)
def sequence_enumerate(x: Any, *, win_size: int, pad_value: int) -> LoDArray:
    """Return the window of win_size ids from each id on: X[t], ..., X[t + win_size - 1], padded with pad_value."""
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
