# SPDX-License-Identifier: Apache-2.0
"""Variables made of nothing or put together: constants, parameters, copies, ranges, sums, order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle.fluid.absent import answering
from paddle.fluid.initializer import Constant, Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike, to_attr
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph import unique_name
from paddle.ops.base.dtypes import VarType

__all__ = [
    "argmax",
    "argmin",
    "argsort",
    "assign",
    "cast",
    "concat",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "diag",
    "fill_constant",
    "fill_constant_batch_size_like",
    "has_inf",
    "has_nan",
    "isfinite",
    "linspace",
    "ones",
    "range",
    "reverse",
    "sums",
    "zeros",
    "zeros_like",
]


def create_tensor(dtype: npt.DTypeLike, name: str | None = None, persistable: bool = False) -> Variable:
    """Return a variable that an operator will give a shape."""
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
    """Return a parameter."""
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
    """Return a variable of block 0 that the startup program sets to one value."""
    helper = LayerHelper("global_var")
    variable = helper.create_global_variable(name, shape, dtype, persistable=persistable)
    helper.set_variable_initializer(variable, Constant(float(value), force_cpu))
    return variable


def fill_constant(
    shape: Sequence[int],
    dtype: npt.DTypeLike,
    value: float,
    force_cpu: bool = False,
    out: Variable | None = None,
) -> Variable:
    """Return a variable of one value, `out` if that is given."""
    helper = LayerHelper("fill_constant")
    out = out if out is not None else helper.create_variable_for_type_inference(dtype)
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "value": float(value),
        "force_cpu": force_cpu,
    }
    helper.append_op("fill_constant", {}, {"Out": out}, attrs)
    out.stop_gradient = True
    return out


def fill_constant_batch_size_like(
    input: Variable,
    shape: Sequence[int],
    dtype: npt.DTypeLike,
    value: float,
    input_dim_idx: int = 0,
    output_dim_idx: int = 0,
) -> Variable:
    """Return a variable of one value, one of whose sizes is one of the input's: of sequences their number."""
    helper = LayerHelper("fill_constant_batch_size_like")
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "value": float(value),
        "input_dim_idx": input_dim_idx,
        "output_dim_idx": output_dim_idx,
    }
    out = helper.apply("fill_constant_batch_size_like", {"Input": input}, attrs, dtype=dtype)
    out.stop_gradient = True
    return out


def ones(shape: Sequence[int], dtype: npt.DTypeLike, force_cpu: bool = False) -> Variable:
    """Return ones."""
    return fill_constant(shape, dtype, 1.0, force_cpu)


def zeros(shape: Sequence[int], dtype: npt.DTypeLike, force_cpu: bool = False) -> Variable:
    """Return zeros."""
    return fill_constant(shape, dtype, 0.0, force_cpu)


def zeros_like(x: Variable, out: Variable | None = None) -> Variable:
    """Return zeros in x's shape, in `out` if that is given."""
    helper = LayerHelper("zeros_like")
    out = out if out is not None else helper.create_variable_for_type_inference(x.dtype)
    helper.append_op("fill_zeros_like", {"X": x}, {"Out": out})
    out.stop_gradient = True
    return out


def cast(x: Variable, dtype: npt.DTypeLike) -> Variable:
    """Return x in another dtype."""
    helper = LayerHelper("cast")
    attrs = {"in_dtype": VarType.of(x.dtype), "out_dtype": VarType.of(dtype)}
    return helper.apply("cast", {"X": x}, attrs, dtype=dtype)


def assign(input: Variable | npt.NDArray[np.generic], output: Variable | None = None) -> Variable:
    """Return a copy of a variable or an array, in `output` if that is given."""
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


def sums(input: Variable | Sequence[Variable], out: Variable | None = None) -> Variable:
    """Return the sum of several variables, in `out` if that is given."""
    helper = LayerHelper("sum")
    inputs = [input] if isinstance(input, Variable) else list(input)
    if out is None:
        return helper.apply("sum", {"X": inputs}, dtype=inputs[0].dtype)
    helper.append_op("sum", {"X": inputs}, {"Out": out})
    return out


def concat(input: Sequence[Variable], axis: int = 0, name: str | None = None) -> Variable:
    """Return variables joined along an axis."""
    inputs = [input] if isinstance(input, Variable) else list(input)
    return LayerHelper("concat", name).apply("concat", {"X": inputs}, {"axis": axis}, dtype=inputs[0].dtype)


def argmax(x: Variable, axis: int = 0) -> Variable:
    """Return where the greatest values are along an axis, int64."""
    return LayerHelper("arg_max").apply("arg_max", {"X": x}, {"axis": axis})


def argmin(x: Variable, axis: int = 0) -> Variable:
    """Return where the least values are along an axis, int64."""
    return LayerHelper("arg_min").apply("arg_min", {"X": x}, {"axis": axis})


def argsort(input: Variable, axis: int = -1, name: str | None = None) -> tuple[Variable, Variable]:
    """Return the values in ascending order along an axis, and where each was."""
    helper = LayerHelper("argsort", name)
    out = helper.create_variable_for_type_inference(input.dtype, stop_gradient=True)
    places = helper.create_variable_for_type_inference("int64", stop_gradient=True)
    helper.append_op("argsort", {"X": input}, {"Out": out, "Indices": places}, {"axis": axis})
    return out, places


def reverse(x: Variable, axis: int | Sequence[int]) -> Variable:
    """Turn x round along one or several axes."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    return LayerHelper("reverse").apply("reverse", {"X": x}, {"axis": axes}, dtype=x.dtype)


def isfinite(x: Variable) -> Variable:
    """Return whether all values are finite, (1,) bool."""
    return LayerHelper("isfinite").apply("isfinite", {"X": x}, dtype="bool")


def has_inf(x: Variable) -> Variable:
    """Return whether any value is infinite, (1,) bool."""
    return LayerHelper("isinf").apply("isinf", {"X": x}, dtype="bool")


def has_nan(x: Variable) -> Variable:
    """Return whether any value is no number, (1,) bool."""
    return LayerHelper("isnan").apply("isnan", {"X": x}, dtype="bool")


def diag(diagonal: Variable) -> Variable:
    """Return a matrix with a vector along its diagonal."""
    return LayerHelper("diag").apply("diag", {"Diagonal": diagonal}, dtype=diagonal.dtype)


def range(
    start: float | Variable, end: float | Variable, step: float | Variable, dtype: npt.DTypeLike
) -> Variable:
    """Return start, start + step, ... below end."""
    names = {"Start": start, "End": end, "Step": step}
    inputs = {slot: _number(value, dtype) for slot, value in names.items()}
    return LayerHelper("range").apply("range", inputs, dtype=dtype, stop_gradient=True)


def linspace(
    start: float | Variable, stop: float | Variable, num: int | Variable, dtype: npt.DTypeLike
) -> Variable:
    """Return num numbers from start to stop, both among them."""
    inputs = {"Start": _number(start, dtype), "Stop": _number(stop, dtype), "Num": _number(num, "int32")}
    return LayerHelper("linspace").apply("linspace", inputs, dtype=dtype, stop_gradient=True)


def _number(value: float | Variable, dtype: npt.DTypeLike) -> Variable:
    if isinstance(value, Variable):
        return value if value.dtype == dtype else cast(value, dtype)
    return fill_constant([1], dtype, value)


__getattr__ = answering(__name__, "paddle.fluid.layers")
