# SPDX-License-Identifier: Apache-2.0
"""Layers over images, (batch, channels, height, width)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.variable import Variable

__all__ = ["conv2d", "conv2d_transpose", "pool2d"]

_Size = int | Sequence[int]


def conv2d(
    input: Variable,
    num_filters: int,
    filter_size: _Size,
    stride: _Size = 1,
    padding: _Size = 0,
    dilation: _Size = 1,
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
    channels, groups = input.shape[1], groups or 1
    if channels % groups or num_filters % groups:
        raise FluidError(f"conv2d: groups {groups} must divide {channels} channels and {num_filters} filters")
    helper = LayerHelper("conv2d", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    height, width = _pair(filter_size)
    filters = helper.create_parameter(
        False if helper.param_attr is None else helper.param_attr,
        (num_filters, channels // groups, height, width),
        input.dtype,
        default_initializer=Normal(0.0, math.sqrt(2.0 / (height * width * channels))),
    )
    depthwise = groups == channels and num_filters % channels == 0 and not use_cudnn
    attrs = {
        "strides": _pair(stride),
        "paddings": _pair(padding),
        "dilations": _pair(dilation),
        "groups": groups,
    }
    op_type = "depthwise_conv2d" if depthwise else "conv2d"
    out = helper.apply(op_type, {"Input": input, "Filter": filters}, attrs, "Output", input.dtype)
    return helper.append_activation(helper.append_bias_op(out, dim_start=1, dim_end=2))


def conv2d_transpose(
    input: Variable,
    num_filters: int,
    output_size: _Size | None = None,
    filter_size: _Size | None = None,
    padding: _Size = 0,
    stride: _Size = 1,
    dilation: _Size = 1,
    groups: int | None = None,
    param_attr: ParamAttrLike = None,
    bias_attr: ParamAttrLike = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Return what a convolution would have made the input of; filters are (channels, num_filters/groups, h, w).

    One of output_size and filter_size must be given.
    """
    helper = LayerHelper("conv2d_transpose", name, param_attr=param_attr, bias_attr=bias_attr, act=act)
    channels, groups = input.shape[1], groups or 1
    strides, paddings, dilations = _pair(stride), _pair(padding), _pair(dilation)
    if filter_size is None:
        if output_size is None:
            raise FluidError("conv2d_transpose: give filter_size or output_size")
        wanted = _pair(output_size)
        filter_size = [
            (wanted[at] - (input.shape[2 + at] - 1) * strides[at] + 2 * paddings[at] - 1) // dilations[at] + 1
            for at in range(2)
        ]
    filters = helper.create_parameter(
        False if helper.param_attr is None else helper.param_attr,
        (channels, num_filters // groups, *_pair(filter_size)),
        input.dtype,
    )
    attrs = {
        "output_size": () if output_size is None else _pair(output_size),
        "strides": strides,
        "paddings": paddings,
        "dilations": dilations,
        "groups": groups,
    }
    out = helper.apply("conv2d_transpose", {"Input": input, "Filter": filters}, attrs, "Output", input.dtype)
    return helper.append_activation(helper.append_bias_op(out, dim_start=1, dim_end=2))


def pool2d(
    input: Variable,
    pool_size: _Size = -1,
    pool_type: str = "max",
    pool_stride: _Size = 1,
    pool_padding: _Size = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
) -> Variable:
    """Return the greatest ("max") or the mean ("avg") of each window; means leave padding out if exclusive."""
    if not global_pooling and pool_size == -1:
        raise FluidError("pool2d: give pool_size, or global_pooling=True")
    helper = LayerHelper("pool2d", name)
    attrs = {
        "pooling_type": pool_type,
        "ksize": _pair(pool_size),
        "global_pooling": global_pooling,
        "strides": _pair(pool_stride),
        "paddings": _pair(pool_padding),
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
    }
    return helper.apply("pool2d", {"X": input}, attrs, dtype=input.dtype)


def _pair(size: _Size) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    if len(size) != 2:
        raise FluidError(f"expected one size or two, got {list(size)}")
    return size[0], size[1]
