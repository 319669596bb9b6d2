# SPDX-License-Identifier: Apache-2.0
"""adam, adamax and lamb; the powers of the betas come in and are multiplied by operators of their own afterwards.

adamax: Adam with the largest gradient in place of the mean square.
lamb: Adam's direction at a rate of the layer's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.compiled import kernels_for, read_only
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.update.steps import dense, merged, scalar, step_operator, take_step
from paddle.optim.rules.adam import FluidAdam
from paddle.optim.rules.adamax import FluidAdamax
from paddle.optim.rules.lamb import Lamb


@operator(
    "adam",
    "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow -> ParamOut Moment1Out Moment2Out",
    attrs={
        "beta1": 0.9,
        "beta2": 0.999,
        "epsilon": 1e-8,
        "lazy_mode": False,
        "min_row_size_to_use_multithread": 1000,
    },
    in_place={"ParamOut": "Param", "Moment1Out": "Moment1", "Moment2Out": "Moment2"},
)
def adam(
    param: Array,
    grad: Any,
    rate: Array,
    moment1: Array,
    moment2: Array,
    beta1_power: Array,
    beta2_power: Array,
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    lazy_mode: bool,
) -> tuple[Array, Array, Array]:
    """Take one step; of a sparse gradient all rows move, or in lazy mode those that it has."""
    xp = array_module(param)
    alpha = scalar(rate) * xp.sqrt(1.0 - scalar(beta2_power)) / (1.0 - scalar(beta1_power))
    alpha = alpha.astype(param.dtype)
    rule = FluidAdam(beta1, beta2, epsilon)
    if not (lazy_mode and isinstance(grad, SelectedRows)):
        _step_of_all(rule, param, dense(grad, param), moment1, moment2, alpha)
        return param, moment1, moment2
    rows = merged(grad, param)
    w, m, v = param[rows.rows], moment1[rows.rows], moment2[rows.rows]
    take_step(rule, w, rows.values, {"m": m, "v": v}, alpha)
    param[rows.rows], moment1[rows.rows], moment2[rows.rows] = w, m, v
    return param, moment1, moment2


def _step_of_all(rule: FluidAdam, param: Array, grad: Array, m: Array, v: Array, alpha: Any) -> None:
    kernels = kernels_for(param.size, param, grad, m, v)
    if kernels is None:
        take_step(rule, param, grad, {"m": m, "v": v}, alpha)
        return
    betas = np.float32(rule.beta1), np.float32(rule.beta2)
    rests = np.float32(1.0 - rule.beta1), np.float32(1.0 - rule.beta2)
    arrays = param.reshape(-1), read_only(grad.reshape(-1)), m.reshape(-1), v.reshape(-1)
    kernels.adam(*arrays, np.float32(alpha), betas, rests, np.float32(rule.epsilon))


step_operator(
    "adamax",
    "Param Grad LearningRate Moment InfNorm Beta1Pow -> ParamOut MomentOut InfNormOut",
    FluidAdamax,
    {"m": "Moment", "u": "InfNorm"},
    {"beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8},
    lambda given: scalar(given["LearningRate"]) / (1.0 - scalar(given["Beta1Pow"])),
)
# The powers of the betas are not used.
step_operator(
    "lamb",
    "Param Grad LearningRate Moment1 Moment2 Beta1Pow Beta2Pow -> ParamOut Moment1Out Moment2Out",
    Lamb,
    {"m": "Moment1", "v": "Moment2"},
    {"weight_decay": float, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-6},
)
