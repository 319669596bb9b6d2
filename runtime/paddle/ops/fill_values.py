# SPDX-License-Identifier: Apache-2.0
"""fill: an array of given numbers; fake_init: a variable of a shape whose values come from elsewhere; delete_var."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.dtypes import VarType
from paddle.ops.errors import AttrError
from paddle.ops.registry import Spec, operator
from paddle.ops.shapes import product


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
    """Return the numbers in the given shape, row by row."""
    return xp.asarray(np.array(value).astype(dtype.numpy).reshape(shape))


def _infer_fake(*, shape: tuple[int, ...]) -> Spec:
    return Spec(shape, np.dtype("float32"))


@operator("fake_init", "-> Out", attrs={"shape": tuple}, infer=_infer_fake)
def fake_init(*, shape: tuple[int, ...], xp: Any) -> Array:
    """Return zeros: the values are on parameter servers."""
    return xp.zeros(shape, "float32")


@operator("delete_var", "X* ->", has_effect=True)
def delete_var(x: list[Any]) -> tuple[()]:
    """Do nothing: values are freed after their last reader in any case."""
    return ()
