# SPDX-License-Identifier: Apache-2.0
"""Which class carries out which rule name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from paddle.optim.rules.adadelta import Adadelta
from paddle.optim.rules.adagrad import Adagrad
from paddle.optim.rules.adam import Adam
from paddle.optim.rules.adamax import Adamax
from paddle.optim.rules.decayed_adagrad import DecayedAdagrad
from paddle.optim.rules.fluid_adadelta import FluidAdadelta
from paddle.optim.rules.fluid_adagrad import FluidAdagrad
from paddle.optim.rules.fluid_adam import FluidAdam, LazyAdam
from paddle.optim.rules.fluid_adamax import FluidAdamax
from paddle.optim.rules.fluid_decayed_adagrad import FluidDecayedAdagrad
from paddle.optim.rules.fluid_momentum import FluidMomentum
from paddle.optim.rules.fluid_rmsprop import FluidRMSProp
from paddle.optim.rules.ftrl import Ftrl
from paddle.optim.rules.lamb import Lamb
from paddle.optim.rules.lars_momentum import LarsMomentum
from paddle.optim.rules.momentum import Momentum
from paddle.optim.rules.rmsprop import RMSProp
from paddle.optim.rules.rule import Rule
from paddle.optim.rules.sgd import SGD
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
        "sgd": SGD,
        "fluid_momentum": FluidMomentum,
        "lars_momentum": LarsMomentum,
        "fluid_adagrad": FluidAdagrad,
        "fluid_decayed_adagrad": FluidDecayedAdagrad,
        "fluid_adadelta": FluidAdadelta,
        "fluid_rmsprop": FluidRMSProp,
        "fluid_adam": FluidAdam,
        "lazy_adam": LazyAdam,
        "fluid_adamax": FluidAdamax,
        "ftrl": Ftrl,
        "lamb": Lamb,
    }
)


def rule_of(optimizer: OptimizerSpec) -> Rule:
    """Return the rule of an optimizer with its hyperparameters."""
    return _RULES[optimizer.rule](**optimizer.hyper)


def rate_of(rule: Rule, optimizer: OptimizerSpec, parameter: ParameterSpec, learning_rate: float) -> float:
    """Return η of one parameter: `learning_rate`, or the base rate if the rule ignores schedules."""
    return (learning_rate if rule.follows_schedule else optimizer.learning_rate) * parameter.learning_rate
