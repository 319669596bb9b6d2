# SPDX-License-Identifier: Apache-2.0
"""Update rules in compiled form: which formula of `rows.c` a rule uses, and the numbers in it.

The rules of `optim` are the plain form. Both give the same bits: the same operations on float32 in the same order, each
rounded separately. Rules that are not here run in the plain form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paddle.optim.rules.adagrad import Adagrad, FluidAdagrad
from paddle.optim.rules.adam import LazyAdam
from paddle.optim.rules.momentum import Momentum
from paddle.optim.rules.row_adagrad import RowAdagrad
from paddle.optim.rules.sgd import SGD
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of

DESCENT, MOMENTUM, ADAGRAD, ADAGRAD_MOMENTUM, FLUID_ADAGRAD, ROW_ADAGRAD, ADAM = range(7)
"""Kinds of formulas, as `rows.c` numbers them."""


class Formula(NamedTuple):
    """The arguments of a kernel for one batch.

    Attributes:
        kind: one of those above.
        factors: (k,) float32: the formula's numbers, in its order.
        clip: gradients are clipped to -clip .. clip; 0: no clipping.
        l1, l2: decay for each missed batch, including the rate; 0: none.
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
