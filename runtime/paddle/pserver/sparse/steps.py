# SPDX-License-Identifier: Apache-2.0
"""One batch's step of some rows: where they lie if the rule has a formula in compiled form, else in blocks by numpy.

The rules of `optim` are the plain form; formulas are those of `formula_kernels`. Both give the same bits: the same
operations on float32 in the same order, each rounded by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.optim.row_step import RowStep
from paddle.optim.rules.adagrad import Adagrad, FluidAdagrad
from paddle.optim.rules.adam import LazyAdam
from paddle.optim.rules.momentum import Momentum
from paddle.optim.rules.sgd import SGD
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of
from paddle.pserver.sparse import formula_kernels as kernels
from paddle.pserver.sparse import row_kernels
from paddle.pserver.sparse.index import ABSENT
from paddle.pserver.sparse.slabs import Numbers, Slabs
from paddle.pserver.sparse.ticks import new_tick, since_of, tick, undecayed

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Keep = Callable[[Ids, Numbers], None]

# Floats of rows that are gathered at a time: they and the rule's intermediate results stay in the processor's cache.
_BLOCK_FLOATS = 1 << 16
_BLOCK_ROWS = 4096


class Formula(NamedTuple):
    """What a kernel takes for one batch.

    Attributes:
        kind: one of `formula_kernels`.
        factors: (k,) float32: the formula's numbers, in its order.
        clip: gradients are cut to -clip .. clip; 0: not.
        l1, l2: decay for each batch missed, rate included; 0: none.
    """

    kind: int
    factors: npt.NDArray[np.float32]
    clip: np.float32
    l1: np.float32
    l2: np.float32


_Factors = tuple[int, tuple[float, ...]]
"""Kind and factors."""


class Formulas:
    """The formula of one parameter's rule, batch by batch."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec) -> None:
        self._optimizer, self._parameter = optimizer, parameter
        self._rule = rule_of(optimizer)
        self._factors = _FACTORS.get(type(self._rule))

    def at(self, batch: int, learning_rate: float) -> Formula | None:
        """Return the formula of a batch, counted from 1; None if the rule has none."""
        if self._factors is None:
            return None
        parameter = self._parameter
        eta = rate_of(self._rule, self._optimizer, parameter, learning_rate)
        kind, factors = self._factors(self._rule, eta, parameter.momentum, batch)
        rest = (np.float32(each) for each in (parameter.clip, eta * parameter.l1, eta * parameter.l2))
        return Formula(kind, np.array(factors, np.float32), *rest)


def _descent(rule: SGD, eta: float, mu: float, batch: int) -> _Factors:
    return kernels.DESCENT, (eta,)


def _momentum(rule: Momentum, eta: float, mu: float, batch: int) -> _Factors:
    return (kernels.MOMENTUM, (eta, mu)) if mu else (kernels.DESCENT, (eta,))


def _adagrad(rule: Adagrad, eta: float, mu: float, batch: int) -> _Factors:
    return (kernels.ADAGRAD_MOMENTUM if mu else kernels.ADAGRAD), (eta, rule.epsilon, mu)


def _fluid_adagrad(rule: FluidAdagrad, eta: float, mu: float, batch: int) -> _Factors:
    return kernels.FLUID_ADAGRAD, (eta, rule.initial_accumulator_value, rule.epsilon)


def _adam(rule: LazyAdam, eta: float, mu: float, batch: int) -> _Factors:
    beta1, beta2 = rule.beta1, rule.beta2
    alpha = eta * math.sqrt(1.0 - beta2**batch) / (1.0 - beta1**batch)
    return kernels.ADAM, (alpha, beta1, 1.0 - beta1, beta2, 1.0 - beta2, rule.epsilon)


_FACTORS: Mapping[type[Any], Callable[[Any, float, float, int], _Factors]] = MappingProxyType(
    {
        SGD: _descent,
        Momentum: _momentum,
        Adagrad: _adagrad,
        FluidAdagrad: _fluid_adagrad,
        LazyAdam: _adam,
    }
)


class Moment(NamedTuple):
    """When a step is taken: the batch, the one at which all rows were decayed, and the rate."""

    clock: int
    caught_up: int
    learning_rate: float


class DistinctRows(NamedTuple):
    """Rows of a batch, none twice.

    Attributes:
        ids: (n,) int64.
        numbers: (n,) uint32; ABSENT: no row, nothing happens.
        fresh: (n,) bool: these hold nothing yet.
    """

    ids: Ids
    numbers: Numbers
    fresh: Flags

    def part(self, which: Flags | Ids | slice) -> DistinctRows:
        """Return some of them."""
        return DistinctRows(self.ids[which], self.numbers[which], self.fresh[which])


class Sums(NamedTuple):
    """Gradients (m, width), C-contiguous; row i's are at order[starts[i] : starts[i + 1]], added in that order."""

    values: Floats
    order: Ids
    starts: Ids


class Steps:
    """A rule for the rows of one table. Holds none of them."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec) -> None:
        self._plain = RowStep(optimizer, parameter)
        self._formulas = Formulas(optimizer, parameter)
        self.states = self._plain.states
        self.decays = self._plain.decays
        rows = _BLOCK_FLOATS // (parameter.shape[1] * (2 + len(self.states)))
        self.block = min(max(rows, 16), _BLOCK_ROWS)

    def apply(self, slabs: Slabs, rows: DistinctRows, sums: Sums, at: Moment, keep: Keep | None) -> None:
        """Change rows and their ticks; those that were there before are given to `keep` first."""
        if keep is not None:
            before = rows.part((rows.numbers != ABSENT) & ~rows.fresh)
            keep(before.ids, before.numbers)
        formula = self._formulas.at(at.clock, at.learning_rate)
        if formula is not None:
            slabs.change(*rows, sums, formula, tick(at.clock), at.clock - at.caught_up)
            return
        which = np.flatnonzero(rows.numbers != ABSENT)
        for start in range(0, len(which), self.block):
            part = which[start : start + self.block]
            self._apply_plainly(slabs, rows.part(part), sums, part, at)

    def decay(self, slabs: Slabs, numbers: Numbers, at: Moment) -> None:
        """Bring the decay of rows to the present."""
        for start in range(0, len(numbers), self.block):
            part = numbers[start : start + self.block]
            parts, ticks = slabs.gathered(part)
            owed = undecayed(ticks, at.clock, at.caught_up)
            self._plain.decay(parts[0], owed, at.learning_rate)
            slabs.scatter(part, parts, ticks)

    def _apply_plainly(self, slabs: Slabs, rows: DistinctRows, sums: Sums, which: Ids, at: Moment) -> None:
        parts, ticks = slabs.room(len(which))
        slabs.begin(rows.numbers, rows.ids, rows.fresh, new_tick(at.clock), parts, ticks)
        g = np.empty(parts.shape[1:], np.float32)
        row_kernels.add_up(*sums, which, g)
        state = {name: parts[i] for i, name in enumerate(self.states, 1)}
        since = since_of(ticks, at.clock, at.caught_up)
        self._plain.apply(parts[0], g, state, since, at.clock, at.learning_rate)
        ticks[:] = tick(at.clock)
        slabs.scatter(rows.numbers, parts, ticks)
