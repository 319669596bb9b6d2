# SPDX-License-Identifier: Apache-2.0
"""sgd, momentum and lars_momentum: gradient descent, plain or with a velocity.

sgd: ParamOut = Param − LearningRate · Grad; of selected rows only those rows change.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.compiled import kernels_for, read_only
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.update.steps import dense, merged, scalar, step_operator, take_step
from paddle.optim.rules.lars_momentum import LarsMomentum
from paddle.optim.rules.momentum import FluidMomentum
from paddle.optim.rules.sgd import SGD

_SLOTS = "Param Grad Velocity LearningRate -> ParamOut VelocityOut"
_IN_PLACE = {"ParamOut": "Param", "VelocityOut": "Velocity"}
_RULE = SGD()


@operator("momentum", _SLOTS, attrs={"mu": float, "use_nesterov": False}, in_place=_IN_PLACE)
def momentum(
    param: Array, grad: Any, velocity: Array, rate: Array, *, mu: float, use_nesterov: bool
) -> tuple[Array, Array]:
    """Take one step; rows that a sparse gradient lacks move on by their velocity."""
    given = dense(grad, param)
    kernels = kernels_for(param.size, param, given, velocity)
    if kernels is None:
        take_step(FluidMomentum(mu, use_nesterov), param, given, {"v": velocity}, scalar(rate))
        return param, velocity
    arrays = param.reshape(-1), read_only(given.reshape(-1)), velocity.reshape(-1)
    kernels.momentum(*arrays, np.float32(scalar(rate)), np.float32(mu), use_nesterov)
    return param, velocity


step_operator(
    "lars_momentum",
    _SLOTS,
    lambda mu, **others: LarsMomentum(mu, **others),
    {"v": "Velocity"},
    {"mu": float, "lars_coeff": 0.001, "lars_weight_decay": 0.0005},
)


@operator("sgd", "Param LearningRate Grad -> ParamOut", in_place={"ParamOut": "Param"})
def sgd(param: Any, rate: Array, grad: Any) -> Any:
    """Take one step; the parameter may be selected rows itself, and then has all rows of the gradient."""
    if not isinstance(grad, SelectedRows):
        take_step(_RULE, param, dense(grad, param), {}, scalar(rate))
        return param
    rows = merged(grad, param)
    if len(rows.rows):
        change = scalar(rate) * rows.values
        if isinstance(param, SelectedRows):
            param.values[param.rows.searchsorted(rows.rows)] -= change
        else:
            param[rows.rows] -= change
    return param
