# SPDX-License-Identifier: Apache-2.0
"""What convolutions of images and of volumes share: sizes a dimension each, filters, bias and activation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.variable import Variable

Size = int | Sequence[int]


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


def convolution(
    helper: LayerHelper,
    input: Variable,
    num_filters: int,
    filter_size: Size,
    moves: tuple[Size, Size, Size],
    groups: int | None,
    op_type: str,
) -> Variable:
    """Return act(input * filters + bias); filters start normal with deviation √(2/(cells of the kernel · channels)).

    Args:
        helper: of the layer, with its attributes.
        input: (N, C, ...).
        num_filters: channels of the output.
        filter_size: of the kernel.
        moves: stride, padding, dilation.
        groups: None: 1.
        op_type: conv2d, depthwise_conv2d or conv3d.
    """
    channels, groups, dims = input.shape[1], groups or 1, len(input.shape) - 2
    if channels % groups or num_filters % groups:
        raise FluidError(
            f"{helper.layer_type}: groups {groups} must divide {channels} channels and {num_filters} filters"
        )
    kernel = sizes(filter_size, dims)
    filters = helper.create_parameter(
        False if helper.param_attr is None else helper.param_attr,
        (num_filters, channels // groups, *kernel),
        input.dtype,
        default_initializer=Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels))),
    )
    return _finished(helper, op_type, input, filters, {**_moves(moves, dims), "groups": groups})


def transposed(
    helper: LayerHelper,
    input: Variable,
    num_filters: int,
    output_size: Size | None,
    filter_size: Size | None,
    moves: tuple[Size, Size, Size],
    groups: int | None,
) -> Variable:
    """Return act of what a convolution would have made the input of, with a bias; arguments as in `convolution`.

    Raises:
        FluidError: neither output_size nor filter_size was given.
    """
    channels, groups, dims = input.shape[1], groups or 1, len(input.shape) - 2
    moved = _moves(moves, dims)
    wanted = () if output_size is None else sizes(output_size, dims)
    if filter_size is None:
        if not wanted:
            raise FluidError(f"{helper.layer_type}: give filter_size or output_size")
        steps = zip(wanted, input.shape[2:], *moved.values(), strict=True)
        filter_size = [
            (want - (have - 1) * stride + 2 * pad - 1) // dilation + 1
            for want, have, stride, pad, dilation in steps
        ]
    filters = helper.create_parameter(
        False if helper.param_attr is None else helper.param_attr,
        (channels, num_filters // groups, *sizes(filter_size, dims)),
        input.dtype,
    )
    attrs = {"output_size": wanted, **moved, "groups": groups}
    return _finished(helper, helper.layer_type, input, filters, attrs)


def _moves(moves: tuple[Size, Size, Size], dims: int) -> dict[str, tuple[int, ...]]:
    names = ("strides", "paddings", "dilations")
    return {name: sizes(size, dims) for name, size in zip(names, moves, strict=True)}


def _finished(
    helper: LayerHelper, op_type: str, input: Variable, filters: Variable, attrs: dict[str, object]
) -> Variable:
    out = helper.apply(op_type, {"Input": input, "Filter": filters}, attrs, "Output", input.dtype)
    return helper.append_activation(helper.append_bias_op(out, dim_start=1, dim_end=2))


def pooling(
    input: Variable,
    op_type: str,
    pool_type: str,
    pool_size: Size,
    pool_stride: Size,
    pool_padding: Size,
    global_pooling: bool,
    ceil_mode: bool,
    exclusive: bool,
    name: str | None,
) -> Variable:
    """Return the greatest ("max") or the mean ("avg") of each window; means leave padding out if exclusive."""
    if not global_pooling and pool_size == -1:
        raise FluidError(f"{op_type}: give pool_size, or global_pooling=True")
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
    return LayerHelper(op_type, name).apply(op_type, {"X": input}, attrs, dtype=input.dtype)
