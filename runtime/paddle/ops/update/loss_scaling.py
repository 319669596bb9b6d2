# SPDX-License-Identifier: Apache-2.0
"""check_finite_and_unscale and update_loss_scaling: divide gradients by the loss scale, and adapt the scale."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import operator
from paddle.ops.base.selected_rows import SelectedRows


@operator(
    "check_finite_and_unscale", "X*+ Scale -> Out*+ FoundInfinite", infer="-> X, bool(1)", shares_lod=False
)
def check_finite_and_unscale(x: list[Any], scale: Array) -> tuple[list[Any], Array]:
    """Divide gradients by the loss scale; also return whether any element is infinite or NaN, (1,) bool."""
    found = np.array([not all(_is_finite(each) for each in x)])
    return [_mapped(each, lambda values: values / scale.astype(values.dtype)) for each in x], found


@operator(
    "update_loss_scaling",
    "X*+ FoundInfinite PrevLossScaling InGoodSteps InBadSteps -> Out*+ LossScaling OutGoodSteps OutBadSteps",
    attrs={
        "incr_every_n_steps": int,
        "decr_every_n_nan_or_inf": int,
        "incr_ratio": float,
        "decr_ratio": float,
    },
    infer="X, PrevLossScaling, InGoodSteps, InBadSteps",
    shares_lod=False,
)
def update_loss_scaling(
    x: list[Any],
    infinite: Array,
    scaling: Array,
    good: Array,
    bad: Array,
    *,
    incr_every_n_steps: int,
    decr_every_n_nan_or_inf: int,
    incr_ratio: float,
    decr_ratio: float,
) -> tuple[list[Any], Array, Array, Array]:
    """Count a finite or infinite step, and adapt the loss scale after a given number of such steps.

    A step with infinite gradients sets them to 0; a given number of such steps decreases the factor, to at least 1. A
    given number of successive finite steps increases it, unless it would become infinite.
    """
    factor = scaling.copy()
    if bool(infinite[0]):
        good, bad = good * 0, bad + 1
        if int(bad[0]) >= decr_every_n_nan_or_inf:
            factor, bad = array_module(factor).maximum(factor * factor.dtype.type(decr_ratio), 1), bad * 0
        return [_mapped(each, array_module(factor).zeros_like) for each in x], factor, good, bad
    good, bad = good + 1, bad * 0
    if int(good[0]) >= incr_every_n_steps:
        with np.errstate(over="ignore"):
            grown = factor * factor.dtype.type(incr_ratio)
        factor, good = (grown if np.isfinite(float(grown[0])) else factor), good * 0
    return x, factor, good, bad


def _is_finite(value: Any) -> bool:
    values = value.values if isinstance(value, SelectedRows) else value
    return bool(array_module(values).isfinite(values).all())


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, SelectedRows):
        return SelectedRows(value.rows, change(value.values), value.height)
    return change(value)
