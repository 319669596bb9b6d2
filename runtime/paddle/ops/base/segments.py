# SPDX-License-Identifier: Apache-2.0
"""Functions on segments, such as sums and maxima. A segment is the rows of one sequence in an array of sequences.

Offsets and row numbers are host arrays; `at` moves row numbers to the device of the rows.

The entries of a value are its rows or, if it has LoD, its outermost sequences with their contents.

TimeSteps orders the rows of sequences by time, so that a recurrent layer processes one step of all sequences together.

The longest sequence comes first, so the sequences that are still running at a step are always the first few. The state
of a step is therefore a prefix of the previous state, and no step needs a mask. For sequences a, bbb, cc of lengths 1,
3, 2:

    rows of x     0:a0  1:b0  2:b1  3:b2  4:c0  5:c1     offsets  0  1  4  6
    order         1 (b), 2 (c), 0 (a)
    by time       b0 c0 a0 | b1 c1 | b2                  rows     1 4 0 | 2 5 | 3
    bounds        0          3       5    6
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host
from paddle.ops.base.errors import InputError, RowError
from paddle.ops.base.lod import Lod, LoDArray, Offsets, ends_of, lod_of, plain
from paddle.ops.base.selected_rows import SelectedRows, merge_rows
from paddle_node.contract.classes import dataclass


def lengths(offsets: Offsets) -> Offsets:
    """Return the number of rows of each sequence, given the offsets at which sequences start."""
    return offsets[1:] - offsets[:-1]


def owners(offsets: Offsets) -> Offsets:
    """Return the index of the sequence that contains each row, (rows,)."""
    return np.repeat(np.arange(len(offsets) - 1), lengths(offsets))


def positions(offsets: Offsets) -> Offsets:
    """Return the position of each row within its sequence, (rows,), from 0."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths(offsets))


def ranges(starts: Offsets, counts: Offsets) -> Offsets:
    """Concatenate the integer ranges from starts[i] to starts[i] + counts[i] - 1."""
    # ends − counts is the start of each range in the result: the running number minus that, plus the range's start.
    ends = np.cumsum(counts)
    return np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + counts, counts)


def reverse(offsets: Offsets) -> Offsets:
    """Return row numbers such that `x[result]` has the rows of each sequence in reverse order."""
    # Position p of a sequence from b to e takes row b + e − 1 − p, where p itself is a row number.
    return np.repeat(offsets[:-1] + offsets[1:], lengths(offsets)) - 1 - np.arange(offsets[-1])


def at(rows: Offsets, like: Array) -> Any:
    """Convert row numbers to an array on the device of `like`."""
    return from_host(rows, like)


def column(values: Offsets, like: Array) -> Array:
    """Reshape one number per sequence so that it broadcasts with (n, ...) rows such as `like`, in their dtype."""
    return from_host(values.astype(like.dtype), like).reshape(-1, *(1,) * (like.ndim - 1))


def spread(values: Array, offsets: Offsets) -> Array:
    """Repeat the value of each sequence for all of its rows: (n, ...) -> (rows, ...)."""
    return values.repeat(lengths(offsets).tolist(), axis=0)


def segment_sum(x: Array, offsets: Offsets) -> Array:
    """Return the sum of each sequence's rows, (n, ...); zeros for an empty sequence."""
    xp = array_module(x)
    if xp is not np:
        # cupy has no reduceat: a sum is the difference of two running sums, in float64 for precision.
        running = xp.zeros((len(x) + 1, *x.shape[1:]), xp.float64)
        xp.cumsum(x, axis=0, out=running[1:])
        ends = at(offsets, x)
        return (running[ends[1:]] - running[ends[:-1]]).astype(x.dtype)
    return _reduced(np.add, x, offsets, 0)


def segment_max(x: Array, offsets: Offsets, empty: float) -> Array:
    """Return the maximum of each sequence's rows, (n, ...), or `empty` for an empty sequence."""
    xp = array_module(x)
    if xp is np:
        return _reduced(np.maximum, x, offsets, empty)
    longest = int(lengths(offsets).max(initial=0))
    padded = xp.full((len(offsets) - 1, longest + 1, *x.shape[1:]), -xp.inf, x.dtype)
    padded[at(owners(offsets), x), at(positions(offsets), x)] = x
    padded[at(np.flatnonzero(lengths(offsets) == 0), x), 0] = empty
    return padded.max(axis=1)


def scatter_sum(values: Array, rows: Array, count: int) -> Array:
    """Return (count, ...) rows with the sum of the values of each row number, and zeros in all other rows."""
    out: Array = array_module(values).zeros((count, *values.shape[1:]), values.dtype)
    unique, summed = merge_rows(rows, values)
    out[unique] = summed
    return out


def table_gradient(rows: Array, values: Array, like: Array, is_sparse: bool) -> Array | SelectedRows:
    """Sum values by row number, as the gradient of the table `like`; return selected rows if is_sparse."""
    if is_sparse:
        return SelectedRows(*merge_rows(rows, values), len(like))
    return scatter_sum(values, rows, len(like))


def _reduced(function: np.ufunc, x: Array, offsets: Offsets, empty: float) -> Array:
    # For an empty segment, reduceat returns the row at its start; it fails at a start after the last row.
    starts = offsets[:-1]
    filled = lengths(offsets) > 0
    if filled.all() and len(starts):
        return function.reduceat(x, starts, axis=0)
    out = np.full((len(starts), *x.shape[1:]), empty, x.dtype)
    if filled.any():
        out[filled] = function.reduceat(x, starts[filled], axis=0)
    return out


@dataclass(frozen=True)
class TimeSteps:
    """The row numbers of the sequences' rows, grouped by time step.

    Attributes:
        order: (n,) sequences, longest first.
        rows: (rows,) row numbers, step by step.
        bounds: (steps + 1,); step t is bounds[t] to bounds[t + 1] of `rows`.
    """

    order: Offsets
    rows: Offsets
    bounds: Offsets

    @staticmethod
    def of(offsets: Offsets, is_reverse: bool = False) -> TimeSteps:
        """Return the time steps from the first row of each sequence to its last; in reverse order if is_reverse."""
        counts = lengths(offsets)
        order = np.argsort(-counts, kind="stable")
        longest = int(counts.max(initial=0))
        # active[t]: the number of sequences longer than t, which are those with a row at step t.
        active = len(counts) - np.searchsorted(np.sort(counts), np.arange(longest), side="right")
        bounds = np.concatenate([[0], active.cumsum()])
        step = np.repeat(np.arange(longest), active)
        # The i-th row of a step belongs to the i-th longest sequence.
        chosen = order[np.arange(bounds[-1]) - np.repeat(bounds[:-1], active)]
        rows = offsets[1:][chosen] - 1 - step if is_reverse else offsets[:-1][chosen] + step
        return TimeSteps(order, rows, bounds)

    def __iter__(self) -> Iterator[slice]:
        ends = self.bounds.tolist()
        return map(slice, ends[:-1], ends[1:])

    def __reversed__(self) -> Iterator[slice]:
        return iter(list(self)[::-1])

    def by_time(self, x: Array) -> Array:
        """Reorder rows from the order of sequences to time order; return a copy."""
        return x[at(self.rows, x)]

    def by_sequence(self, ordered: Array) -> Array:
        """Reorder rows from time order to the order of the sequences, the inverse of `by_time`."""
        x: Array = array_module(ordered).empty_like(ordered)
        x[at(self.rows, ordered)] = ordered
        return x

    def first(self, state: Array | None, width: int, like: Array) -> Array:
        """Return the initial state, longest sequence first; zeros (sequences, width) if no state is given."""
        if state is None:
            return array_module(like).zeros((len(self.order), width), like.dtype)
        return state[at(self.order, state)]

    def restored(self, state: Array) -> Array:
        """Reorder a state to the original order of the sequences, the inverse of `first`."""
        restored: Array = array_module(state).empty_like(state)
        restored[at(self.order, state)] = state
        return restored

    def before(self, states: Array, first: Array) -> Array:
        """Return the state before each row, in time order: the previous step's state or, in the first step, `first`."""
        count = int(self.bounds[1]) if len(self.bounds) > 1 else 0
        active = np.diff(self.bounds)[1:]
        # Row i of step t follows row i of step t − 1, so its position is i after the start of step t − 1.
        previous = np.arange(self.bounds[-1] - count) - np.repeat(self.bounds[1:-1] - count, active)
        previous += np.repeat(self.bounds[:-2], active)
        return array_module(states).concatenate([first[:count], states[at(previous, states)]])


def require_within(
    ids: Any, count: int, slot: str, what: str = "label", of: str = "", fits: Any = None
) -> None:
    """Check that all numbers are in [0, count), except where the mask `fits`, which has the same size, is true.

    Args:
        ids: (rows, ...) whole numbers.
        slot: the input that holds the numbers.
        what: the noun for one number, for messages.
        of: the name of the range, such as "the rows of the table".

    Raises:
        InputError: `ids` are not whole numbers.
        RowError: a number is out of range; the message names the first such number.
    """
    if ids.dtype.kind not in "iu":
        raise InputError(f"{slot}: expected whole numbers, got {ids.dtype}")
    flat = ids.reshape(-1)
    if not len(flat) or (int(flat.min()) >= 0 and int(flat.max()) < count):
        return
    bad = (flat < 0) | (flat >= count)
    if fits is not None:
        bad &= ~fits
    if bad.any():
        at = int(bad.argmax())
        suffix = f", {of}" if of else ""
        row = at * len(ids) // len(flat)
        raise RowError(slot, row, f"{what} {int(flat[at])} is not in [0, {count}){suffix}")


def count_of(value: Any) -> int:
    """Return the number of outermost sequences of a value; without sequences, the number of rows."""
    lod = lod_of(value)
    return len(lod[0]) - 1 if lod else len(value)


def leading(value: Any, count: int) -> Any:
    """Return the first `count` entries of a value: outermost sequences or, without LoD, rows."""
    lod = []
    for level in lod_of(value):
        lod.append(level[: count + 1])
        count = int(level[count])
    data = value.data if lod else value
    return LoDArray(data[:count], tuple(lod)) if lod else data[:count]


def chosen(lod: Lod, entries: Offsets) -> tuple[Offsets, Lod]:
    """Return the row numbers of the given entries, which may repeat, and the LoD levels of these entries."""
    found = []
    for level in lod:
        counts = lengths(level)[entries]
        found.append(ends_of(counts))
        entries = ranges(level[:-1][entries], counts)
    return entries, tuple(found)


def taken(value: Any, entries: Offsets) -> Any:
    """Select entries of a value, in the given order."""
    rows, lod = chosen(lod_of(value), entries)
    return LoDArray(value.data[at(rows, value.data)], lod) if lod else value[at(rows, value)]


def joined(lod: Lod) -> Offsets:
    """Return the offsets of the outermost sequences, counted in rows."""
    offsets = lod[0]
    for level in lod[1:]:
        offsets = level[offsets]
    return offsets


def as_before(after: Any, before: Any) -> Any:
    """Return the state after a step as rows or sequences, with its own LoD or else the LoD of the previous state."""
    if not isinstance(before, LoDArray):
        return plain(after)
    lod = lod_of(after)
    if lod:
        if len(lod[0]) != len(before.lod[0]):
            raise InputError(
                f"a step must not change a state's number of sequences: {len(before.lod[0]) - 1} before, "
                f"{len(lod[0]) - 1} after"
            )
        return after
    if len(after) != len(before):
        raise InputError(
            f"a step must not change a state's number of rows: {len(before)} before, {len(after)} after"
        )
    return LoDArray(after, before.lod)
