# SPDX-License-Identifier: Apache-2.0
"""Region-of-interest pooling over grids of cells, and deformable convolution."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.initializer import Normal
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.nn.convolutions import sizes
from paddle.fluid.layers.plain import layer
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = ["deformable_conv", "deformable_roi_pooling", "psroi_pool", "roi_align", "roi_pool"]

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
