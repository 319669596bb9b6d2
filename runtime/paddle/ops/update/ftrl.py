# SPDX-License-Identifier: Apache-2.0
"""ftrl: follow the regularised leader."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.update.steps import dense, scalar, take_step
from paddle.optim.rules.ftrl import Ftrl


def _infer(param: Spec, squared: Spec, linear: Spec, grad: Spec, rate: Spec) -> tuple[Spec, Spec, Spec]:
    return param, squared, linear


@operator(
    "ftrl",
    "Param SquaredAccumulator LinearAccumulator Grad LearningRate -> ParamOut SquaredAccumOut LinearAccumOut",
    attrs={"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
    infer=_infer,
    in_place={
        "ParamOut": "Param",
        "SquaredAccumOut": "SquaredAccumulator",
        "LinearAccumOut": "LinearAccumulator",
    },
)
def ftrl(
    param: Array,
    squared: Array,
    linear: Array,
    grad: Any,
    rate: Array,
    *,
    l1: float,
    l2: float,
    lr_power: float,
) -> tuple[Array, Array, Array]:
    """Take one step."""
    rule = Ftrl(l1, l2, lr_power)
    take_step(rule, param, dense(grad, param), {"n": squared, "z": linear}, scalar(rate))
    return param, squared, linear
