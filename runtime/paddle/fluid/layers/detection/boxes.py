# SPDX-License-Identifier: Apache-2.0
"""Layers for bounding boxes: they encode boxes relative to prior boxes, compare them, and select some of them."""

from __future__ import annotations

from paddle.fluid.layers.plain import layer, several

__all__ = ["box_coder", "box_decoder_and_assign", "iou_similarity", "multiclass_nms", "polygon_box_transform"]

iou_similarity = layer(
    "iou_similarity(x, y, name=None)",
    "the intersection over union (n, m) of two sets of boxes, x (n, 4) and y (m, 4)",
)


box_coder = layer(
    "box_coder(prior_box, prior_box_var, target_box, code_type='encode_center_size', box_normalized=True, name=None, "
    "axis=0)",
    """boxes (N, 4) encoded relative to M prior boxes as (N, M, 4), or such codes decoded into boxes (N, M, 4).

    Args:
        prior_box: (M, 4) left, top, right, bottom.
        prior_box_var: variances by which codes are divided: (M, 4), 4 numbers, or None.
        target_box: the boxes to encode, or the codes to decode.
        code_type: "encode_center_size" or "decode_center_size".
        box_normalized: whether boxes are in fractions of the image; False: in pixels, including both ends.
        axis: for decoding: the dimension of the codes along which prior boxes are broadcast, 0 or 1""",
    to="prior_box_var=variance|PriorBoxVar",
)


box_decoder_and_assign = several(
    "box_decoder_and_assign(prior_box, prior_box_var, target_box, box_score, box_clip, name=None)",
    """the decoded boxes of each class (N, 4C) in pixels, and the box (N, 4) of the most probable class except class 0.

    prior_box is (N, 4), prior_box_var (4,), target_box (N, 4C), box_score (N, C). The logarithm of a scale is at most
    box_clip""",
)
multiclass_nms = layer(
    "multiclass_nms(bboxes, scores, score_threshold, nms_top_k, keep_top_k, nms_threshold=0.3, normalized=True, "
    "nms_eta=1.0, background_label=0, name=None)",
    """the label, score and box of each detection (found, 6), one sequence per image; [[-1]] without detections.

    Boxes are (N, M, 4) with scores (N, classes, M), or (rows, classes, 4) with scores (rows, classes) and LoD""",
    fixed="Out",
)
polygon_box_transform = layer(
    "polygon_box_transform(input, name=None)",
    "the corners of polygons (N, 2k, H, W): 4 times the position of each pixel, minus its offset",
)
