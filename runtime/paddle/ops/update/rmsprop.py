# SPDX-License-Identifier: Apache-2.0
"""rmsprop: gradients over the root of their mean square, plain or centred."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.update.steps import dense, scalar, take_step
from paddle.optim.rules.rmsprop import FluidRMSProp


def _infer(
    param: Spec, square: Spec, mean: Spec | None, rate: Spec, grad: Spec, moment: Spec
) -> tuple[Spec, Spec, Spec, Spec]:
    return param, moment, square, mean or square


@operator(
    "rmsprop",
    "Param MeanSquare MeanGrad? LearningRate Grad Moment -> ParamOut MomentOut MeanSquareOut MeanGradOut?",
    attrs={"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False},
    infer=_infer,
    in_place={
        "ParamOut": "Param",
        "MomentOut": "Moment",
        "MeanSquareOut": "MeanSquare",
        "MeanGradOut": "MeanGrad",
    },
)
def rmsprop(
    param: Array,
    mean_square: Array,
    mean_grad: Array | None,
    rate: Array,
    grad: Any,
    moment: Array,
    *,
    epsilon: float,
    decay: float,
    momentum: float,
    centered: bool,
) -> tuple[Array, Array, Array, Array | None]:
    """Take one step."""
    state = {"G": mean_square, "m": moment}
    if centered and mean_grad is not None:
        state["F"] = mean_grad
    rule = FluidRMSProp(decay, epsilon, momentum, centered)
    take_step(rule, param, dense(grad, param), state, scalar(rate))
    return param, moment, mean_square, mean_grad
