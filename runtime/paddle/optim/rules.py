# SPDX-License-Identifier: Apache-2.0
"""Which class carries out which rule name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from paddle.optim.adadelta import Adadelta
from paddle.optim.adagrad import Adagrad
from paddle.optim.adam import Adam
from paddle.optim.adamax import Adamax
from paddle.optim.decayed_adagrad import DecayedAdagrad
from paddle.optim.momentum import Momentum
from paddle.optim.rmsprop import RMSProp
from paddle.optim.rule import Rule
from paddle.optim.spec import OptimizerSpec, ParameterSpec

_RULES: Mapping[str, Callable[..., Rule]] = MappingProxyType(
    {
        "momentum": Momentum,
        "sparse_momentum": Momentum,  # its rows are another matter: see sparse_momentum
        "adagrad": Adagrad,
        "decayed_adagrad": DecayedAdagrad,
        "adadelta": Adadelta,
        "rmsprop": RMSProp,
        "adam": Adam,
        "adamax": Adamax,
    }
)


def rule_of(optimizer: OptimizerSpec) -> Rule:
    """Return the rule of an optimizer with its hyperparameters."""
    return _RULES[optimizer.rule](**optimizer.hyper)


def rate_of(rule: Rule, optimizer: OptimizerSpec, parameter: ParameterSpec, learning_rate: float) -> float:
    """Return η of one parameter: `learning_rate`, or the base rate if the rule ignores schedules."""
    return (learning_rate if rule.follows_schedule else optimizer.learning_rate) * parameter.learning_rate
