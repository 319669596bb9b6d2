# SPDX-License-Identifier: Apache-2.0
"""layer_norm and group_norm."""

from __future__ import annotations

from math import prod

from paddle.fluid.initializer import Constant
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = ["group_norm", "layer_norm"]


def layer_norm(
    input: Variable,
    scale: bool = True,
    shift: bool = True,
    begin_norm_axis: int = 1,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return act of each row with mean 0 and variance 1, scaled and shifted number by number.

    A row is all dimensions from begin_norm_axis on.
    """
    helper = LayerHelper("layer_norm", name, act=act)
    size = (prod(input.shape[begin_norm_axis:]),)
    inputs = {"X": input}
    if scale:
        inputs["Scale"] = helper.create_parameter(param_attr, size, input.dtype, False, Constant(1.0))
    if shift:
        inputs["Bias"] = helper.create_parameter(bias_attr, size, input.dtype, is_bias=True)
    attrs = {"epsilon": epsilon, "begin_norm_axis": begin_norm_axis}
    return helper.append_activation(helper.apply("layer_norm", inputs, attrs, out="Y", dtype=input.dtype))


def group_norm(
    input: Variable,
    groups: int,
    epsilon: float = 1e-05,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    act: str | None = None,
    data_layout: str = "NCHW",
    name: str | None = None,
) -> Variable:
    """Return act of an image (N, C, ...) whose groups of channels have mean 0 and variance 1, scaled and shifted."""
    helper = LayerHelper("group_norm", name, act=act)
    size = (input.shape[1],)
    inputs = {"X": input}
    if param_attr is not False:
        inputs["Scale"] = helper.create_parameter(param_attr, size, input.dtype, False, Constant(1.0))
    if bias_attr is not False:
        inputs["Bias"] = helper.create_parameter(bias_attr, size, input.dtype, is_bias=True)
    attrs = {"epsilon": epsilon, "groups": groups}
    return helper.append_activation(helper.apply("group_norm", inputs, attrs, out="Y", dtype=input.dtype))
