# SPDX-License-Identifier: Apache-2.0
"""fc: a fully connected layer."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from paddle.fluid.errors import FluidTypeError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike, to_attrs
from paddle.fluid.program.variable import Variable

__all__ = ["fc"]


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
    """Return act(Σ X W + b).

    Args:
        input: one variable, or several that each get a W and are added up.
        size: columns of W.
        num_flatten_dims: so many leading dimensions of the input stay, the others are one row.
        param_attr: of W; a list for several inputs.
        bias_attr: of b, shape [size]; False: none.
        act: name of an activation.
        is_test: has no meaning.
        name: of the layer.

    Raises:
        FluidTypeError: an input has whole numbers.
    """
    helper = LayerHelper("fc", name, bias_attr=bias_attr, act=act)
    inputs = [input] if isinstance(input, Variable) else list(input)
    for x in inputs:
        if not np.issubdtype(x.dtype, np.floating):
            raise FluidTypeError(
                f"fc: expected an input of floating numbers, got {x.describe()}: use layers.cast, or "
                "layers.embedding for ids"
            )
    products = []
    for x, attr in zip(inputs, to_attrs(param_attr, len(inputs)), strict=True):
        shape = (prod(x.shape[num_flatten_dims:]), size)
        weight = helper.create_parameter(False if attr is None else attr, shape, x.dtype)
        attrs = {"x_num_col_dims": num_flatten_dims, "y_num_col_dims": 1}
        products.append(helper.apply("mul", {"X": x, "Y": weight}, attrs, dtype=x.dtype))
    total = products[0] if len(products) == 1 else helper.apply("sum", {"X": products})
    return helper.append_activation(helper.append_bias_op(total, dim_start=num_flatten_dims))
