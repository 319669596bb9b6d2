# SPDX-License-Identifier: Apache-2.0
"""Anchor boxes, region proposals that are decoded from them, and their levels in a feature pyramid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.detection.priors import listed
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.program.variable import Variable

__all__ = [
    "anchor_generator", "box_clip", "collect_fpn_proposals", "distribute_fpn_proposals", "generate_proposals",
    "roi_perspective_transform",
]  # fmt: skip


def _anchors(given: Mapping[str, Any]) -> dict[str, Any]:
    if len(listed(given["stride"])) != 2:
        raise FluidError(f"anchor_generator: expected stride (horizontal, vertical), got {given['stride']}")
    return {name: listed(given[name]) for name in ("anchor_sizes", "aspect_ratios", "stride")}


anchor_generator = several(
    "anchor_generator(input, anchor_sizes=None, aspect_ratios=None, variance=[0.1,0.1,0.2,0.2], stride=None, "
    "offset=0.5, name=None)",
    """anchor boxes (H, W, boxes, 4) in pixels for each cell of a feature map, and their variances (same shape).

    Source: Faster R-CNN (Ren et al., 2015).

    Args:
        input: the feature map, (N, C, H, W).
        anchor_sizes: square roots of the areas in pixels; one number or several.
        aspect_ratios: height over width.
        variance: divisors of the boxes' codes.
        stride: distances between cells in pixels, (horizontal, vertical).
        offset: position of the center within a cell, as a fraction of the stride""",
    to="variance=variances",
    change=_anchors,
    fixed="Anchors Variances",
)
box_clip = layer(
    "box_clip(input, im_info, name=None)",
    "the boxes (rows, 4), one sequence per image, clipped to their image. Row i of im_info (images, 3) is the "
    "height, width and scale of image i, whose size is (height, width) / scale",
)
generate_proposals = several(
    "generate_proposals(scores, bbox_deltas, im_info, anchors, variances, pre_nms_top_n=6000, post_nms_top_n=1000, "
    "nms_thresh=0.5, min_size=0.1, eta=1.0, name=None)",
    """the proposed boxes (n, 4), best first, one sequence per image, and their scores (n, 1).

    scores are (N, A, H, W), codes bbox_deltas (N, 4A, H, W), anchors and variances (H, W, A, 4), im_info (N, 3)
    height, width and scale. From the pre_nms_top_n best boxes, those with sides of at least min_size that do not
    overlap by more than nms_thresh are selected, up to post_nms_top_n""",
    to="pre_nms_top_n=pre_nms_topN post_nms_top_n=post_nms_topN",
    fixed="RpnRois RpnRoiProbs",
)


def distribute_fpn_proposals(
    fpn_rois: Variable,
    min_level: int,
    max_level: int,
    refer_level: int,
    refer_scale: int,
    name: str | None = None,
) -> tuple[list[Variable], Variable]:
    """Assign regions to feature pyramid levels; return the regions per level, and each region's new index (n, 1) int32.

    Args:
        fpn_rois: (n, 4) in pixels, one sequence per image.
        min_level: the first level.
        max_level: the last level.
        refer_level: the level of regions of size refer_scale, in pixels; each doubling of the size adds one level.
    """
    helper = LayerHelper("distribute_fpn_proposals", name)
    levels = [
        helper.create_variable_for_type_inference(fpn_rois.dtype, True)
        for _ in range(max_level - min_level + 1)
    ]
    restore = helper.create_variable_for_type_inference("int32", True)
    helper.append_op(
        "distribute_fpn_proposals",
        {"FpnRois": fpn_rois},
        {"MultiFpnRois": levels, "RestoreIndex": restore},
        {
            "min_level": min_level,
            "max_level": max_level,
            "refer_level": refer_level,
            "refer_scale": refer_scale,
        },
    )
    return levels, restore


def _levels(given: Mapping[str, Any]) -> dict[str, Any]:
    count = given["max_level"] - given["min_level"] + 1
    return {name: given[name][:count] for name in ("multi_rois", "multi_scores")}


collect_fpn_proposals = layer(
    "collect_fpn_proposals(multi_rois, multi_scores, min_level, max_level, post_nms_top_n, name=None)",
    """the post_nms_top_n regions with the best scores of all pyramid levels, (n, 4), one sequence per image.

    Args:
        multi_rois: one (n, 4) variable per level, from min_level to max_level, with one sequence per image.
        multi_scores: one (n, 1) variable per level""",
    to="min_level= max_level= post_nms_top_n=post_nms_topN",
    change=_levels,
    fixed="FpnRois",
)
roi_perspective_transform = layer(
    "roi_perspective_transform(input, rois, transformed_height, transformed_width, spatial_scale=1.0)",
    "quadrilateral regions `rois` (n, 8) of images, warped to (n, C, transformed_height, transformed_width)",
)
