# SPDX-License-Identifier: Apache-2.0
"""adamax: Adam with the largest gradient in place of the mean square."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.update.steps import dense, scalar, take_step
from paddle.optim.rules.adamax import FluidAdamax


def _infer(param: Spec, grad: Spec, rate: Spec, m: Spec, n: Spec, b1: Spec) -> tuple[Spec, Spec, Spec]:
    return param, m, n


@operator(
    "adamax",
    "Param Grad LearningRate Moment InfNorm Beta1Pow -> ParamOut MomentOut InfNormOut",
    attrs={"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    infer=_infer,
    in_place={"ParamOut": "Param", "MomentOut": "Moment", "InfNormOut": "InfNorm"},
)
def adamax(
    param: Array,
    grad: Any,
    rate: Array,
    moment: Array,
    inf_norm: Array,
    beta1_power: Array,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
) -> tuple[Array, Array, Array]:
    """Take one step."""
    alpha = scalar(rate) / (1.0 - scalar(beta1_power))
    rule = FluidAdamax(beta1, beta2, epsilon)
    take_step(rule, param, dense(grad, param), {"m": moment, "u": inf_norm}, alpha)
    return param, moment, inf_norm
