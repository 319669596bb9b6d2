# SPDX-License-Identifier: Apache-2.0
"""Checks before a batch that no value of a float16 table would exceed the range of float16.

Bounds on the values so far and on the step decide for the rules that have them. Otherwise the step is taken on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import is_

import numpy as np
import numpy.typing as npt

from paddle.optim.spec import RowGradient
from paddle.pserver.sparse.blocks import joined
from paddle.pserver.sparse.index import ABSENT, Index, PlainIndex, grouped
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of
from paddle.pserver.sparse.slabs import Slabs
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.steps import DistinctRows, Floats, Moment, Steps, Sums
from paddle.pserver.sparse.structures import Flags, Ids, Numbers
from paddle.pserver.sparse.waiting import WaitingRoom


class RangeCheck:
    """The check of one table, which changes no row; for other dtypes it does nothing."""

    def __init__(
        self,
        spec: TableSpec,
        steps: Steps,
        slabs: Slabs,
        index: Index | PlainIndex,
        waiting: WaitingRoom,
        are_dead: Callable[[Numbers, int], Flags],
    ) -> None:
        """`are_dead` returns which rows the sweep of a batch drops, if it reaches them."""
        self._spec, self._steps, self._slabs, self._index = spec, steps, slabs, index
        self._waiting, self._are_dead = waiting, are_dead
        self._is_bounded = True
        self._passed: tuple[Sequence[RowGradient], Moment] | None = None

    def learn(self, parts: Floats) -> None:
        """Inspect rows (parts, n, part) from elsewhere: bounds are for states that steps of the rule can reach."""
        if self._spec.is_half and self._is_bounded:
            self._is_bounded = self._steps.are_sound(parts)

    def check(self, gradients: Sequence[RowGradient], at: Moment) -> None:
        """Check the next batch, whose number is `at.clock`; repeated checks of the same one take no time.

        Raises:
            PserverError: see `TableSpec.check_values`.
        """
        if not self._spec.is_half:
            return
        if self._passed is not None:
            passed, then = self._passed
            if at == then and len(passed) == len(gradients) and all(map(is_, gradients, passed)):
                return
        ids, values = joined(gradients, self._spec.width)
        largest = max(self._slabs.rows.largest, self._spec.initial.largest)
        if not (self._is_bounded and self._steps.fits(largest, values, at)):
            _, distinct, order, starts = grouped(ids)
            rows = self._coming(distinct, at.clock)
            self._steps.check(self._spec, self._slabs, rows, Sums(values, order, starts), at)
        self._passed = tuple(gradients), at

    def _coming(self, ids: Ids, clock: int) -> DistinctRows:
        """Return the rows that distinct ids will have in the next batch, after its sweep; new ones are ABSENT yet."""
        numbers: npt.NDArray[np.uint32] = self._index.find(ids)
        swept = np.flatnonzero((numbers != ABSENT) & (segments_of(ids) == clock % SEGMENTS))
        numbers[swept[self._are_dead(numbers[swept], clock)]] = ABSENT
        fresh = numbers == ABSENT
        fresh[fresh] = self._waiting.would_admit(ids[fresh])
        return DistinctRows(ids, numbers, fresh)
