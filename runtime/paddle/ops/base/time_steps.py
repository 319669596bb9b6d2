# SPDX-License-Identifier: Apache-2.0
"""TimeSteps: rows of sequences put in order of time, so that a recurrent layer takes one step of all of them at once.

The longest sequence comes first; those that still go on at a step are then always the first few. So the state of a
step is a prefix of the state before, and no step needs a mask. Sequences a, bbb, cc of lengths 1, 3, 2:

    rows of x     0:a0  1:b0  2:b1  3:b2  4:c0  5:c1     offsets  0  1  4  6
    order         1 (b), 2 (c), 0 (a)
    by time       b0 c0 a0 | b1 c1 | b2                  rows     1 4 0 | 2 5 | 3
    bounds        0          3       5    6
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.lod import Offsets
from paddle.ops.base.segments import at, lengths


@dataclass(frozen=True)
class TimeSteps:
    """Where the rows of each step come from.

    Attributes:
        order: (n,) sequences, longest first.
        rows: (rows,) row numbers, step by step.
        bounds: (steps + 1,) step t is bounds[t] to bounds[t + 1] of `rows`.
    """

    order: Offsets
    rows: Offsets
    bounds: Offsets

    @staticmethod
    def of(offsets: Offsets, is_reverse: bool = False) -> TimeSteps:
        """Return the steps from the first row of each sequence to its last, or back if is_reverse."""
        counts = lengths(offsets)
        order = np.argsort(-counts, kind="stable")
        longest = int(counts.max(initial=0))
        # active[t]: how many sequences are longer than t, which are those that have a row at step t.
        active = len(counts) - np.searchsorted(np.sort(counts), np.arange(longest), side="right")
        bounds = np.concatenate([[0], active.cumsum()])
        step = np.repeat(np.arange(longest), active)
        # The i-th row of a step is of the i-th longest sequence.
        chosen = order[np.arange(bounds[-1]) - np.repeat(bounds[:-1], active)]
        rows = offsets[1:][chosen] - 1 - step if is_reverse else offsets[:-1][chosen] + step
        return TimeSteps(order, rows, bounds)

    def __iter__(self) -> Iterator[slice]:
        ends = self.bounds.tolist()
        return map(slice, ends[:-1], ends[1:])

    def __reversed__(self) -> Iterator[slice]:
        return iter(list(self)[::-1])

    def by_time(self, x: Array) -> Array:
        """Return a copy of the rows in order of time."""
        ordered: Array = x[at(self.rows, x)]
        return ordered

    def by_sequence(self, ordered: Array) -> Array:
        """Return rows in order of time as they were before `by_time`."""
        x: Array = array_module(ordered).empty_like(ordered)
        x[at(self.rows, ordered)] = ordered
        return x

    def first(self, state: Array | None, width: int, like: Array) -> Array:
        """Return the state before the first step, longest sequence first; zeros if there is none."""
        if state is None:
            zeros: Array = array_module(like).zeros((len(self.order), width), like.dtype)
            return zeros
        return state[at(self.order, state)]

    def restored(self, state: Array) -> Array:
        """Return what `first` put in order as it was before."""
        restored: Array = array_module(state).empty_like(state)
        restored[at(self.order, state)] = state
        return restored

    def before(self, states: Array, first: Array) -> Array:
        """Return for each row in order of time the state before it: that of the step before, or the first one."""
        count = int(self.bounds[1]) if len(self.bounds) > 1 else 0
        active = np.diff(self.bounds)[1:]
        # Row i of step t follows row i of step t − 1: its place is that far from where step t − 1 begins.
        previous = np.arange(self.bounds[-1] - count) - np.repeat(self.bounds[1:-1] - count, active)
        previous += np.repeat(self.bounds[:-2], active)
        return array_module(states).concatenate([first[:count], states[at(previous, states)]])
