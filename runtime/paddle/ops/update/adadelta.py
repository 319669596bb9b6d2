# SPDX-License-Identifier: Apache-2.0
"""adadelta: steps as large as past steps were; there is no learning rate."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.update.steps import dense, take_step
from paddle.optim.rules.adadelta import FluidAdadelta


def _infer(param: Spec, grad: Spec, grads: Spec, updates: Spec) -> tuple[Spec, Spec, Spec]:
    return param, grads, updates


@operator(
    "adadelta",
    "Param Grad AvgSquaredGrad AvgSquaredUpdate -> ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    attrs={"rho": 0.95, "epsilon": 1e-6},
    infer=_infer,
    in_place={
        "ParamOut": "Param",
        "AvgSquaredGradOut": "AvgSquaredGrad",
        "AvgSquaredUpdateOut": "AvgSquaredUpdate",
    },
)
def adadelta(
    param: Array, grad: Any, grads: Array, updates: Array, *, rho: float, epsilon: float
) -> tuple[Array, Array, Array]:
    """Take one step."""
    take_step(FluidAdadelta(rho, epsilon), param, dense(grad, param), {"E": grads, "D": updates}, 1.0)
    return param, grads, updates
