# SPDX-License-Identifier: Apache-2.0
"""lamb: Adam's direction at a rate of the layer's own."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.update.steps import dense, scalar, take_step
from paddle.optim.rules.lamb import Lamb


def _infer(param: Spec, grad: Spec, rate: Spec, m: Spec, v: Spec, b1: Spec, b2: Spec) -> tuple[Spec, ...]:
    return param, m, v


@operator(
    "lamb",
    "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow -> ParamOut Moment1Out Moment2Out",
    attrs={"weight_decay": float, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
    infer=_infer,
    in_place={"ParamOut": "Param", "Moment1Out": "Moment1", "Moment2Out": "Moment2"},
)
def lamb(
    param: Array,
    grad: Any,
    rate: Array,
    moment1: Array,
    moment2: Array,
    beta1_power: Array,
    beta2_power: Array,
    *,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Take one step; the powers of the betas are not used."""
    rule = Lamb(beta1, beta2, epsilon, weight_decay)
    take_step(rule, param, dense(grad, param), {"m": moment1, "v": moment2}, scalar(rate))
    return param, moment1, moment2
