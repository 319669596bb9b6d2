# SPDX-License-Identifier: Apache-2.0
"""Layers that match objects to candidate boxes, and mean average precision of detections."""

from __future__ import annotations

from typing import Any

from paddle.fluid.layer_helper import LayerHelper
from paddle.fluid.layers.plain import several
from paddle.fluid.program.variable import Variable
from paddle.signatures import renamed, takes

__all__ = ["bipartite_match", "detection_map", "target_assign"]

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
