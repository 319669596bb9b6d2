# SPDX-License-Identifier: Apache-2.0
"""adagrad, decayed_adagrad, adadelta, rmsprop, ftrl: rates that fall with the squares of past gradients.

adadelta: steps as large as past steps were; there is no learning rate.
rmsprop: gradients over the root of their mean square, plain or centred.
ftrl: follow the regularised leader.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.compiled import kernels_for, read_only
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.update.steps import dense, merged, scalar, step_operator, take_step
from paddle.optim.rules.adadelta import FluidAdadelta
from paddle.optim.rules.adagrad import FluidAdagrad
from paddle.optim.rules.decayed_adagrad import FluidDecayedAdagrad
from paddle.optim.rules.ftrl import Ftrl
from paddle.optim.rules.rmsprop import FluidRMSProp

_SLOTS = "Param Grad Moment LearningRate -> ParamOut MomentOut"
_IN_PLACE = {"ParamOut": "Param", "MomentOut": "Moment"}


@operator("adagrad", _SLOTS, attrs={"epsilon": 1e-6}, in_place=_IN_PLACE)
def adagrad(param: Array, grad: Any, moment: Array, rate: Array, *, epsilon: float) -> tuple[Array, Array]:
    """Take one step; only the rows of a sparse gradient change."""
    if not isinstance(grad, SelectedRows):
        _step_of_all(param, dense(grad, param), moment, scalar(rate), epsilon)
    else:
        _step_of_rows(param, merged(grad, param), moment, scalar(rate), epsilon)
    return param, moment


def _step_of_all(param: Array, grad: Array, moment: Array, rate: Any, epsilon: float) -> None:
    kernels = kernels_for(param.size, param, grad, moment)
    if kernels is None:
        # What the sum of squares starts from is in Moment itself.
        take_step(FluidAdagrad(epsilon, 0.0), param, grad, {"s": moment}, rate)
        return
    w, g, s = param.reshape(-1), read_only(grad.reshape(-1)), moment.reshape(-1)
    kernels.adagrad(w, g, s, np.float32(rate), np.float32(epsilon))


def _step_of_rows(param: Array, grad: SelectedRows, moment: Array, rate: Any, epsilon: float) -> None:
    rows, values = grad.rows, grad.values
    kernels = kernels_for(param.size, param, values, moment) if param.ndim == 2 and len(rows) else None
    if kernels is None or rows[0] < 0 or rows[-1] >= len(param):
        w, m = param[rows], moment[rows]
        take_step(FluidAdagrad(epsilon, 0.0), w, values, {"s": m}, rate)
        param[rows], moment[rows] = w, m
        return
    numbers = np.float32(rate), np.float32(epsilon)
    kernels.adagrad_rows(param, read_only(rows), read_only(values), moment, *numbers)


step_operator(
    "decayed_adagrad", _SLOTS, FluidDecayedAdagrad, {"G": "Moment"}, {"decay": 0.95, "epsilon": 1e-6}
)
step_operator(
    "adadelta",
    "Param Grad AvgSquaredGrad AvgSquaredUpdate -> ParamOut AvgSquaredGradOut AvgSquaredUpdateOut",
    FluidAdadelta,
    {"E": "AvgSquaredGrad", "D": "AvgSquaredUpdate"},
    {"rho": 0.95, "epsilon": 1e-6},
    lambda given: 1.0,
)
step_operator(
    "ftrl",
    "Param SquaredAccumulator LinearAccumulator Grad LearningRate -> ParamOut SquaredAccumOut LinearAccumOut",
    Ftrl,
    {"n": "SquaredAccumulator", "z": "LinearAccumulator"},
    {"l1": 0.0, "l2": 0.0, "lr_power": -0.5},
)


def _infer_rmsprop(
    param: Spec, square: Spec, mean: Spec | None, rate: Spec, grad: Spec, moment: Spec
) -> tuple[Spec, Spec, Spec, Spec]:
    return param, moment, square, mean or square


@operator(
    "rmsprop",
    "Param MeanSquare MeanGrad? LearningRate Grad Moment -> ParamOut MomentOut MeanSquareOut MeanGradOut?",
    attrs={"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False},
    infer=_infer_rmsprop,
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
