# SPDX-License-Identifier: Apache-2.0
"""Variables made of nothing: constants, random numbers, counters, copies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from paddle.fluid.initializer import Constant, Initializer
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttr, ParamAttrLike, to_attr
from paddle.fluid.program.variable import Parameter, Variable
from paddle.graph import unique_name
from paddle.ops.base.dtypes import VarType

__all__ = [
    "assign",
    "autoincreased_step_counter",
    "cast",
    "create_global_var",
    "create_parameter",
    "create_tensor",
    "fill_constant",
    "fill_constant_batch_size_like",
    "gaussian_random",
    "ones",
    "uniform_random",
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
    """Return a variable of one value, one of whose sizes is one of the input's."""
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


def uniform_random(
    shape: Sequence[int],
    dtype: npt.DTypeLike = "float32",
    min: float = -1.0,
    max: float = 1.0,
    seed: int = 0,
) -> Variable:
    """Return numbers uniform in [min, max), others in each step."""
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "min": float(min),
        "max": float(max),
        "seed": seed,
    }
    return LayerHelper("uniform_random").apply("uniform_random", {}, attrs, dtype=dtype)


def gaussian_random(
    shape: Sequence[int],
    mean: float = 0.0,
    std: float = 1.0,
    seed: int = 0,
    dtype: npt.DTypeLike = "float32",
) -> Variable:
    """Return normal numbers, others in each step."""
    attrs = {
        "shape": tuple(shape),
        "dtype": VarType.of(dtype),
        "mean": float(mean),
        "std": float(std),
        "seed": seed,
    }
    return LayerHelper("gaussian_random").apply("gaussian_random", {}, attrs, dtype=dtype)


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


def autoincreased_step_counter(counter_name: str | None = None, begin: int = 1, step: int = 1) -> Variable:
    """Return an int64 counter that each run begins by increasing; `begin` in the first run."""
    helper = LayerHelper("global_step_counter")
    name = counter_name or "@STEP_COUNTER@"
    block = helper.main_program.global_block()
    known = block.has_var(name)
    counter = helper.create_global_variable(name, (1,), "int64", persistable=True)
    if not known:
        helper.set_variable_initializer(counter, Constant(begin - 1, force_cpu=True))
        block._prepend_op("increment", {"X": counter}, {"Out": counter}, {"step": float(step)})
        counter.stop_gradient = True
    return counter
