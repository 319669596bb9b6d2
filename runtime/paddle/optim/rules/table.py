# SPDX-License-Identifier: Apache-2.0
"""Which class carries out which rule name, and what each hyperparameter may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from paddle.optim.rules.adadelta import Adadelta, FluidAdadelta
from paddle.optim.rules.adagrad import Adagrad, FluidAdagrad
from paddle.optim.rules.adam import Adam, FluidAdam, LazyAdam
from paddle.optim.rules.adamax import Adamax, FluidAdamax
from paddle.optim.rules.decayed_adagrad import DecayedAdagrad, FluidDecayedAdagrad
from paddle.optim.rules.ftrl import Ftrl
from paddle.optim.rules.lamb import Lamb
from paddle.optim.rules.lars_momentum import LarsMomentum
from paddle.optim.rules.momentum import FluidMomentum, Momentum
from paddle.optim.rules.rmsprop import FluidRMSProp, RMSProp
from paddle.optim.rules.sgd import SGD

RULES: Mapping[str, type[Any]] = MappingProxyType(
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
"""Classes of `Rule` by name: those of v2, whose momentum belongs to the parameters, then Fluid's."""

_Range: TypeAlias = tuple[str, Callable[[float], bool]]
_NOT_NEGATIVE: _Range = ("0 or more", lambda value: value >= 0)
_BELOW_1: _Range = ("0 or more and less than 1", lambda value: 0 <= value < 1)
_SWITCH: _Range = ("0 or 1", lambda value: value in (0, 1))

HYPER_RANGES: Mapping[str, _Range] = MappingProxyType(
    {
        "beta1": _BELOW_1,
        "beta2": _BELOW_1,
        "rho": _BELOW_1,
        "decay": _BELOW_1,
        "epsilon": ("more than 0", lambda value: value > 0),
        "lars_coeff": ("more than 0", lambda value: value > 0),
        "lr_power": ("0 or less", lambda value: value <= 0),
        "nesterov": _SWITCH,
        "centered": _SWITCH,
        "momentum": _NOT_NEGATIVE,
        "lars_weight_decay": _NOT_NEGATIVE,
        "weight_decay": _NOT_NEGATIVE,
        "initial_accumulator_value": _NOT_NEGATIVE,
        "l1": _NOT_NEGATIVE,
        "l2": _NOT_NEGATIVE,
    }
)
"""What a hyperparameter of that name may be, in words and as a test, whichever rule has it."""
