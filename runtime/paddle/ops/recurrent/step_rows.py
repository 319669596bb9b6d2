# SPDX-License-Identifier: Apache-2.0
"""StepRows: the row numbers of each step, for sequences of rows or of sequences.

Values with one entry per sequence are ranked: the longest sequence comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.entries import chosen, count_of, taken
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import (
    Lod,
    LoDArray,
    Offsets,
    ends_of,
    lod_of,
    plain,
    sequences,
    with_lod,
    zeros_like,
)
from paddle.ops.base.segments import TimeSteps, at, lengths, ranges


class StepRows(NamedTuple):
    """The row numbers of sequences in time order: all first steps, then all second steps, and so on.

    Attributes:
        rows: (rows,) row numbers, step by step.
        bounds: the rows of step t are rows[bounds[t]:bounds[t + 1]].
        levels: offsets, from 0, of the sequences that each step reads; empty where an item is a row.
    """

    rows: Offsets
    bounds: list[int]
    levels: list[Offsets]

    @staticmethod
    def of(steps: TimeSteps, inner: Lod = ()) -> StepRows:
        """Return the rows of the steps; if items are sequences, `inner` is the LoD level below the steps."""
        if not inner:
            return StepRows(steps.rows, steps.bounds.tolist(), [])
        (level,) = inner
        counts = lengths(level)[steps.rows]
        ends = ends_of(counts)
        bounds = ends[steps.bounds].tolist()
        parts = [ends[part.start : part.stop + 1] - ends[part.start] for part in steps]
        return StepRows(ranges(level[:-1][steps.rows], counts), bounds, parts)

    def cut(self, x: Any) -> list[Any]:
        """Return the items of x at each step."""
        ordered = plain(x)[at(self.rows, plain(x))]
        parts = [ordered[start:end] for start, end in zip(self.bounds[:-1], self.bounds[1:], strict=True)]
        return [*map(LoDArray, parts, [(level,) for level in self.levels])] if self.levels else parts

    def joined(self, parts: Sequence[Array | None], like: Array) -> Array:
        """Return rows shaped like x, assembled from those of each step; zeros for a step without any (None)."""
        xp = array_module(like)
        out = xp.zeros_like(like) if any(part is None for part in parts) else xp.empty_like(like)
        for start, end, part in zip(self.bounds[:-1], self.bounds[1:], parts, strict=True):
            if part is not None:
                out[at(self.rows[start:end], out)] = part
        return out


def collected(parts: Sequence[Any], steps: TimeSteps, outer: Offsets) -> tuple[Any, Lod]:
    """Return the values of all steps as sequences, and the level below the steps if values are sequences."""
    rows = [plain(part) for part in parts]
    xp = array_module(rows[0])
    ordered = xp.concatenate(rows)
    inner: Lod = ()
    if isinstance(parts[0], LoDArray):
        counts = np.empty(int(steps.bounds[-1]), np.int64)
        counts[steps.rows] = np.concatenate([lengths(part.lod[0]) for part in parts])
        inner = (ends_of(counts),)
    back = xp.empty_like(ordered)
    back[at(StepRows.of(steps, inner).rows, ordered)] = ordered
    return with_lod(back, (outer, *inner)), inner


def steps_of(inputs: list[Any], reverse: bool) -> TimeSteps:
    """Return the time steps of the input sequences.

    Raises:
        InputError: an input has no sequences, or different ones from the first input.
    """
    for x in inputs:
        sequences(x, "Inputs")
    lods = [lod_of(x) for x in inputs]
    if any(len(lod) > 2 for lod in lods):
        raise InputError("step inputs must have one or two levels of LoD")
    for lod in lods[1:]:
        if not np.array_equal(lods[0][0], lod[0]):
            counts = [np.diff(each[0]).tolist() for each in (lods[0], lod)]
            what = ["sub-sequences" if len(each) == 2 else "rows" for each in (lods[0], lod)]
            raise InputError(
                "step inputs must have the same number of items in each sequence: one has "
                f"{counts[0]} {what[0]}, another has {counts[1]} {what[1]}"
            )
    return TimeSteps.of(lods[0][0], reverse)


def ranked(value: Any, steps: TimeSteps) -> Any:
    """Return a static input or a state with its entries sorted by length of their sequence, longest first."""
    if count_of(value) != len(steps.order):
        what = "sequences" if lod_of(value) else "rows"
        raise InputError(f"there are {len(steps.order)} sequences, but a state has {count_of(value)} {what}")
    return taken(value, steps.order)


def unranked(value: Any, parts: Sequence[Array | None], steps: TimeSteps) -> Array:
    """Return the gradient of a value that `ranked` sorted: the sum over steps, in the original order."""
    ordered = zeros_like(value)
    for part in parts:
        if part is not None:
            ordered[: len(part)] += part
    rows, _ = chosen(lod_of(value), steps.order)
    dx = zeros_like(value)
    dx[at(rows, dx)] = ordered
    return dx
