# SPDX-License-Identifier: Apache-2.0
"""Checks, before a batch, that its new rows fit and that no value exceeds the range of a float16 table.

At first, all ids of a batch are assumed to be new rows; the new rows are counted only if that many would not fit. The
range is checked by bounds on the current values and on the step, where the update rule has such bounds. The bounds are
computed first as if all ids of the batch were equal, then with the actual sums. For other rules, the step is computed
on copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paddle.optim.spec import RowGradient
from paddle.pserver.sparse.blocks import ids_of, joined
from paddle.pserver.sparse.halves import MOST
from paddle.pserver.sparse.index import ABSENT, Index, PlainIndex, grouped
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of
from paddle.pserver.sparse.slabs import RowMemoryError, Slabs
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.steps import DistinctRows, Floats, Moment, Steps, Sums
from paddle.pserver.sparse.structures import Flags, Ids, Numbers
from paddle.pserver.sparse.waiting import WaitingRoom

_AT_ONCE = 4096
_ID_BYTES = 64
"""Memory of a gradient of a row during a batch, in addition to its values."""


class BatchCheck:
    """Checks whether a table can apply a batch, without changing any row."""

    def __init__(
        self,
        spec: TableSpec,
        steps: Steps,
        slabs: Slabs,
        index: Index | PlainIndex,
        waiting: WaitingRoom,
        are_dead: Callable[[Numbers, int], Flags],
    ) -> None:
        """Create a check; `are_dead` returns which rows the sweep of a batch drops, if it reaches them."""
        self._spec, self._steps, self._slabs, self._index = spec, steps, slabs, index
        self._waiting, self._are_dead = waiting, are_dead
        self._momentum = (
            0.0  # at most, of all rows; infinite: states are not those that steps of the rule can reach
        )

    def learn(self, parts: Floats) -> None:
        """Update the bound on momentum with imported rows, given as (parts, n, part)."""
        if self._spec.is_half:
            self._momentum = max(self._momentum, self._steps.momentum(parts))

    def count(self, rows: int, gradients: Sequence[RowGradient]) -> None:
        """Check that a table with this many rows has room for the new rows of a batch, or of a part of a batch.

        Raises:
            PserverError: see `TableSpec.check_room`.
        """
        if rows + _num_ids(gradients) > self._spec.max_rows:
            self._spec.check_room(rows, self.coming(gradients)[0])

    def reserve(self, gradients: Sequence[RowGradient]) -> None:
        """Reserve memory for a batch whose rows were loaded from disk. Raises RowMemoryError like `Slabs.reserve`."""
        count, index, row_bytes = _num_ids(gradients), self._index.nbytes, self._slabs.row_bytes
        arrays = count * (_ID_BYTES + 4 * self._spec.width * (len(gradients) > 1))
        try:
            self._slabs.reserve(count, index, arrays + 2 * count * row_bytes)
        except RowMemoryError:
            new, distinct = self.coming(gradients)
            self._slabs.reserve(new, index, arrays + 2 * distinct * row_bytes)

    def coming(self, gradients: Sequence[RowGradient]) -> tuple[int, int]:
        """Return the number of rows that a batch creates, and the number of its distinct ids."""
        distinct = grouped(ids_of(gradients))[1]
        absent = distinct[self._index.find(distinct) == ABSENT]
        return int(self._waiting.would_admit(absent).sum()), len(distinct)

    def range(self, gradients: Sequence[RowGradient], at: Moment) -> None:
        """Check the values after the next batch, whose number is `at.clock`; only float16 values can be out of range.

        Raises:
            PserverError: see `TableSpec.check_values`.
        """
        if not self._spec.is_half:
            return
        n, width = _num_ids(gradients), self._spec.width
        largest = n * max((_largest(values[:, :width]) for _, values in gradients), default=0.0)
        if self._fits(
            largest * (1 + n * 2.0**-23), at
        ):  # rounding of a float32 sum: n / 2^24 relative to its largest
            return
        ids, values = joined(gradients, width)
        _, distinct, order, starts = grouped(ids)
        sums = Sums(values, order, starts)
        is_bounded = self._steps.most_moved(0.0, self._momentum, at) < math.inf
        if not (is_bounded and self._fits(self._largest_sum(sums), at)):
            rows = self._rows(distinct, at.clock)
            self._momentum = max(self._momentum, self._steps.check(self._spec, self._slabs, rows, sums, at))

    def _fits(self, largest: float, at: Moment) -> bool:
        """Return whether summed gradients of at most this magnitude leave all values in range; then expect them."""
        moved = self._steps.most_moved(largest, self._momentum, at)
        if not max(self._slabs.rows.largest, self._spec.initial.largest) + moved < MOST:
            return False
        self._momentum = max(self._momentum, moved)
        return True

    def _largest_sum(self, sums: Sums) -> float:
        places = np.split(np.arange(len(sums.starts) - 1), range(_AT_ONCE, len(sums.starts) - 1, _AT_ONCE))
        with np.errstate(over="ignore"):  # no gradient is infinite, so no sum is NaN
            return max(_largest(self._slabs.rows.add_up(sums, each)) for each in places)

    def _rows(self, ids: Ids, clock: int) -> DistinctRows:
        """Return the rows that distinct ids will have in the next batch, after its sweep; new ones are still ABSENT."""
        numbers: npt.NDArray[np.uint32] = self._index.find(ids)
        swept = np.flatnonzero((numbers != ABSENT) & (segments_of(ids) == clock % SEGMENTS))
        numbers[swept[self._are_dead(numbers[swept], clock)]] = ABSENT
        fresh = numbers == ABSENT
        fresh[fresh] = self._waiting.would_admit(ids[fresh])
        return DistinctRows(ids, numbers, fresh)


def _largest(values: Floats) -> float:
    return float(max(values.max(initial=0.0), -values.min(initial=0.0)))


def _num_ids(gradients: Sequence[RowGradient]) -> int:
    return sum(len(gradient.rows) for gradient in gradients)
