# SPDX-License-Identifier: Apache-2.0
"""Update rules in compiled form: the kernel formula of `rows.c` that a rule uses, and its coefficients.

The rules in `optim` are the plain form. Both forms give bitwise equal results: the same float32 operations in the same
order, each rounded separately. Rules without a formula run in the plain form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.optim.rules.adagrad import Adagrad, FluidAdagrad
from paddle.optim.rules.adam import LazyAdam
from paddle.optim.rules.momentum import Momentum
from paddle.optim.rules.row_adagrad import RowAdagrad
from paddle.optim.rules.sgd import SGD
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of
from paddle_node.contract.classes import NamedTuple

DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ROW_ADAGRAD, ADAM = range(7)
"""Kinds of formulas, as `rows.c` numbers them."""


class Formula(NamedTuple):
    """The coefficients of a compiled update rule for one batch.

    Attributes:
        kind: kind of the formula, one of the constants above.
        factors: (k,) float32: the formula's numbers, in its order.
        clip: gradients are clipped to [-clip, clip]; 0 means no clipping.
        l1, l2: decay for each missed batch, including the rate; 0 means none.
    """

    kind: int
    factors: npt.NDArray[np.float32]
    clip: np.float32
    l1: np.float32
    l2: np.float32

    def most_moved(self, largest: float, width: int, momentum: float) -> float:
        """Return a bound on how far a step moves a value, for rows that are `sound`; infinite if unknown.

        Args:
            largest: bound on the magnitude of the summed gradients.
            width: the number of elements per row.
            momentum: bound on the magnitude of momentum before the step; the result is a bound for the next step.
        """
        eta = abs(float(self.factors[0]))
        if not (largest < _MOST_SUM and momentum < math.inf):
            return math.inf
        if self.clip:
            largest = min(largest, float(self.clip))
        retained = abs(float(self.factors[_MOMENTA[self.kind]])) * momentum if self.kind in _MOMENTA else 0.0
        if self.kind in (DESCENT, MOMENTUM):
            return _ROUNDED * (retained + eta * largest)
        added = _DIVISORS.get(self.kind)
        if added is None or not self.factors[added] > _LEAST_DIVISOR:
            return math.inf
        # AdaGrad divides by a root of at least the gradient, or by that of the row's mean square. 4: for roundings.
        return _ROUNDED * retained + 4.0 * eta * (
            1.0 + self._most_ratio if self.kind == ADAM else math.sqrt(width)
        )

    def is_sound(self, parts: npt.NDArray[np.float32], width: int) -> bool:
        """Return whether steps of this formula could have produced the states of rows (parts, n, part)."""
        if self.kind == ADAM:
            m, v = parts[1:, :, :width]
            with np.errstate(invalid="ignore"):
                return bool((np.abs(m) <= 2.0 * self._most_ratio * np.sqrt(v) + _LEAST_DIVISOR).all())
        squares = parts[1 : len(parts) - (self.kind in _MOMENTA)]
        return not ((squares < 0).any() or (parts[0, :, width:] < 0).any()) and math.isfinite(
            self.momentum(parts)
        )

    def momentum(self, parts: npt.NDArray[np.float32]) -> float:
        """Return the largest magnitude of the momentum state in rows (parts, n, part)."""
        return float(np.abs(parts[-1]).max(initial=0.0)) if self.kind in _MOMENTA else 0.0

    @property
    def _most_ratio(self) -> float:
        """Return Adam's largest m/√v if m and v sum the same gradients, by the Cauchy-Schwarz inequality."""
        _, beta1, rest1, beta2, rest2, _ = map(float, self.factors)
        left = rest2 * (1.0 - beta1 * beta1 / beta2) if beta2 else 0.0
        return rest1 / math.sqrt(left) if left > 0 else math.inf


_MOMENTA = {MOMENTUM: 1, ADAGRAD_MOMENTUM: 2}
"""Kinds of formulas whose last state is momentum -> which factor of it is retained."""
_ROUNDED = 1 + 1e-6
_DIVISORS = {ADAGRAD: 1, ADAGRAD_MOMENTUM: 1, FLUID_ADAGRAD: 2, ROW_ADAGRAD: 2, ADAM: 5}
"""Kinds of formulas with a bound -> which factor is added to the divisor, which otherwise could be 0."""
_MOST_SUM, _LEAST_DIVISOR = 1e18, 1e-18
"""The squares of such sums, and their sums, are float32, as are quotients of them and the divisor."""

_Factors = tuple[int, tuple[float, ...]]
"""Kind and factors."""


class Formulas:
    """The compiled formulas of one parameter's update rule, one for each batch."""

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
    return DESCENT, (eta,)


def _momentum(rule: Momentum, eta: float, mu: float, batch: int) -> _Factors:
    return (MOMENTUM, (eta, mu)) if mu else (DESCENT, (eta,))


def _adagrad(rule: Adagrad, eta: float, mu: float, batch: int) -> _Factors:
    return (ADAGRAD_MOMENTUM if mu else ADAGRAD), (eta, rule.epsilon, mu)


def _fluid_adagrad(rule: FluidAdagrad, eta: float, mu: float, batch: int) -> _Factors:
    return FLUID_ADAGRAD, (eta, rule.initial_accumulator_value, rule.epsilon)


def _row_adagrad(rule: RowAdagrad, eta: float, mu: float, batch: int) -> _Factors:
    return ROW_ADAGRAD, (eta, rule.initial_accumulator_value, rule.epsilon)


def _adam(rule: LazyAdam, eta: float, mu: float, batch: int) -> _Factors:
    beta1, beta2 = rule.beta1, rule.beta2
    alpha = eta * math.sqrt(1.0 - beta2**batch) / (1.0 - beta1**batch)
    return ADAM, (alpha, beta1, 1.0 - beta1, beta2, 1.0 - beta2, rule.epsilon)


_FACTORS: Mapping[type[Any], Callable[[Any, float, float, int], _Factors]] = MappingProxyType(
    {
        SGD: _descent,
        Momentum: _momentum,
        Adagrad: _adagrad,
        FluidAdagrad: _fluid_adagrad,
        RowAdagrad: _row_adagrad,
        LazyAdam: _adam,
    }
)
