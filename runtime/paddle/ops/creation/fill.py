# SPDX-License-Identifier: Apache-2.0
"""fill: an array of given numbers; fake_init: a table whose rows are on servers; delete_var: the end of a variable."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import AttrError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.selected_rows import SelectedRows
from paddle.ops.base.shapes import product


def _infer_fill(*, shape: tuple[int, ...], value: tuple[float, ...], dtype: VarType) -> Spec:
    if product(shape) != len(value):
        raise AttrError(f"fill: shape {shape} needs {product(shape)} numbers, got {len(value)}")
    return Spec(shape, dtype.numpy)


@operator(
    "fill",
    "-> Out",
    attrs={"shape": tuple, "value": tuple, "dtype": VarType.FP32, "force_cpu": False},
    infer=_infer_fill,
)
def fill(*, shape: tuple[int, ...], value: tuple[float, ...], dtype: VarType, xp: Any) -> Array:
    """Return an array with the given numbers, row by row, in the given shape and dtype."""
    return xp.asarray(np.array(value).astype(dtype.numpy).reshape(shape))


@operator("fake_init", "-> Out", attrs={"shape": tuple}, infer="-> float32(*shape)")
def fake_init(*, shape: tuple[int, ...], xp: Any) -> SelectedRows:
    """Return an empty placeholder for a table whose rows are on parameter servers."""
    height, *width = shape
    return SelectedRows(xp.zeros(0, "int64"), xp.zeros((0, *width), "float32"), height, is_merged=True)


@operator("delete_var", "X* ->", infer="->")
def delete_var(x: list[Any]) -> tuple[()]:
    """Do nothing; this operator never runs, because values are freed after their last reader."""
    return ()
