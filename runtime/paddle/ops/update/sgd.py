# SPDX-License-Identifier: Apache-2.0
"""sgd: ParamOut = Param − LearningRate · Grad; of selected rows only those rows change."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.update.steps import dense, merged, scalar, take_step
from paddle.optim.rules.sgd import SGD

_RULE = SGD()


def _infer(param: Spec, rate: Spec, grad: Spec) -> Spec:
    return param


@operator("sgd", "Param LearningRate Grad -> ParamOut", infer=_infer, in_place={"ParamOut": "Param"})
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
