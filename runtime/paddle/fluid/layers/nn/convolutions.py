# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pooling of images (N, C, H, W), volumes (N, C, D, H, W), trees and regions of interest."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from paddle.errors import if_divided
from paddle.fluid.errors import FluidError
from paddle.fluid.initializer import Initializer, Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer
from paddle.fluid.program.variable import Variable
from paddle.signatures import function, renamed, takes

__all__ = [
    "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "deformable_conv", "deformable_roi_pooling", "pool2d",
    "pool3d", "psroi_pool", "roi_align", "roi_pool", "tree_conv",
]  # fmt: skip

Size = int | Sequence[int]


def _convolution(op_type: str) -> Callable[..., Variable]:
    return function(
        f"{op_type}(input, num_filters, filter_size, stride=1, padding=0, dilation=1, groups=None, param_attr=None, "
        "bias_attr=None, use_cudnn=True, act=None, name=None)",
        """Return act(input * filters + bias).

        Filters are (num_filters, channels/groups, ...), initially normal with deviation √(2/(cells of the kernel ·
        channels)); the bias is one number per filter. `use_cudnn` matters only for images with as many groups as
        channels, which use the depthwise operator without it.
        """,
        partial(_convolve, op_type),
    )


def _convolve(op_type: str, given: dict[str, Any]) -> Variable:
    helper, channels, parts, moves = _begun(op_type, given)
    num_filters, dims = given["num_filters"], len(given["input"].shape) - 2
    if channels % parts or num_filters % parts:
        raise FluidError(
            f"{op_type}: groups {parts} must divide {channels} channels and {num_filters} filters"
        )
    kernel = sizes(given["filter_size"], dims)
    first = Normal(0.0, math.sqrt(2.0 / (math.prod(kernel) * channels)))
    depthwise = op_type == "conv2d" and given["groups"] == channels and num_filters % channels == 0
    kind = "depthwise_conv2d" if depthwise and not given["use_cudnn"] else op_type
    shape = (num_filters, channels // parts, *kernel)
    return _finished(helper, kind, given["input"], shape, {**moves, "groups": parts}, first)


def _transposed(op_type: str) -> Callable[..., Variable]:
    return function(
        f"{op_type}(input, num_filters, output_size=None, filter_size=None, padding=0, stride=1, dilation=1, "
        "groups=None, param_attr=None, bias_attr=None, use_cudnn=True, act=None, name=None)",
        """Return act(transposed convolution of the input, plus a bias).

        Filters are (channels, num_filters/groups, ...). One of output_size and filter_size must be given.
        """,
        partial(_transpose, op_type),
    )


def _transpose(op_type: str, given: dict[str, Any]) -> Variable:
    helper, channels, parts, moves = _begun(op_type, given)
    filter_size, shape = given["filter_size"], given["input"].shape[2:]
    wanted = () if given["output_size"] is None else sizes(given["output_size"], len(shape))
    if filter_size is None:
        if not wanted:
            raise FluidError(f"{op_type}: give filter_size or output_size")
        filter_size = [
            (want - (have - 1) * apart + 2 * around - 1) // spread + 1
            for want, have, apart, around, spread in zip(wanted, shape, *moves.values(), strict=True)
        ]
    filters = (channels, given["num_filters"] // parts, *sizes(filter_size, len(shape)))
    attrs = {"output_size": wanted, **moves, "groups": parts}
    depthwise = op_type == "conv2d_transpose" and given["groups"] == channels == given["num_filters"]
    kind = "depthwise_conv2d_transpose" if depthwise and not given["use_cudnn"] else op_type
    return _finished(helper, kind, given["input"], filters, attrs)


def _pooling(op_type: str) -> Callable[..., Variable]:
    def checked(given: Mapping[str, Any]) -> dict[str, Any]:
        if not given["global_pooling"] and given["pool_size"] == -1:
            raise FluidError(f"{op_type}: give pool_size, or global_pooling=True")
        dims = len(given["input"].shape) - 2
        return {name: sizes(given[name], dims) for name in ("pool_size", "pool_stride", "pool_padding")}

    return layer(
        f"{op_type}(input, pool_size=-1, pool_type='max', pool_stride=1, pool_padding=0, global_pooling=False, "
        "use_cudnn=True, ceil_mode=False, name=None, exclusive=True)",
        'the maximum ("max") or the mean ("avg") of each window; means exclude padding if exclusive',
        to="pool_size=ksize pool_type=pooling_type pool_stride=strides pool_padding=paddings use_cudnn=",
        change=checked,
    )


def sizes(size: Size, dims: int) -> tuple[int, ...]:
    """Convert a size to one number per dimension; a single number applies to all dimensions.

    Raises:
        FluidError: the number of sizes differs from `dims`, or a size is a float.
    """
    if isinstance(size, float):
        raise FluidError(f"expected an integer or {dims} of them, got {size}{if_divided(size)}")
    if isinstance(size, int):
        return (size,) * dims
    if len(size) != dims:
        raise FluidError(f"expected 1 or {dims} sizes, got {list(size)}")
    return tuple(size)


def _begun(op_type: str, given: dict[str, Any]) -> tuple[LayerHelper, int, int, dict[str, tuple[int, ...]]]:
    """Return a layer's helper, its numbers of channels and groups, and its strides, paddings and dilations."""
    helper = LayerHelper(op_type, **renamed(given, "name param_attr bias_attr act"))
    moves = renamed(given, "strides=stride paddings=padding dilations=dilation")
    shape = given["input"].shape
    found = {name: sizes(size, len(shape) - 2) for name, size in moves.items()}
    return helper, shape[1], given["groups"] or 1, found


def _finished(
    helper: LayerHelper,
    op_type: str,
    input: Variable,
    shape: tuple[int, ...],
    attrs: dict[str, object],
    first: Initializer | None = None,
) -> Variable:
    attr = False if helper.param_attr is None else helper.param_attr
    filters = helper.create_parameter(attr, shape, input.dtype, default_initializer=first)
    out = helper.apply(op_type, {"Input": input, "Filter": filters}, attrs)
    return helper.append_activation(helper.append_bias_op(out, dim_start=1, dim_end=2))


conv2d = _convolution("conv2d")
conv2d_transpose = _transposed("conv2d_transpose")
pool2d = _pooling("pool2d")
conv3d = _convolution("conv3d")
conv3d_transpose = _transposed("conv3d_transpose")
pool3d = _pooling("pool3d")


tree_conv = layer(
    "tree_conv(nodes_vector, edge_set, output_size, num_filters=1, max_depth=2, act='tanh', param_attr=None, "
    "bias_attr=None, name=None)",
    """act(W x + bias) for each node, where x is the node's window of descendants: tree-based convolution.

    Source: Mou et al., 2016.

    Args:
        nodes_vector: (N, nodes, F).
        edge_set: (N, edges, 2) int32: (parent, child), with nodes counted from 1, and rows of 0 after the last edge.
        output_size: size of the output per node and filter.
        num_filters: number of filters.
        max_depth: number of tree levels in a window, including the node's own.
        bias_attr: attributes of the bias (nodes, output_size, num_filters); False: no bias""",
    to="output_size= num_filters=",
    learnt={
        "Filter": lambda given: (
            given["nodes_vector"].shape[2],
            3,
            given["output_size"],
            given["num_filters"],
        )
    },
    bias=(1, None),
)


roi_pool = layer(
    "roi_pool(input, rois, pooled_height=1, pooled_width=1, spatial_scale=1.0)",
    "the maxima in a grid of cells over each region (left, top, right, bottom) of its image",
)
roi_align = layer(
    "roi_align(input, rois, pooled_height=1, pooled_width=1, spatial_scale=1.0, sampling_ratio=-1, name=None)",
    "the means of sampling_ratio² interpolated values in each cell of a grid over each region of its image",
)
psroi_pool = layer(
    "psroi_pool(input, rois, output_channels, spatial_scale, pooled_height, pooled_width, name=None)",
    "the means in a grid of cells over each region of its image; each cell has its own "
    "output_channels channels",
)


@takes(
    "input, offset, mask, num_filters, filter_size, stride=1, padding=0, dilation=1, groups=None, "
    "deformable_groups=None, im2col_step=None, param_attr=None, bias_attr=None, name=None"
)
def deformable_conv(given: dict[str, Any]) -> Variable:
    """Apply a deformable convolution (N, num_filters, H', W'), which reads its h × w window at learned offsets.

    Sources: Dai et al., 2017; Zhu et al., 2019 (mask).

    Args:
        input: (N, C, H, W).
        offset: (N, 2 deformable_groups h w, H', W'): a vertical and a horizontal offset per window position.
        mask: (N, deformable_groups h w, H', W'), the weights of window positions; None means 1, as in deformable
            convolution v1.
        im2col_step: ignored.

    For the other arguments see `conv2d`.
    """
    x, groups = given["input"], given["groups"] or 1
    helper = LayerHelper("deformable_conv", **renamed(given, "name bias_attr"))
    window = sizes(given["filter_size"], 2)
    first = Normal(0.0, (2.0 / (window[0] * window[1] * x.shape[1])) ** 0.5)
    shape = (given["num_filters"], x.shape[1] // groups, *window)
    inputs = {"Input": x, "Offset": given["offset"], "Mask": given["mask"]}
    inputs["Filter"] = helper.create_parameter(given["param_attr"], shape, x.dtype, default_initializer=first)
    attrs = {
        **{f"{name}s": sizes(given[name], 2) for name in ("stride", "padding", "dilation")},
        "groups": groups,
        "deformable_groups": given["deformable_groups"] or 1,
        "im2col_step": given["im2col_step"] or 64,
    }
    op_type = "deformable_conv_v1" if given["mask"] is None else "deformable_conv"
    return helper.append_bias_op(helper.apply(op_type, inputs, attrs), 1, 2)


def _cells(given: Mapping[str, Any]) -> dict[str, Any]:
    grid = (given["pooled_height"], given["pooled_width"])
    channels = given["input"].shape[1]
    return {
        "position_sensitive": channels // (grid[0] * grid[1]) if given["position_sensitive"] else channels,
        "group_size": sizes(given["group_size"], 2),
        "part_size": sizes(given["part_size"] or grid, 2),
    }


deformable_roi_pooling = layer(
    "deformable_roi_pooling(input, rois, trans, no_trans=False, spatial_scale=1.0, group_size=[1,1], pooled_height=1, "
    "pooled_width=1, part_size=None, sample_per_part=1, trans_std=0.1, position_sensitive=False, name=None)",
    """means over the cells of each region's grid, (rois, channels, pooled_height, pooled_width).

    `trans` contains the shifts of the cells. Source: Dai et al., 2017.

    Args:
        input: (N, C, H, W).
        rois: (rois, 4), one sequence per image.
        trans: (rois, 2 classes, *part_size), shifts (horizontal, vertical) in units of trans_std times the region's
            size.
        no_trans: whether to ignore the shifts.
        group_size: numbers of groups of cells, (vertical, horizontal); each group has separate channels.
        part_size: numbers of shifts, (vertical, horizontal); None: one per cell.
        sample_per_part: number of sampled values along each side of a cell.
        position_sensitive: whether the result has C / (pooled_height pooled_width) channels instead of C""",
    "deformable_psroi_pooling",
    to="position_sensitive=output_dim",
    change=_cells,
    fixed="TopCount",
    returns="Output",
)
