# SPDX-License-Identifier: Apache-2.0
"""Convolutions and poolings of images (batch, channels, height, width), and of volumes, with depth before height."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.param_attr import ParamAttrLike
from paddle.fluid.program.variable import Variable

__all__ = ["conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "pool2d", "pool3d"]

Size = int | Sequence[int]


@dataclass(frozen=True)
class Convolution:
    """The layer act(input * filters + bias).

    Filters are (num_filters, channels/groups, ...), at first normal with deviation √(2/(cells of the kernel ·
    channels)); the bias is one number a filter. `use_cudnn` has no meaning but for images with as many groups as
    channels, which go to the depthwise operator without it.
    """

    op_type: str

    def __call__(
        self,
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
        """Append it."""
        helper = LayerHelper(self.op_type, name, param_attr=param_attr, bias_attr=bias_attr, act=act)
        channels, parts, dims = input.shape[1], groups or 1, len(input.shape) - 2
        if channels % parts or num_filters % parts:
            raise FluidError(
                f"{self.op_type}: groups {parts} must divide {channels} channels and {num_filters} filters"
            )
        kernel = sizes(filter_size, dims)
        filters = helper.create_parameter(
            False if helper.param_attr is None else helper.param_attr,
            (num_filters, channels // parts, *kernel),
            input.dtype,
            default_initializer=Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels))),
        )
        depthwise = self.op_type == "conv2d" and groups == channels and num_filters % channels == 0
        op_type = "depthwise_conv2d" if depthwise and not use_cudnn else self.op_type
        attrs = {**_moves(stride, padding, dilation, dims), "groups": parts}
        return _finished(helper, op_type, input, filters, attrs)


@dataclass(frozen=True)
class TransposedConvolution:
    """The layer act(what a convolution would have made the input of, with a bias).

    Filters are (channels, num_filters/groups, ...). One of output_size and filter_size must be given.
    """

    op_type: str

    def __call__(
        self,
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
        """Append it."""
        helper = LayerHelper(self.op_type, name, param_attr=param_attr, bias_attr=bias_attr, act=act)
        channels, parts, dims = input.shape[1], groups or 1, len(input.shape) - 2
        moves = _moves(stride, padding, dilation, dims)
        wanted = () if output_size is None else sizes(output_size, dims)
        if filter_size is None:
            if not wanted:
                raise FluidError(f"{self.op_type}: give filter_size or output_size")
            steps = zip(wanted, input.shape[2:], *moves.values(), strict=True)
            filter_size = [
                (want - (have - 1) * apart + 2 * around - 1) // spread + 1
                for want, have, apart, around, spread in steps
            ]
        filters = helper.create_parameter(
            False if helper.param_attr is None else helper.param_attr,
            (channels, num_filters // parts, *sizes(filter_size, dims)),
            input.dtype,
        )
        attrs = {"output_size": wanted, **moves, "groups": parts}
        return _finished(helper, self.op_type, input, filters, attrs)


@dataclass(frozen=True)
class Pooling:
    """The layer of the greatest ("max") or the mean ("avg") of each window; means leave padding out if exclusive."""

    op_type: str

    def __call__(
        self,
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
        """Append it."""
        if not global_pooling and pool_size == -1:
            raise FluidError(f"{self.op_type}: give pool_size, or global_pooling=True")
        dims = len(input.shape) - 2
        attrs = {
            "pooling_type": pool_type,
            "ksize": sizes(pool_size, dims),
            "global_pooling": global_pooling,
            "strides": sizes(pool_stride, dims),
            "paddings": sizes(pool_padding, dims),
            "ceil_mode": ceil_mode,
            "exclusive": exclusive,
        }
        return LayerHelper(self.op_type, name).apply(self.op_type, {"X": input}, attrs)


def sizes(size: Size, dims: int) -> tuple[int, ...]:
    """Return a number for each dimension; one stands for all.

    Raises:
        FluidError: there are others than that many.
    """
    if isinstance(size, int):
        return (size,) * dims
    if len(size) != dims:
        raise FluidError(f"expected one size or {dims}, got {list(size)}")
    return tuple(size)


def _moves(stride: Size, padding: Size, dilation: Size, dims: int) -> dict[str, tuple[int, ...]]:
    given = {"strides": stride, "paddings": padding, "dilations": dilation}
    return {name: sizes(size, dims) for name, size in given.items()}


def _finished(
    helper: LayerHelper, op_type: str, input: Variable, filters: Variable, attrs: dict[str, object]
) -> Variable:
    out = helper.apply(op_type, {"Input": input, "Filter": filters}, attrs)
    return helper.append_activation(helper.append_bias_op(out, dim_start=1, dim_end=2))


conv2d = Convolution("conv2d")
conv2d_transpose = TransposedConvolution("conv2d_transpose")
pool2d = Pooling("pool2d")
conv3d = Convolution("conv3d")
conv3d_transpose = TransposedConvolution("conv3d_transpose")
pool3d = Pooling("pool3d")
