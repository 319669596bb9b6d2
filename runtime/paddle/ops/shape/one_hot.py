# SPDX-License-Identifier: Apache-2.0
"""one_hot: class numbers (..., 1) as rows of zeros and one 1."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import AttrError, InputError, ShapeError
from paddle.ops.base.registry import Spec, operator


def _infer(x: Spec, *, depth: int, dtype: VarType) -> Spec:
    if depth <= 0:
        raise AttrError(f"depth: expected a positive number of classes, got {depth}")
    if not x.shape or x.shape[-1] != 1 or x.dtype.kind not in "iu":
        raise ShapeError(f"expected X (..., 1) of whole numbers, got {x.shape} {x.dtype}")
    return Spec((*x.shape[:-1], depth), dtype.numpy, x.lod_level)


@operator("one_hot", "X -> Out", attrs={"depth": -1, "dtype": VarType.FP32}, infer=_infer)
def one_hot(x: Array, *, depth: int, dtype: VarType) -> Array:
    """Return (..., depth).

    Raises:
        InputError: a number is outside of [0, depth).
    """
    xp = array_module(x)
    flat = x.reshape(-1)
    if len(flat) and not (int(flat.min()) >= 0 and int(flat.max()) < depth):
        raise InputError(f"expected numbers in [0, {depth}), got {int(flat.min())}..{int(flat.max())}")
    out = xp.zeros((len(flat), depth), dtype.numpy)
    out[xp.arange(len(flat)), flat] = 1
    return out.reshape(*x.shape[:-1], depth)
