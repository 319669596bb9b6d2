# SPDX-License-Identifier: Apache-2.0
"""Layers that create and combine variables: constants, parameters, copies, ranges, sums and sorting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidError, answering
from paddle.fluid.initializer import Constant, Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike, to_attr
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph import unique_name
from paddle.ops.base.dtypes import VarType

__all__ = [
    "argmax", "argmin", "argsort", "assign", "cast", "concat", "create_global_var", "create_parameter",
    "create_tensor", "diag", "fill_constant", "fill_constant_batch_size_like", "has_inf", "has_nan",
    "isfinite", "linspace", "ones", "range", "reverse", "sums", "tensor_array_to_tensor", "zeros", "zeros_like",
]  # fmt: skip


def create_tensor(dtype: npt.DTypeLike, name: str | None = None, persistable: bool = False) -> Variable:
    """Create an empty variable, whose shape is set by the operator that writes it, and return it."""
    helper = LayerHelper("create_tensor", name)
    return helper.block.create_var(helper.name, dtype=dtype, persistable=persistable)


def create_parameter(
    shape: Sequence[int],
    dtype: npt.DTypeLike,
    name: str | None = None,
    attr: ParamAttrLike = None,
    is_bias: bool = False,
    default_initializer: Initializer | None = None,
) -> Parameter:
    """Create a trainable parameter with the given shape and dtype, and return it."""
    known = to_attr(attr) or ParamAttr()
    known.name = known.name or name
    return LayerHelper("create_parameter").create_parameter(known, shape, dtype, is_bias, default_initializer)


def create_global_var(
    shape: Sequence[int],
    value: float,
    dtype: npt.DTypeLike,
    persistable: bool = False,
    force_cpu: bool = False,
    name: str | None = None,
) -> Variable:
    """Create a variable in block 0 that the startup program fills with `value`, and return it."""
    helper = LayerHelper("global_var")
    variable = helper.create_global_variable(name, shape, dtype, persistable=persistable)
    helper.set_variable_initializer(variable, Constant(float(value), force_cpu))
    return variable


def _checked(given: Mapping[str, Any]) -> dict[str, Any]:
    value = given["value"]
    is_whole = isinstance(value, int) and VarType.of(given["dtype"]).numpy.kind in "iu"
    if is_whole and int(float(value)) != value:
        raise FluidError(
            f"fill_constant: {value} would be rounded to {int(float(value))}: use layers.assign(np.array([{value}]))"
        )
    return {}


fill_constant = layer(
    "fill_constant(shape, dtype, value, force_cpu=False, out=None)",
    "a variable filled with one value; stored in `out` if given",
    to="out=Out",
    change=_checked,
    fixed="Out",
)
fill_constant_batch_size_like = layer(
    "fill_constant_batch_size_like(input, shape, dtype, value, input_dim_idx=0, output_dim_idx=0)",
    "a variable of the given shape filled with one value, with dimension output_dim_idx as large as "
    "the input's dimension input_dim_idx (the number of sequences, if it has any)",
    fixed="Out",
)
zeros_like = layer(
    "zeros_like(x, out=None)",
    "zeros in x's shape; stored in `out` if given",
    "fill_zeros_like",
    to="out=Out",
    fixed="Out",
    prefix="zeros_like",
)
sums = layer(
    "sums(input, out=None)", "the sum of several variables; stored in `out` if given", "sum", to="out=Out"
)
concat = layer("concat(input, axis=0, name=None)", "variables concatenated along an axis")
tensor_array_to_tensor = several(
    "tensor_array_to_tensor(input, axis=1, name=None)",
    "all values of an array concatenated along an axis, and their sizes along this axis, int32",
    fixed="OutIndex",
)
argmax = layer("argmax(x, axis=0)", "the positions of the maxima along an axis, int64", "arg_max")
argmin = layer("argmin(x, axis=0)", "the positions of the minima along an axis, int64", "arg_min")
argsort = several(
    "argsort(input, axis=-1, name=None)",
    "the values in ascending order along an axis, and their original positions, int64",
    fixed="Out Indices",
)
isfinite = layer("isfinite(x)", "whether all values are finite, (1,) bool")
has_inf = layer("has_inf(x)", "whether any value is infinite, (1,) bool", "isinf")
has_nan = layer("has_nan(x)", "whether any value is NaN, (1,) bool", "isnan")
_diag = layer("diag(diagonal)", "a matrix with a vector along its diagonal")


def ones(shape: Sequence[int], dtype: npt.DTypeLike, force_cpu: bool = False) -> Variable:
    """Create a constant of the given shape and dtype, filled with ones, and return it."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: npt.DTypeLike, force_cpu: bool = False) -> Variable:
    """Create a constant of the given shape and dtype, filled with zeros, and return it."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


cast = layer(
    "cast(x, dtype)",
    "x converted to another dtype",
    to="dtype=out_dtype",
    change=lambda given: {"in_dtype": given["x"].dtype},
)


def diag(diagonal: Variable | npt.NDArray[np.generic]) -> Variable:
    """Return a square matrix with the given vector (a variable or an array) on its diagonal and zeros elsewhere."""
    return _diag(diagonal if isinstance(diagonal, Variable) else assign(diagonal))


def assign(input: Variable | npt.NDArray[np.generic], output: Variable | None = None) -> Variable:
    """Copy a variable or an array to `output` or, if output is None, to a new variable; return the copy."""
    helper = LayerHelper("assign")
    if isinstance(input, Variable):
        output = output if output is not None else helper.create_variable_for_type_inference(input.dtype)
        helper.append_op("assign", {"X": input}, {"Out": output})
        return output
    shape, dtype = input.shape, input.dtype
    if output is None:
        output = helper.block.create_var(unique_name.generate(f"{helper.name}.tmp"), shape, dtype)
    values = "fp32_values" if dtype.kind == "f" else "int32_values"
    attrs = {"shape": shape, "dtype": VarType.of(dtype), values: input.reshape(-1).tolist()}
    helper.append_op("assign_value", {}, {"Out": output}, attrs)
    return output


reverse = layer(
    "reverse(x, axis)",
    "x with its elements in reverse order along one or several axes",
    change=lambda given: {"axis": (given["axis"],) if isinstance(given["axis"], int) else given["axis"]},
)
range = layer(
    "range(start, end, step, dtype)",
    "the numbers start, start + step, start + 2 step, ... below `end`",
    to="dtype=",
    fixed="Out",
    change=lambda given: {name: _number(given[name], given["dtype"]) for name in ("start", "end", "step")},
)
linspace = layer(
    "linspace(start, stop, num, dtype)",
    "num evenly spaced numbers from start to stop, including both",
    to="dtype=",
    fixed="Out",
    change=lambda given: {
        **{name: _number(given[name], given["dtype"]) for name in ("start", "stop")},
        "num": _number(given["num"], "int32"),
    },
)


def _number(value: float | Variable, dtype: npt.DTypeLike) -> Variable:
    if isinstance(value, Variable):
        return value if value.dtype == dtype else cast(value, dtype)
    return fill_constant([1], dtype, value)


__getattr__ = answering(__name__, "paddle.fluid.layers")
