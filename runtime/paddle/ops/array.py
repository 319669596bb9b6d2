# SPDX-License-Identifier: Apache-2.0
"""create_array, write_to_array, read_from_array, lod_array_length: values by number.

The gradient of an array is an array with the gradients of its values, None where there is none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.dtypes import VarType
from paddle.ops.registry import Spec, gradient, operator
from paddle.ops.tensor_array import TensorArray, zeros_like

_INT64 = np.dtype("int64")


def _infer_create(*, dtype: VarType) -> Spec:
    return Spec((), dtype.numpy)


@operator("create_array", "-> Out+", attrs={"dtype": VarType.FP32}, infer=_infer_create)
def create_array() -> TensorArray:
    """Return an array without values."""
    return TensorArray()


def _infer_write(x: Spec, index: Spec, array: Spec | None) -> Spec:
    if array is not None and array.shape and len(array.shape) == len(x.shape):
        # Values of one array may differ in size.
        sizes = [a if a == b else -1 for a, b in zip(array.shape, x.shape, strict=True)]
        return x._replace(shape=tuple(sizes))
    return x


@operator("write_to_array", "X+ I Array+? -> Out+", infer=_infer_write)
def write_to_array(x: Any, index: Array, array: TensorArray | None) -> TensorArray:
    """Return the array with X at number I; an array that is not there counts as empty."""
    return (array or TensorArray()).with_item(_number(index), x)


@gradient("write_to_array", "X I Out@GRAD+ -> X@GRAD Array@GRAD+?")
def write_to_array_grad(x: Array, index: Array, dout: TensorArray) -> tuple[Array, TensorArray]:
    """dX = what dOut has at I; the array before has the rest."""
    number = _number(index)
    dx = dout.items[number] if number < len(dout) else None
    return (zeros_like(x), dout) if dx is None else (dx, dout.with_item(number, None))


def _infer_read(x: Spec, index: Spec) -> Spec:
    return x


@operator("read_from_array", "X+ I -> Out+", infer=_infer_read)
def read_from_array(x: TensorArray, index: Array) -> Any:
    """Return value number I."""
    return x.item(_number(index))


@gradient("read_from_array", "I Out@GRAD -> X@GRAD+")
def read_from_array_grad(index: Array, dout: Array) -> TensorArray:
    """Return an array with dOut at I alone."""
    return TensorArray().with_item(_number(index), dout)


def _infer_length(x: Spec) -> Spec:
    return Spec((1,), _INT64)


@operator("lod_array_length", "X+ -> Out", infer=_infer_length)
def lod_array_length(x: TensorArray) -> Array:
    """Return how many numbers the array has, (1,) int64."""
    return np.array([len(x)], _INT64)


def _number(index: Array) -> int:
    return int(index.reshape(-1)[0])
