# SPDX-License-Identifier: Apache-2.0
"""Layers with weights or tables: fc, bilinear_tensor_product, embedding; also one_hot and continuous_value_model."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.shaping import unsqueeze
from paddle.fluid.layers.plain import layer
from paddle.fluid.param_attr import ParamAttrLike, to_attrs
from paddle.fluid.program.variable import Variable
from paddle.signatures import takes

__all__ = ["bilinear_tensor_product", "continuous_value_model", "embedding", "fc", "one_hot"]

continuous_value_model = layer(
    "continuous_value_model(input, cvm, use_cvm=True)",
    """embeddings whose first two columns, counts of shows and clicks, become logarithms.

    With use_cvm they are ln(shows + 1) and ln(clicks + 1) − ln(shows + 1), otherwise they are removed. Their gradient
    is cvm (rows, 2), the counts themselves""",
    "cvm",
    to="cvm=CVM",
)


def fc(
    input: Variable | Sequence[Variable],
    size: int,
    num_flatten_dims: int = 1,
    param_attr: ParamAttrLike | Sequence[ParamAttrLike] = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    is_test: bool = False,
    name: str | None = None,
) -> Variable:
    """Apply a fully connected layer to one input or several: return act(Σ X W + b).

    Args:
        input: one variable, or several, each multiplied by its own W and then summed.
        size: number of columns of W.
        num_flatten_dims: number of leading input dimensions to keep; the others are flattened into one. -1 means all
            but the last are kept.
        param_attr: attributes of W; a list for several inputs.
        bias_attr: attributes of b, shape [size]; False means no bias.
        is_test: ignored.

    Raises:
        FluidTypeError: an input has an integer dtype.
    """
    helper = LayerHelper("fc", name, bias_attr=bias_attr, act=act)
    inputs = [input] if isinstance(input, Variable) else list(input)
    for x in inputs:
        if not np.issubdtype(x.dtype, np.floating):
            raise FluidTypeError(
                f"fc: expected a floating-point input, got {x.describe()}: use layers.cast, or "
                "layers.embedding for ids"
            )
    if num_flatten_dims == -1:
        num_flatten_dims = len(inputs[0].shape) - 1
    products = []
    for x, attr in zip(inputs, to_attrs(param_attr, len(inputs)), strict=True):
        shape = (prod(x.shape[num_flatten_dims:]), size)
        weight = helper.create_parameter(False if attr is None else attr, shape, x.dtype)
        attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
        products.append(helper.apply("mul", {"X": x, "Y": weight}, attrs))
    total = products[0] if len(products) == 1 else helper.apply("sum", {"X": products})
    return helper.append_activation(helper.append_bias_op(total, dim_start=num_flatten_dims))


def embedding(
    input: Variable,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: ParamAttrLike = None,
    dtype: npt.DTypeLike = "float32",
) -> Variable:
    """Look up ids in an embedding table; return their rows, (..., width).

    Args:
        input: int64 ids, (..., 1).
        size: shape of the table, [rows, width].
        is_sparse: whether the gradient is sparse (SelectedRows).
        is_distributed: whether the table is stored only on parameter servers; ids can then be any int64.
        padding_idx: id whose row is all zeros; a negative id counts from the end; None means no row is zeroed.
        param_attr: attributes of the table.
        dtype: dtype of the table.
    """
    if isinstance(size, int) or len(size) != 2:
        raise FluidTypeError(f"embedding: size: expected [rows, width], such as [10000, 64], got {size!r}")
    helper = LayerHelper("embedding", param_attr=param_attr)
    table = helper.create_parameter(False if helper.param_attr is None else helper.param_attr, size, dtype)
    if padding_idx is None:
        padding_idx = -1
    elif padding_idx < 0:
        padding_idx += size[0]
    attrs = {
        "is_sparse": is_sparse,
        "is_distributed": is_distributed,
        "remote_prefetch": is_sparse and not is_distributed,
        "padding_idx": padding_idx,
    }
    return helper.apply("lookup_table", {"W": table, "Ids": input}, attrs)


one_hot = layer(
    "one_hot(input, depth, allow_out_of_range=False)",
    "float32 vectors of length depth, 1 at the id and 0 elsewhere; depth may be a variable (1,). With "
    "allow_out_of_range, an id outside [0, depth) gives zeros",
    to="depth=depth|depth_tensor",
)


bilinear_tensor_product = layer(
    "bilinear_tensor_product(x, y, size, act=None, name=None, param_attr=None, bias_attr=None)",
    "act(x W[k] yᵀ + b[k]) for k below size; W is (size, x's width, y's width), b (1, size)",
    to="size=",
    learnt={
        "Weight": lambda given: (given["size"], given["x"].shape[1], given["y"].shape[1]),
        "Bias": lambda given: (1, given["size"]),
    },
)


@takes(
    "input, size, is_sparse=False, is_distributed=False, padding_idx=None, param_attr=None, dtype='float32'"
)
def shaped_embedding(given: dict[str, Any]) -> Variable:
    """Look up ids of any shape (...) in an embedding table; return (..., width) (`fluid.embedding` of Fluid 1.6)."""
    return embedding(**{**given, "input": unsqueeze(given["input"], [-1])})


@takes("input, depth, allow_out_of_range=False")
def shaped_one_hot(given: dict[str, Any]) -> Variable:
    """Return one-hot float32 vectors (..., depth) for ids of any shape (...) (`fluid.one_hot` of Fluid 1.6)."""
    return one_hot(**{**given, "input": unsqueeze(given["input"], [-1])})
