# SPDX-License-Identifier: Apache-2.0
"""Layers for bounding boxes: encoding, comparison, selection, matching to objects, and mean average precision."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import layer, several
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = [
    "bipartite_match", "box_coder", "box_decoder_and_assign", "detection_map", "iou_similarity", "multiclass_nms",
    "polygon_box_transform", "target_assign",
]  # fmt: skip

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
        box_normalized: whether boxes are in fractions of the image, not in pixels with both ends included.
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


bipartite_match = several(
    "bipartite_match(dist_matrix, match_type=None, dist_threshold=None, name=None)",
    """the object matched to each box of an image, (N, M) int32, -1 for none, and the values of the matches.

    dist_matrix is (objects, M), one sequence per image, greater for a closer pair. match_type bipartite, the
    default: an object gets one box; per_prediction: each remaining box also gets its best object, if its value is at
    least dist_threshold (0.5)""",
)
target_assign = several(
    "target_assign(input, matched_indices, negative_indices=None, mismatch_value=None, name=None)",
    """the targets (N, M, K) of boxes matched to objects (objects, M or 1, K) with LoD, and their weights (N, M, 1).

    Boxes without an object get mismatch_value and weight 0, or 1 if negative_indices names them""",
)


@takes(
    "detect_res, label, class_num, background_label=0, overlap_threshold=0.3, evaluate_difficult=True, "
    "has_state=None, input_states=None, out_states=None, ap_version='integral'"
)
def detection_map(given: dict[str, Any]) -> Variable:
    """Compute the mean average precision (mAP) of detections over all batches so far; return it as float32 (1,).

    Args:
        detect_res: (rows, 6): label, score, left, top, right, bottom; one sequence per image.
        label: (rows, 6): label, difficult, left, top, right, bottom; or (rows, 5) without difficult.
        class_num: number of classes.
        background_label: ignored, as in the original.
        overlap_threshold: overlap with an object above which a detection is correct.
        evaluate_difficult: whether difficult objects count.
        has_state: (1,) int32; 0 means start from zero; other values: continue from input_states.
        input_states: variables with counts, true positives and false positives before this batch; out_states receive
            those after it.
        ap_version: "integral" or "11point".
    """
    inputs = renamed(given, "DetectRes=detect_res Label=label HasState=has_state")
    inputs.update(zip(("PosCount", "TruePos", "FalsePos"), given["input_states"] or (), strict=False))
    slots = ("AccumPosCount", "AccumTruePos", "AccumFalsePos")
    outs = dict(zip(slots, given["out_states"] or (), strict=False))
    attrs = renamed(given, "class_num overlap_threshold evaluate_difficult ap_type=ap_version")
    *_, result = LayerHelper("detection_map").apply_all("detection_map", inputs, attrs, outs, [*slots, "MAP"])
    return result
