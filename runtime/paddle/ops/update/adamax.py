# SPDX-License-Identifier: Apache-2.0
"""adamax: Adam with the largest gradient in place of the mean square."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.registry import Spec, operator
from paddle.ops.update.grads import dense, scalar
from paddle.optim.step.adam import adamax as step


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
    step(param, dense(grad, param), moment, inf_norm, alpha, beta1, beta2, epsilon)
    return param, moment, inf_norm
