# SPDX-License-Identifier: Apache-2.0
"""generate_proposals: region proposals (Faster R-CNN), decoded from anchors, after non-maximum suppression."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.lod import LoDArray, offsets_of
from paddle.ops.base.registry import operator
from paddle.ops.detection.anchor_generator import within
from paddle.ops.detection.box_coder import decoded
from paddle.ops.detection.suppression import suppressed

# No box grows by more than the factor from 16 to 1000 pixels.
LONGEST = math.log(1000.0 / 16.0)


@operator(
    "generate_proposals",
    "Scores BboxDeltas ImInfo Anchors Variances -> RpnRois+ RpnRoiProbs+",
    attrs={"pre_nms_topN": int, "post_nms_topN": int, "nms_thresh": float, "min_size": float, "eta": float},
    infer=(
        "Scores(N, A, H, W), BboxDeltas(N, A * 4, H, W), ImInfo(N, 3) -> Anchors(-1, 4, lod=1), "
        "Scores(-1, 1, lod=1)"
    ),
)
def generate_proposals(
    scores: Array, deltas: Array, info: Array, anchors: Array, variances: Array, *, attrs: dict[str, Any]
) -> tuple[Any, Any]:
    """Decode region proposals; return boxes (n, 4), best first, one sequence per image, and their scores (n, 1).

    Args:
        scores: (N, A, H, W), one per anchor.
        deltas: (N, 4A, H, W) codes.
        info: (N, 3) height, width and scale of the images.
        anchors: (H, W, A, 4) in pixels; the variances have the same shape.
    """
    chances = to_host(scores).transpose(0, 2, 3, 1).reshape(len(scores), -1)
    codes = to_host(deltas).transpose(0, 2, 3, 1).reshape(len(scores), -1, 4)
    priors, spread = (to_host(each).reshape(-1, 4) for each in (anchors, variances))
    boxes, probabilities, counts = [], [], []
    for chance, code, image in zip(chances, codes, to_host(info), strict=True):
        found, order = _of_image(chance, code * spread, priors, image, attrs)
        boxes.append(found)
        probabilities.append(chance[order])
        counts.append(len(found))
    lod = offsets_of([counts])
    rows = np.concatenate(boxes).astype(anchors.dtype)
    probs = np.concatenate(probabilities)[:, None]
    return LoDArray(from_host(rows, scores), lod), LoDArray(from_host(probs, scores), lod)


def _of_image(
    chances: Array, codes: Array, priors: Array, image: Array, attrs: dict[str, Any]
) -> tuple[Array, Array]:
    """Return (boxes, their positions) of one image."""
    order = np.argsort(-chances, kind="stable")
    if 0 < attrs["pre_nms_topN"] < len(order):
        order = order[: attrs["pre_nms_topN"]]
    boxes = within(decoded(codes[order], priors[order], True, LONGEST), image[0], image[1])
    kept = _large_enough(boxes, image, max(attrs["min_size"], 1.0))
    boxes, order = boxes[kept], order[kept]
    if attrs["nms_thresh"] <= 0:
        return boxes, order
    chosen = suppressed(boxes, attrs["nms_thresh"], attrs["eta"], True)
    if attrs["post_nms_topN"] > 0:
        chosen = chosen[: attrs["post_nms_topN"]]
    return boxes[chosen], order[chosen]


def _large_enough(boxes: Array, image: Array, least: float) -> Array:
    """Return the indices of boxes whose center is inside and whose sides in the unscaled image are long enough."""
    sides = boxes[:, 2:] - boxes[:, :2]
    centers = boxes[:, :2] + (sides + 1) / 2
    long = (sides / image[2] + 1 >= least).all(axis=1)
    return np.flatnonzero(long & (centers[:, 0] <= image[1]) & (centers[:, 1] <= image[0]))
