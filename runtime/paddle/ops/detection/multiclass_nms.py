# SPDX-License-Identifier: Apache-2.0
"""multiclass_nms and multiclass_nms2: select the detections of each image, by class, by non-maximum suppression."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, Offsets, lod_of, offsets_of, plain
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import same
from paddle.ops.detection.boxes import host
from paddle.ops.detection.suppression import best_first, suppressed

_INT32 = np.dtype("int32")
_ATTRS = {
    "background_label": 0,
    "score_threshold": float,
    "nms_top_k": int,
    "nms_threshold": 0.3,
    "nms_eta": 1.0,
    "keep_top_k": int,
    "normalized": True,
}


def _infer(boxes: Spec, scores: Spec) -> Spec:
    if len(boxes.shape) != 3 or len(scores.shape) not in (2, 3):
        raise ShapeError(
            f"expected BBoxes (N, M, 4) with Scores (N, C, M), or BBoxes (rows, C, 4) with Scores (rows, C); got "
            f"{boxes.shape} and {scores.shape}"
        )
    if len(scores.shape) == 3 and boxes.shape[2] not in (4, 8, 16, 24, 32, -1):
        raise ShapeError(
            f"BBoxes: expected 4 numbers per box, or 8, 16, 24 or 32 per polygon, as the last size, got {boxes.shape}"
        )
    of_all = (boxes.shape[0], scores.shape[1], boxes.shape[1])
    wanted = of_all if len(scores.shape) == 3 else boxes.shape[:2]
    same(wanted, scores.shape, "expected and given Scores")
    return Spec((-1, boxes.shape[2] + 2 if boxes.shape[2] > 0 else -1), boxes.dtype, 1)


def _infer_both(boxes: Spec, scores: Spec) -> tuple[Spec, Spec]:
    return _infer(boxes, scores), Spec((-1, 1), _INT32, 1)


@operator("multiclass_nms", "BBoxes+ Scores+ -> Out+", attrs=_ATTRS, infer=_infer)
def multiclass_nms(boxes: Any, scores: Any, *, attrs: dict[str, Any]) -> Any:
    """Return the detections (found, 6): label, score and box; one sequence per image, ordered by label.

    Polygons have more than 4 numbers, so their rows are longer. If nothing is detected in any image, the result is
    [[-1]], as one sequence.

    Args:
        boxes: (N, M, 4) with scores (N, C, M): a box has a score for each class. Or (rows, C, 4) with scores
            (rows, C): a box for each class; rows of an image are a sequence.
    """
    rows, _, lod = _found(boxes, scores, attrs)
    if not len(rows):
        return LoDArray(from_host(np.full((1, 1), -1, rows.dtype), plain(boxes)), offsets_of([[1]]))
    return LoDArray(from_host(rows, plain(boxes)), lod)


@operator("multiclass_nms2", "BBoxes+ Scores+ -> Out+ Index+", attrs=_ATTRS, infer=_infer_both)
def multiclass_nms2(boxes: Any, scores: Any, *, attrs: dict[str, Any]) -> tuple[Any, Any]:
    """Return the result of `multiclass_nms`, without rows if nothing is detected, and the indices (n, 1) int32."""
    rows, places, lod = _found(boxes, scores, attrs)
    index = places.astype(_INT32)[:, None]
    return LoDArray(from_host(rows, plain(boxes)), lod), LoDArray(from_host(index, plain(boxes)), lod)


def _found(boxes: Any, scores: Any, attrs: dict[str, Any]) -> tuple[Array, Array, Any]:
    """Return (rows, positions, LoD) of the detections in all images."""
    data, chances = host(boxes), host(scores)
    rows, places, counts = [], [], []
    for image_boxes, image_scores, first in _images(data, chances, lod_of(boxes) or lod_of(scores)):
        labels, at = chosen(image_boxes, image_scores, attrs)
        with_class = chances.ndim == 2
        picked = image_boxes[labels, at] if with_class else image_boxes[0, at]
        rows.append(np.column_stack([labels, image_scores[labels, at], picked]).astype(data.dtype))
        places.append(first + (at * len(image_scores) + labels if with_class else at))
        counts.append(len(at))
    empty = np.zeros((0, data.shape[2] + 2), data.dtype)
    return np.concatenate([empty, *rows]), np.concatenate([np.zeros(0, int), *places]), offsets_of([counts])


def _images(data: Array, chances: Array, lod: tuple[Offsets, ...]) -> Any:
    """Yield (boxes (classes or 1, M, 4), scores (classes, M), number of the first box) of each image."""
    if chances.ndim == 3:
        for number, (boxes, scores) in enumerate(zip(data, chances, strict=True)):
            yield boxes[None], scores, number * data.shape[1]
        return
    if not lod:
        raise InputError(
            f"Scores {chances.shape} have no LoD, which is needed to assign the rows of BBoxes to images"
        )
    for start, end in zip(lod[-1][:-1], lod[-1][1:], strict=True):
        yield data[start:end].swapaxes(0, 1), chances[start:end].T, start * chances.shape[1]


def chosen(boxes: Array, scores: Array, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return the labels and positions of the detections in an image, ordered by label.

    Args:
        boxes: (classes or 1, M, 4).
        scores: (classes, M).
        attrs: the attributes of `multiclass_nms`.
    """
    by_class, labels = [], []
    for label, each in enumerate(scores):
        if label != attrs["background_label"]:
            order = best_first(each, attrs["score_threshold"], attrs["nms_top_k"])
            candidates = boxes[label if len(boxes) > 1 else 0, order]
            threshold, eta = attrs["nms_threshold"], attrs["nms_eta"]
            kept = order[suppressed(candidates, threshold, eta, not attrs["normalized"])]
            by_class.append(np.sort(kept) if len(boxes) > 1 else kept)
            labels.append(np.full(len(kept), label))
    label_of, at = (np.concatenate([np.zeros(0, int), *each]) for each in (labels, by_class))
    limit = attrs["keep_top_k"]
    if -1 < limit < len(at):
        best = np.argsort(-scores[label_of, at], kind="stable")[:limit]
        # By label again; within a label by score, or by position if each class has its own boxes.
        order = np.lexsort((at[best] if len(boxes) > 1 else np.arange(limit), label_of[best]))
        label_of, at = label_of[best][order], at[best][order]
    return label_of, at
