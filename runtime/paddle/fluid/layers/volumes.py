# SPDX-License-Identifier: Apache-2.0
"""Layers over volumes, (batch, channels, depth, height, width)."""

from __future__ import annotations

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.convolutions import Size, convolution, pooling, transposed
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.variable import Variable

__all__ = ["conv3d", "conv3d_transpose", "pool3d"]


def conv3d(
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
    """Return act(input * filters + bias); see conv2d. Filters are (num_filters, channels/groups, d, h, w)."""
    helper = LayerHelper("conv3d", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    moves = (stride, padding, dilation)
    return convolution(helper, input, num_filters, filter_size, moves, groups, "conv3d")


def conv3d_transpose(
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
    helper = LayerHelper("conv3d_transpose", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    moves = (stride, padding, dilation)
    return transposed(helper, input, num_filters, output_size, filter_size, moves, groups)


def pool3d(
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
    return pooling(input, "pool3d", pool_type, pool_size, pool_stride, pool_padding, *how)
