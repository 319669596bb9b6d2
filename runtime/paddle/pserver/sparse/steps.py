# SPDX-License-Identifier: Apache-2.0
"""Applies one optimizer step to rows: in place if the rule has a compiled formula, otherwise on blocks with numpy.

Before a batch, `BatchCheck` checks that its new rows fit and that no value exceeds the range of a float16 table. At
first, all ids of a batch are assumed to be new rows; the new rows are counted only if that many would not fit. The
range is checked by bounds on the current values and on the step, where the update rule has such bounds. The bounds are
computed first as if all ids of the batch were equal, then with the actual sums. For other rules, the step is computed
on copies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paddle.optim.sparse import RowStep
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.blocks import MOST, ids_of, joined
from paddle.pserver.sparse.budget import Budget, faded
from paddle.pserver.sparse.formulas import Formulas
from paddle.pserver.sparse.index import ABSENT, Index, PlainIndex, grouped
from paddle.pserver.sparse.mixing import SEGMENTS, segments_of
from paddle.pserver.sparse.slabs import RowMemoryError, Slabs
from paddle.pserver.sparse.spec import TableSpec
from paddle.pserver.sparse.structures import CompiledStep, Flags, Ids, Numbers, Scoring
from paddle.pserver.sparse.ticks import ages, new_tick, since_of, tick, undecayed
from paddle.pserver.sparse.waiting import WaitingRoom
from paddle_node.contract.classes import NamedTuple

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


Floats = npt.NDArray[np.float32]
Keep = Callable[[Ids, Numbers], None]

# Floats of rows that are gathered at a time: they and the rule's intermediate results stay in the processor's cache.
_BLOCK_FLOATS = 1 << 16
_BLOCK_ROWS = 4096


class Moment(NamedTuple):
    """The time of a step: its batch, the batch at which all rows were last decayed, and the learning rate."""

    clock: int
    caught_up: int
    learning_rate: float


class DistinctRows(NamedTuple):
    """The distinct rows that a batch changes.

    Attributes:
        ids: (n,) int64.
        numbers: (n,) uint32; ABSENT: no row; skipped.
        fresh: (n,) bool: new rows, not initialized yet.
    """

    ids: Ids
    numbers: Numbers
    fresh: Flags

    def part(self, which: Flags | Ids | slice) -> DistinctRows:
        """Return the rows selected by a mask (n,), positions or a slice."""
        return DistinctRows(self.ids[which], self.numbers[which], self.fresh[which])


class Sums(NamedTuple):
    """Gradients (m, width), C-contiguous; row i of the result adds order[starts[i] : starts[i + 1]], in that order."""

    values: Floats
    order: Ids
    starts: Ids


class Steps:
    """The update rule of one table. Applies it to rows, and stores none."""

    def __init__(
        self, optimizer: OptimizerSpec, parameter: ParameterSpec, budget: Budget | None = None
    ) -> None:
        self._plain = RowStep(optimizer, parameter)
        self._formulas = Formulas(optimizer, parameter)
        self.states, self.row_states = self._plain.states, self._plain.row_states
        self._width = parameter.shape[1]
        self._budget = budget or Budget()
        self._powers = self._budget.powers()
        self.score_at = self._width + len(self.row_states) if self._budget.is_scored else None
        self.per_row = len(self.row_states) + self._budget.is_scored
        self.decays = self._plain.decays
        rows = _BLOCK_FLOATS // (parameter.shape[1] * (2 + len(self.states)))
        self.block = min(max(rows, 16), _BLOCK_ROWS)

    def compiled(self, at: Moment, weights: Floats | None = None) -> CompiledStep | None:
        """Return the step in the kernels' form; None if the rule has no compiled formula."""
        formula = self._formulas.at(at.clock, at.learning_rate)
        if formula is None:
            return None
        scoring = None if self.score_at is None else Scoring(self.score_at, weights, self._powers)
        return CompiledStep(formula, tick(at.clock), at.clock - at.caught_up, scoring)

    def scores(self, parts: Floats, ticks: Numbers, clock: int) -> npt.NDArray[np.float64]:
        """Return the score of each gathered row (n,), decayed to the batch `clock`."""
        return faded(parts[0, :, self.score_at], ages(ticks, clock), self._powers)

    def apply(
        self,
        slabs: Slabs,
        rows: DistinctRows,
        sums: Sums,
        at: Moment,
        keep: Keep | None,
        weights: Floats | None = None,
    ) -> None:
        """Apply one step to rows, in place; `keep` first receives the existing rows, for snapshots.

        Args:
            weights: weight of each gradient (m,) in the score of its row; None means each row counts 1.
        """
        if keep is not None:
            before = rows.part((rows.numbers != ABSENT) & ~rows.fresh)
            keep(before.ids, before.numbers)
        step = self.compiled(at, weights)
        if step is not None:
            formula, now, caught_up, scoring = step
            if slabs.rows.change(*rows, sums, formula, now, caught_up, scoring):
                return
        which = np.flatnonzero(rows.numbers != ABSENT)
        for start in range(0, len(which), self.block):
            part = which[start : start + self.block]
            self._apply_plainly(slabs, rows.part(part), sums, part, at, weights)

    def decay(self, slabs: Slabs, numbers: Numbers, at: Moment) -> None:
        """Apply the decay of the batches since each row's tick to the rows with these numbers."""
        for start in range(0, len(numbers), self.block):
            part = numbers[start : start + self.block]
            parts, ticks = slabs.gathered(part)
            self.decay_parts(parts, ticks, at)
            slabs.rows.scatter(part, parts, ticks)

    def decay_parts(self, parts: Floats, ticks: Numbers, at: Moment) -> None:
        """Apply pending decay to gathered rows (parts, n, part)."""
        owed = undecayed(ticks, at.clock, at.caught_up)
        self._plain.decay(parts[0, :, : self._width], owed, at.learning_rate)

    def check(self, spec: TableSpec, slabs: Slabs, rows: DistinctRows, sums: Sums, at: Moment) -> float:
        """Compute the step without storing it; return the largest magnitude of momentum after it.

        Raises:
            PserverError: see `TableSpec.check_values`.
        """
        formula, momentum = self._formulas.at(at.clock, at.learning_rate), 0.0
        which = np.flatnonzero((rows.numbers != ABSENT) | rows.fresh)
        for start in range(0, len(which), self.block):
            part = which[start : start + self.block]
            with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
                parts, _ = self._stepped(slabs, rows.part(part), sums, part, at)
            spec.check_values(rows.ids[part], parts[0, :, : self._width])
            momentum = max(momentum, formula.momentum(parts) if formula else 0.0)
        return momentum

    def momentum(self, parts: Floats) -> float:
        """Return a bound on the momentum of imported rows (parts, n, part), or infinity; see `most_moved`."""
        formula = self._formulas.at(1, 0.0)
        return formula.momentum(parts) if formula and formula.is_sound(parts, self._width) else math.inf

    def most_moved(self, largest: float, momentum: float, at: Moment) -> float:
        """Return a bound on how far a step moves a value (see `Formula.most_moved`); infinite without a formula."""
        formula = self._formulas.at(at.clock, at.learning_rate)
        return formula.most_moved(largest, self._width, momentum) if formula else math.inf

    def _apply_plainly(
        self, slabs: Slabs, rows: DistinctRows, sums: Sums, which: Ids, at: Moment, weights: Floats | None
    ) -> None:
        parts, ticks = self._stepped(slabs, rows, sums, which, at)
        if self.score_at is not None:
            left = faded(
                parts[0, :, self.score_at], np.maximum(ages(ticks, at.clock), np.uint32(1)), self._powers
            )
            shown = np.ones((1, 1), np.float32)
            if weights is not None:
                shown = slabs.rows.add_up(Sums(weights[:, None], sums.order, sums.starts), which)
            parts[0, :, self.score_at] = left + shown[:, 0]
        ticks[:] = tick(at.clock)
        slabs.rows.scatter(rows.numbers, parts, ticks)

    def _stepped(
        self, slabs: Slabs, rows: DistinctRows, sums: Sums, which: Ids, at: Moment
    ) -> tuple[Floats, Numbers]:
        """Return copies of rows after the step, without their new scores, and their ticks before it."""
        parts, ticks = slabs.room(len(which))
        slabs.rows.begin(rows.numbers, rows.ids, rows.fresh, new_tick(at.clock), parts, ticks)
        g = slabs.rows.add_up(sums, which)
        w = parts[0, :, : self._width]
        state = {name: parts[i, :, : self._width] for i, name in enumerate(self.states, 1)}
        state |= {name: parts[0, :, i : i + 1] for i, name in enumerate(self.row_states, self._width)}
        since = since_of(ticks, at.clock, at.caught_up)
        self._plain.apply(w, g, state, since, at.clock, at.learning_rate)
        return parts, ticks
