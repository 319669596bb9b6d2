# SPDX-License-Identifier: Apache-2.0
"""generate_proposals: decodes region proposals from anchors, with non-maximum suppression (Faster R-CNN).

distribute_fpn_proposals assigns regions to feature pyramid levels by size; collect_fpn_proposals merges levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, InputError
from paddle.ops.base.lod import LoDArray, ends_of, offsets_of, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.segments import owners
from paddle.ops.detection.boxes import areas, decoded, expect_boxes, host
from paddle.ops.detection.prior_box import within
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


_INT32 = np.dtype("int32")


def _infer_levels(rois: Spec, *, min_level: int, max_level: int) -> tuple[list[Spec], Spec]:
    expect_boxes(rois, "FpnRois")
    if max_level < min_level:
        raise AttrError(f"max_level {max_level} must not be below min_level {min_level}")
    count = max_level - min_level + 1
    return [Spec((-1, 4), rois.dtype, 1)] * count, Spec((rois.shape[0], 1), _INT32)


@operator(
    "distribute_fpn_proposals",
    "FpnRois+ -> MultiFpnRois*+ RestoreIndex",
    attrs={"min_level": int, "max_level": int, "refer_level": int, "refer_scale": int},
    infer=_infer_levels,
)
def distribute_fpn_proposals(
    rois: Any, *, min_level: int, max_level: int, refer_level: int, refer_scale: int
) -> tuple[list[Any], Array]:
    """Assign regions to pyramid levels by size.

    Return each level's regions, by image, and regions' new indexes (n, 1) int32. A region with side refer_scale belongs
    to refer_level, a region with twice that side to the next level, and so on.

    Args:
        rois: (n, 4) in pixels, one sequence per image.
    """
    data, offsets = sequences(rois, "FpnRois")
    boxes, images = host(data), owners(offsets)
    sides = np.sqrt(areas(boxes, True))
    levels = np.floor(np.log2(sides / refer_scale + 1e-6) + refer_level).clip(min_level, max_level)
    chosen = [np.flatnonzero(levels == level) for level in range(min_level, max_level + 1)]
    parts = [
        LoDArray(
            from_host(boxes[each], data), (ends_of(np.bincount(images[each], minlength=len(offsets) - 1)),)
        )
        for each in chosen
    ]
    restore = np.empty((len(boxes), 1), _INT32)
    restore[np.concatenate(chosen), 0] = np.arange(len(boxes))
    return parts, from_host(restore, data)


def _infer_collected(rois: Sequence[Spec], scores: Sequence[Spec]) -> Spec:
    if len(rois) != len(scores):
        raise AttrError(f"expected scores for each level, got {len(scores)} for {len(rois)} levels")
    for each in rois:
        expect_boxes(each, "MultiLevelRois")
    return Spec((-1, 4), rois[0].dtype, 1)


@operator(
    "collect_fpn_proposals",
    "MultiLevelRois*+ MultiLevelScores*+ -> FpnRois+",
    attrs={"post_nms_topN": int},
    infer=_infer_collected,
)
def collect_fpn_proposals(rois: Sequence[Any], scores: Sequence[Any], *, post_nms_topN: int) -> Any:
    """Return the regions (n, 4) with the best scores of all levels and images, best first per image.

    Args:
        rois: (n, 4) for each level, one sequence per image.
        scores: (n, 1) for each level.
    """
    parts = [sequences(each, "MultiLevelRois") for each in rois]
    if any(len(offsets) != len(parts[0][1]) for _, offsets in parts):
        raise InputError(
            "MultiLevelRois: levels have the regions of "
            f"{[len(offsets) - 1 for _, offsets in parts]} images; the numbers must be equal"
        )
    boxes = np.concatenate([host(data) for data, _ in parts])
    images = np.concatenate([owners(offsets) for _, offsets in parts])
    chances = np.concatenate([host(each).reshape(-1) for each in scores])
    best = np.argsort(-chances, kind="stable")
    best = best[:post_nms_topN]
    order = best[np.argsort(images[best], kind="stable")]
    count = len(parts[0][1]) - 1
    lod = (ends_of(np.bincount(images[order], minlength=count)),)
    return LoDArray(from_host(boxes[order], parts[0][0]), lod)
