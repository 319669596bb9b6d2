# SPDX-License-Identifier: Apache-2.0
"""Anchors, and the regions that a network suggests by them."""

from __future__ import annotations

from typing import Any

from paddle.fluid.errors import FluidError
from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.detection.priors import listed
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = ["anchor_generator", "box_clip", "generate_proposals"]


@takes(
    "input, anchor_sizes=None, aspect_ratios=None, variance=[0.1,0.1,0.2,0.2], stride=None, offset=0.5, name=None"
)
def anchor_generator(given: dict[str, Any]) -> tuple[Variable, Variable]:
    """Return boxes (H, W, boxes, 4) in pixels around each place of a feature map, and their variances.

    Args:
        input: (N, C, H, W).
        anchor_sizes: roots of the areas, one number or several.
        aspect_ratios: height over width.
        variance: what codes of boxes are divided by.
        stride: pixels (across, down) from place to place.
        offset: of the centre in its stride.

    Raises:
        FluidError: stride is not two numbers.
    """
    if len(listed(given["stride"])) != 2:
        raise FluidError(f"anchor_generator: stride is (across, down), got {given['stride']}")
    attrs = {name: listed(given[name]) for name in ("anchor_sizes", "aspect_ratios", "stride")}
    anchors, variances = LayerHelper("anchor_generator", given["name"]).apply_all(
        "anchor_generator",
        {"Input": given["input"]},
        {**attrs, **renamed(given, "offset variances=variance")},
        fixed=["Anchors", "Variances"],
    )
    return anchors, variances


box_clip = layer(
    "box_clip(input, im_info, name=None)",
    "boxes (rows, 4), a sequence for each image, cut to the image of (height, width) / scale, the rows of im_info",
)
generate_proposals = several(
    "generate_proposals(scores, bbox_deltas, im_info, anchors, variances, pre_nms_top_n=6000, post_nms_top_n=1000, "
    "nms_thresh=0.5, min_size=0.1, eta=1.0, name=None)",
    """boxes (n, 4) suggested in each image, best first, a sequence each, and their scores (n, 1).

    scores are (N, A, H, W), codes bbox_deltas (N, 4A, H, W), anchors and variances (H, W, A, 4), im_info (N, 3)
    height, width and scale. Of the pre_nms_top_n best, those with sides of min_size at least remain, which do not
    overlap by more than nms_thresh, up to post_nms_top_n""",
    to="pre_nms_top_n=pre_nms_topN post_nms_top_n=post_nms_topN",
    fixed="RpnRois RpnRoiProbs",
)
