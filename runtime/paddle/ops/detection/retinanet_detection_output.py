# SPDX-License-Identifier: Apache-2.0
"""retinanet_detection_output: decodes the boxes detected on a feature pyramid, and applies non-maximum suppression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray, offsets_of
from paddle.ops.base.registry import Spec, operator
from paddle.ops.detection.anchor_generator import rounded, within
from paddle.ops.detection.box_coder import decoded
from paddle.ops.detection.suppression import best_first, suppressed


def _infer(boxes: Sequence[Spec], scores: Sequence[Spec], anchors: Sequence[Spec], info: Spec) -> Spec:
    if not len(boxes) == len(scores) == len(anchors):
        raise ShapeError(
            f"expected the same number of BBoxes, Scores and Anchors, got {len(boxes)}, "
            f"{len(scores)} and {len(anchors)}"
        )
    for box, score, anchor in zip(boxes, scores, anchors, strict=True):
        if (len(box.shape), len(score.shape), len(anchor.shape)) != (3, 3, 2):
            raise ShapeError(
                "expected BBoxes (N, M, 4), Scores (N, M, C) and Anchors (M, 4), got "
                f"{box.shape}, {score.shape} and {anchor.shape}"
            )
    return Spec((-1, 6), boxes[0].dtype, 1)


@operator(
    "retinanet_detection_output",
    "BBoxes* Scores* Anchors* ImInfo -> Out+",
    attrs={
        "score_threshold": float,
        "nms_top_k": int,
        "nms_threshold": float,
        "nms_eta": float,
        "keep_top_k": int,
    },
    infer=_infer,
)
def retinanet_detection_output(
    boxes: Sequence[Array],
    scores: Sequence[Array],
    anchors: Sequence[Array],
    info: Array,
    *,
    attrs: dict[str, Any],
) -> Any:
    """Return class, score and box of each detection (found, 6) in pixels of the unscaled image, best first, by image.

    Args:
        boxes: for each level (N, M, 4) codes.
        scores: (N, M, C).
        anchors: (M, 4) in pixels. All boxes of the last level count, and those of other levels with scores above
            score_threshold.
        info: (N, 3) height, width and scale.
    """
    dtype = boxes[0].dtype
    codes, chances, priors = ([to_host(each) for each in values] for values in (boxes, scores, anchors))
    images = to_host(info)
    rows = [
        _of_image([each[n] for each in codes], [each[n] for each in chances], priors, image, attrs)
        for n, image in enumerate(images)
    ]
    found = np.concatenate([np.zeros((0, 6)), *rows]).astype(dtype)
    return LoDArray(from_host(found, boxes[0]), offsets_of([[len(each) for each in rows]]))


def _of_image(
    codes: list[Array], chances: list[Array], anchors: list[Array], image: Array, attrs: dict[str, Any]
) -> Array:
    height, width = rounded(image[:2] / image[2])
    parts = []
    for level, (code, score, prior) in enumerate(zip(codes, chances, anchors, strict=True)):
        threshold = attrs["score_threshold"] if level < len(codes) - 1 else 0.0
        order = best_first(score.reshape(-1), threshold, attrs["nms_top_k"])
        at, label = np.divmod(order, score.shape[1])
        found = within(decoded(code[at], prior[at], True) / image[2], height, width)
        parts.append(np.column_stack([label + 1, score[at, label], found]))
    rows = np.concatenate(parts)
    kept = [np.zeros((0, 6))]
    for label in np.unique(rows[:, 0]):
        mine = rows[rows[:, 0] == label]
        mine = mine[np.argsort(-mine[:, 1], kind="stable")]
        kept.append(mine[suppressed(mine[:, 2:], attrs["nms_threshold"], attrs["nms_eta"], True)])
    best = np.concatenate(kept)
    limit = max(attrs["keep_top_k"], 0)
    return best[np.argsort(-best[:, 1], kind="stable")][:limit]
