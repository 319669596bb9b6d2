# SPDX-License-Identifier: Apache-2.0
"""Layers over images, (batch, channels, height, width)."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.convolutions import Size, convolution, pooling, transposed
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.variable import Variable

__all__ = ["conv2d", "conv2d_transpose", "pool2d"]


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: Size,
    stride: Size = 1,
    padding: Size = 0,
    dilation: Size = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return act(input * filters + bias).

    Filters are (num_filters, channels/groups, height, width), at first normal with deviation √(2/(h·w·channels));
    the bias is one number a filter. `use_cudnn` has no meaning but for depthwise convolutions.
    """
    helper = LayerHelper("conv2d", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    depthwise = groups == input.shape[1] and num_filters % input.shape[1] == 0 and not use_cudnn
    op_type = "depthwise_conv2d" if depthwise else "conv2d"
    moves = (stride, padding, dilation)
    return convolution(helper, input, num_filters, filter_size, moves, groups, op_type)


def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: Size | None = None,
    filter_size: Size | None = None,
    padding: Size = 0,
    stride: Size = 1,
    dilation: Size = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return what a convolution would have made the input of; filters are (channels, num_filters/groups, ...).

    One of output_size and filter_size must be given.
    """
    helper = LayerHelper("conv2d_transpose", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    moves = (stride, padding, dilation)
    return transposed(helper, input, num_filters, output_size, filter_size, moves, groups)


def pool2d(
    input: Variable,
    pool_size: Size = -1,
    pool_type: str = "max",
    pool_stride: Size = 1,
    pool_padding: Size = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
) -> Variable:
    """Return the greatest ("max") or the mean ("avg") of each window; means leave padding out if exclusive."""
    how = (global_pooling, ceil_mode, exclusive, name)
    return pooling(input, "pool2d", pool_type, pool_size, pool_stride, pool_padding, *how)
