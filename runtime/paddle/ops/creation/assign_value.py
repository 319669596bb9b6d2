# SPDX-License-Identifier: Apache-2.0
"""assign_value: returns the array given by its attributes."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.registry import operator


@operator("assign_value", "-> Out", attrs={"shape": tuple}, infer="-> dtype(*shape)")
def assign_value(
    *,
    shape: tuple[int, ...],
    dtype: VarType = VarType.FP32,
    fp32_values: tuple[float, ...] = (),
    int32_values: tuple[int, ...] = (),
    xp: Any,
) -> Array:
    """Return an array with the values and the shape in the attributes; float values take precedence."""
    return xp.asarray(fp32_values or int32_values, dtype.numpy).reshape(shape)
