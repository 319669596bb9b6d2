# SPDX-License-Identifier: Apache-2.0
"""Tensor arrays: create_array, write_to_array, read_from_array, lod_array_length and tensor_array_to_tensor.

`Place` stores the index for the gradient, since counters change. The gradient of an array is an array of the gradients
of its values; values without a gradient have None.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import TensorArray, plain, zeros_like
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of

_INT64 = np.dtype("int64")
_PLACE = Spec((1,), _INT64)


@operator("create_array", "-> Out+", attrs={"dtype": VarType.FP32}, infer="-> dtype()")
def create_array() -> TensorArray:
    """Create an empty tensor array."""
    return TensorArray()


def _infer_write(x: Spec, index: Spec, array: Spec | None) -> tuple[Spec, Spec]:
    if array is not None and array.shape and len(array.shape) == len(x.shape):
        # The values of an array may have different sizes.
        sizes = [a if a == b else -1 for a, b in zip(array.shape, x.shape, strict=True)]
        x = x._replace(shape=tuple(sizes))
    return x, _PLACE


@operator("write_to_array", "X+ I Array+? -> Out+ Place~", infer=_infer_write)
def write_to_array(x: Any, index: Array, array: TensorArray | None) -> tuple[TensorArray, Array]:
    """Store X at index I of a tensor array; return the new array and I. A missing array counts as empty."""
    number = _number(index)
    return (array or TensorArray()).with_item(number, x), np.array([number], _INT64)


@gradient("write_to_array", "X Place Out@GRAD+ -> X@GRAD Array@GRAD+?")
def write_to_array_grad(x: Array, index: Array, dout: TensorArray) -> tuple[Array, TensorArray]:
    """Return dX, the value of dOut at I, and the gradient of the previous array, which is dOut without that value."""
    number = _number(index)
    dx = dout.items[number] if number < len(dout) else None
    return (zeros_like(x), dout) if dx is None else (dx, dout.with_item(number, None))


@operator("read_from_array", "X+ I -> Out+ Place~", infer="-> X, int64(1)")
def read_from_array(x: TensorArray, index: Array) -> tuple[Any, Array]:
    """Read a tensor array: return the value at index I, and I."""
    number = _number(index)
    return x.item(number), np.array([number], _INT64)


@gradient("read_from_array", "Place Out@GRAD -> X@GRAD+")
def read_from_array_grad(index: Array, dout: Array) -> TensorArray:
    """Return the gradient of the array: an array that contains only dOut, at index I."""
    return TensorArray().with_item(_number(index), dout)


@operator("lod_array_length", "X+ -> Out", infer="-> int64(1)")
def lod_array_length(x: TensorArray) -> Array:
    """Return the length of the array, (1,) int64."""
    return np.array([len(x)], _INT64)


def _infer_joined(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    at = axis_of(axis, len(x.shape)) if x.shape else 0
    sizes = tuple(-1 if each == at else size for each, size in enumerate(x.shape))
    return Spec(sizes, x.dtype), Spec((-1,), np.dtype("int32"))


@operator("tensor_array_to_tensor", "X+ -> Out OutIndex", infer=_infer_joined, shares_lod=False)
def tensor_array_to_tensor(x: TensorArray, *, axis: int = 0) -> tuple[Array, Array]:
    """Concatenate all values along an axis; also return the size of each along it, (values,) int32.

    Raises:
        InputError: the array has no values.
    """
    values = [plain(each) for each in x.items if each is not None]
    if not values:
        raise InputError("tensor_array_to_tensor: the array has no values")
    sizes = np.array([each.shape[axis] for each in values], np.int32)
    return array_module(values[0]).concatenate(values, axis=axis), sizes


@gradient("tensor_array_to_tensor", "X+ Out@GRAD -> X@GRAD+")
def tensor_array_to_tensor_grad(x: TensorArray, dout: Array, *, axis: int) -> TensorArray:
    """Split dOut into the gradients of the array's values; return them as an array."""
    found: list[Any] = []
    begin, whole = 0, (slice(None),) * (axis % dout.ndim)
    for each in x.items:
        end = begin + (0 if each is None else each.shape[axis])
        found.append(None if each is None else dout[(*whole, slice(begin, end))])
        begin = end
    return TensorArray(tuple(found))


def _number(index: Array) -> int:
    return int(index.reshape(-1)[0])
