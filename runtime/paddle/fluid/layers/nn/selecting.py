# SPDX-License-Identifier: Apache-2.0
"""Elements chosen, taken apart or hashed; sparse rows as arrays; products of pairs."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.tensor import fill_constant
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable
from paddle.ops.base.dtypes import VarType

__all__ = [
    "bilinear_tensor_product",
    "get_tensor_from_selected_rows",
    "hash",
    "merge_selected_rows",
    "multiplex",
    "rank",
    "unstack",
    "where",
]


def where(condition: Variable) -> Variable:
    """Return the places (found, rank) at which a condition holds, int64."""
    return LayerHelper("where").apply("where", {"Condition": condition}, dtype="int64", stop_gradient=True)


def rank(input: Variable) -> Variable:
    """Return how many dimensions a variable has, int32 (1,)."""
    return fill_constant([1], "int32", len(input.shape))


def multiplex(inputs: Sequence[Variable], index: Variable) -> Variable:
    """Return row i of input index[i]."""
    helper = LayerHelper("multiplex")
    return helper.apply("multiplex", {"X": list(inputs), "Ids": index}, dtype=inputs[0].dtype)


def unstack(x: Variable, axis: int = 0, num: int | None = None) -> list[Variable]:
    """Return the parts of x along an axis, without that axis.

    Raises:
        FluidError: there are not `num`, or how many there are is not known.
    """
    count = x.shape[axis] if num is None else num
    if count < 0:
        raise FluidError(f"unstack: the size of axis {axis} of {x.describe()} is not known: give num")
    helper = LayerHelper("unstack")
    parts = [helper.create_variable_for_type_inference(x.dtype) for _ in [None] * count]
    helper.append_op("unstack", {"X": x}, {"Y": parts}, {"axis": axis, "num": count})
    return parts


def hash(input: Variable, hash_size: int, num_hash: int = 1, name: str | None = None) -> Variable:
    """Return (rows, num_hash, 1) numbers below hash_size for rows of ids."""
    attrs = {"num_hash": num_hash, "mod_by": hash_size}
    return LayerHelper("hash", name).apply("hash", {"X": input}, attrs, dtype="int64", stop_gradient=True)


def merge_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return sparse rows, each of them once, values added up."""
    helper = LayerHelper("merge_selected_rows", name)
    out = helper.block.create_var(f"{helper.name}.out", x.shape, x.dtype, type=VarType.SELECTED_ROWS)
    helper.append_op("merge_selected_rows", {"X": x}, {"Out": out})
    return out


def get_tensor_from_selected_rows(x: Variable, name: str | None = None) -> Variable:
    """Return the values of sparse rows as an array."""
    helper = LayerHelper("get_tensor_from_selected_rows", name)
    return helper.apply("get_tensor_from_selected_rows", {"X": x}, dtype=x.dtype)


def bilinear_tensor_product(
    x: Variable,
    y: Variable,
    size: int,
    act: str | None = None,
    name: str | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
) -> Variable:
    """Return act(x W[k] yᵀ + b[k]) for k below size; W is (size, x's width, y's width), b (1, size)."""
    helper = LayerHelper("bilinear_tensor_product", name, bias_attr=bias_attr, act=act)
    shape = (size, x.shape[1], y.shape[1])
    inputs: dict[str, Variable] = {"X": x, "Y": y}
    inputs["Weight"] = helper.create_parameter(param_attr, shape, x.dtype)
    if helper.bias_attr is not None:
        inputs["Bias"] = helper.create_parameter(helper.bias_attr, (1, size), x.dtype, is_bias=True)
    return helper.append_activation(helper.apply("bilinear_tensor_product", inputs, dtype=x.dtype))
