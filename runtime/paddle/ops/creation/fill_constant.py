# SPDX-License-Identifier: Apache-2.0
"""fill_constant, fill_constant_batch_size_like, fill_any_like and fill_zeros_like: arrays filled with one value."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.lod import LoDArray, lod_of, plain
from paddle.ops.base.registry import Spec, operator


@operator(
    "fill_constant",
    "-> Out",
    attrs={"shape": tuple, "dtype": VarType.FP32, "value": 0.0, "force_cpu": False},
    infer="-> dtype(*shape)",
)
def fill_constant(*, shape: tuple[int, ...], dtype: VarType, value: float, xp: Any) -> Array:
    """Return an array of the given shape and dtype, filled with the value."""
    return xp.full(shape, value, dtype.numpy)


def _infer_any(x: Spec, *, dtype: int) -> Spec:
    return x if dtype < 0 else x._replace(dtype=VarType.of(dtype).numpy)


@operator("fill_any_like", "X -> Out", infer=_infer_any)
def fill_any_like(x: Array, *, value: float = 0.0, dtype: int = -1) -> Array:
    """Return an array of X's shape filled with the value, in the given dtype or, if that is -1, in X's dtype."""
    kind = x.dtype if dtype < 0 else VarType.of(dtype).numpy
    return array_module(x).full(x.shape, value, kind)


def _infer_like(
    like: Spec, *, shape: tuple[int, ...], dtype: VarType, input_dim_idx: int, output_dim_idx: int
) -> Spec:
    batch = -1 if like.lod_level and not input_dim_idx else like.shape[input_dim_idx]
    return Spec(_with_batch(shape, batch, output_dim_idx), dtype.numpy)


@operator("fill_constant_batch_size_like", "Input+ -> Out", attrs={"shape": tuple}, infer=_infer_like)
def fill_constant_batch_size_like(
    like: Array | LoDArray,
    *,
    shape: tuple[int, ...],
    dtype: VarType = VarType.FP32,
    value: float = 0.0,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
) -> Array:
    """Return an array filled with the value, in the given shape except for one size, which is the input's.

    For sequences, the first size is the number of sequences of the last level, not the number of rows.
    """
    lod = lod_of(like)
    batch = len(lod[-1]) - 1 if lod and not input_dim_idx else like.shape[input_dim_idx]
    sizes = _with_batch(shape, batch, output_dim_idx)
    return array_module(plain(like)).full(sizes, value, dtype.numpy)


@operator("fill_zeros_like", "X -> Out", infer="X")
def fill_zeros_like(x: Array) -> Array:
    """Return zeros of the input's shape and dtype."""
    return array_module(x).zeros(x.shape, x.dtype)


def _with_batch(shape: tuple[int, ...], batch: int, at: int) -> tuple[int, ...]:
    return (*shape[:at], batch, *shape[at + 1 :])
