# SPDX-License-Identifier: Apache-2.0
"""Arrays of values by number, as loops write and read them."""

from __future__ import annotations

import numpy.typing as npt

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.program.var_type import VarType
from paddle.fluid.program.variable import Variable

__all__ = ["array_length", "array_read", "array_write", "create_array"]


def create_array(dtype: npt.DTypeLike) -> Variable:
    """Return an array without values."""
    helper = LayerHelper("array")
    array = helper.block.create_var(f"{helper.name}.out", dtype=dtype, type=VarType.LOD_TENSOR_ARRAY)
    helper.append_op("create_array", {}, {"Out": array}, {"dtype": VarType.of(dtype)})
    return array


def array_write(x: Variable, i: Variable, array: Variable | None = None) -> Variable:
    """Write x at number i of an array, or of a new one, and return the array."""
    if array is None:
        array = create_array(x.dtype)
    helper = LayerHelper("array_write")
    place = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op("write_to_array", {"X": x, "I": i, "Array": array}, {"Out": array, "Place": place})
    return array


def array_read(array: Variable, i: Variable) -> Variable:
    """Return value number i."""
    return LayerHelper("array_read").apply("read_from_array", {"X": array, "I": i}, dtype=array.dtype)


def array_length(array: Variable) -> Variable:
    """Return how many numbers an array has, (1,) int64."""
    return LayerHelper("array_length").apply("lod_array_length", {"X": array}, dtype="int64")
