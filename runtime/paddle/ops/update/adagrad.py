# SPDX-License-Identifier: Apache-2.0
"""adagrad and decayed_adagrad: rates that fall with the squares of past gradients."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.registry import Spec, operator
from paddle.ops.selected_rows import SelectedRows
from paddle.ops.update.grads import dense, merged, scalar
from paddle.ops.update.steps import take_step
from paddle.optim.fluid_adagrad import FluidAdagrad
from paddle.optim.fluid_decayed_adagrad import FluidDecayedAdagrad

_SLOTS = "Param Grad Moment LearningRate -> ParamOut MomentOut"
_IN_PLACE = {"ParamOut": "Param", "MomentOut": "Moment"}


def _infer(param: Spec, grad: Spec, moment: Spec, rate: Spec) -> tuple[Spec, Spec]:
    return param, moment


@operator("adagrad", _SLOTS, attrs={"epsilon": 1e-6}, infer=_infer, in_place=_IN_PLACE)
def adagrad(param: Array, grad: Any, moment: Array, rate: Array, *, epsilon: float) -> tuple[Array, Array]:
    """Take one step; only the rows of a sparse gradient change."""
    # What the sum of squares starts from is in Moment itself.
    rule = FluidAdagrad(epsilon, 0.0)
    if not isinstance(grad, SelectedRows):
        take_step(rule, param, dense(grad, param), {"s": moment}, scalar(rate))
        return param, moment
    rows = merged(grad, param)
    w, m = param[rows.rows], moment[rows.rows]
    take_step(rule, w, rows.values, {"s": m}, scalar(rate))
    param[rows.rows], moment[rows.rows] = w, m
    return param, moment


@operator("decayed_adagrad", _SLOTS, attrs={"decay": 0.95, "epsilon": 1e-6}, infer=_infer, in_place=_IN_PLACE)
def decayed_adagrad(
    param: Array, grad: Any, moment: Array, rate: Array, *, decay: float, epsilon: float
) -> tuple[Array, Array]:
    """Take one step."""
    rule = FluidDecayedAdagrad(decay, epsilon)
    take_step(rule, param, dense(grad, param), {"G": moment}, scalar(rate))
    return param, moment
