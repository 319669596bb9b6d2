# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: among boxes that overlap too much, only the one with the highest score remains.

Boxes can be polygons (k, 2). polygon_box_transform converts offsets in each cell to the corners of a polygon.
multiclass_nms and multiclass_nms2 select the detections of each image by class. retinanet_detection_output decodes and
selects boxes detected on a feature pyramid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, Offsets, lod_of, offsets_of, plain
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import same
from paddle.ops.detection.boxes import areas, decoded, host
from paddle.ops.detection.prior_box import rounded, within

_SMALL = 1e-12


def area(polygon: Array) -> float:
    """Return the area of a polygon by the shoelace formula, positive if oriented from the x axis to the y axis."""
    x, y = polygon[:, 0], polygon[:, 1]
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def overlap(left: Array, right: Array) -> float:
    """Return the intersection over union of two simple polygons; 0 if both have no area.

    Each polygon is a signed sum of triangles from its first corner; two triangles have a convex intersection.
    """
    common = sum(
        a * b * abs(area(part))
        for a, one in _triangles(left)
        for b, other in _triangles(right)
        if len(part := _cut(one, other)) > 2
    )
    union = abs(area(left)) + abs(area(right)) - abs(common)
    return abs(common) / union if union > _SMALL else 0.0


def _triangles(polygon: Array) -> list[tuple[int, Array]]:
    """Return (sign, positively oriented triangle) for each pair of neighbors and the first corner."""
    found = []
    for at in range(1, len(polygon) - 1):
        triangle = polygon[[0, at, at + 1]].astype(float)
        size = area(triangle)
        if abs(size) > _SMALL:
            found.append((1, triangle) if size > 0 else (-1, triangle[::-1]))
    return found


def _cut(polygon: Array, convex: Array) -> Array:
    """Return the part of a convex polygon inside another, positively oriented one (Sutherland and Hodgman)."""
    for start, end in zip(convex, np.roll(convex, -1, axis=0), strict=True):
        if not len(polygon):
            break
        edge = end - start
        # Positive on the inner side of the edge.
        side = edge[0] * (polygon[:, 1] - start[1]) - edge[1] * (polygon[:, 0] - start[0])
        corners = []
        for at, here in enumerate(polygon):
            before = at - 1
            if (side[at] >= 0) != (side[before] >= 0):
                share = side[before] / (side[before] - side[at])
                corners.append(polygon[before] + share * (here - polygon[before]))
            if side[at] >= 0:
                corners.append(here)
        polygon = np.array(corners).reshape(-1, 2)
    return polygon


@operator(
    "polygon_box_transform", "Input -> Output", infer="Input(N, C * 2, H, W) -> Input", shares_lod=False
)
def polygon_box_transform(x: Array) -> Array:
    """Convert offsets to corners: return 4 column − X in even channels, and 4 row − X in odd ones."""
    xp = array_module(x)
    out = xp.empty_like(x)
    out[:, ::2] = 4 * xp.arange(x.shape[3]).astype(x.dtype) - x[:, ::2]
    out[:, 1::2] = 4 * xp.arange(x.shape[2]).astype(x.dtype)[:, None] - x[:, 1::2]
    return out


def best_first(scores: Array, threshold: float, limit: int) -> Array:
    """Return the positions of scores (n,) above a threshold, highest first, at most `limit` unless that is -1."""
    places = np.flatnonzero(scores > threshold)
    order = places[np.argsort(-scores[places], kind="stable")]
    return order[:limit] if limit > -1 else order


def suppressed(boxes: Array, threshold: float, eta: float, whole: bool) -> list[int]:
    """Return the positions of the boxes (n, 4), or polygons (n, 2k), that remain; the input is sorted, best first.

    Args:
        threshold: the maximum overlap of two remaining boxes.
        eta: if below 1, the threshold is multiplied by eta after each remaining box while it is above 0.5.
        whole: whether boxes count pixels.
    """
    # Compared in the precision of the boxes, as in the original: boxes with an overlap equal to the threshold remain.
    threshold, shrink = boxes.dtype.type(threshold), boxes.dtype.type(eta)
    worst = np.full(len(boxes), -np.inf, boxes.dtype)
    kept: list[int] = []
    for at in range(len(boxes)):
        if worst[at] > threshold:
            continue
        kept.append(at)
        if eta < 1 and threshold > 0.5:
            threshold *= shrink
        rest = boxes[at + 1 :]
        found = (
            _with_boxes(boxes[at], rest, whole) if boxes.shape[1] == 4 else _with_polygons(boxes[at], rest)
        )
        np.maximum(worst[at + 1 :], found, out=worst[at + 1 :])
    return kept


def _with_boxes(box: Array, others: Array, whole: bool) -> Array:
    """Return the overlaps of other boxes (n, 4) with a box; boxes less than a pixel apart do not overlap."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = (sides + whole).prod(axis=1)
    union = areas(box, whole) + areas(others, whole) - common
    # Equal points, which have no area, are counted as one box.
    shares = np.where(union > 0, common / np.where(union > 0, union, 1), 1.0)
    return np.where((sides < 0).any(axis=1), 0.0, shares)


def _with_polygons(polygon: Array, others: Array) -> Any:
    return [overlap(polygon.reshape(-1, 2), each.reshape(-1, 2)) for each in others]


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


def _infer_nms(boxes: Spec, scores: Spec) -> Spec:
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
    return _infer_nms(boxes, scores), Spec((-1, 1), _INT32, 1)


@operator("multiclass_nms", "BBoxes+ Scores+ -> Out+", attrs=_ATTRS, infer=_infer_nms)
def multiclass_nms(boxes: Any, scores: Any, *, attrs: dict[str, Any]) -> Any:
    """Return the detections (found, 6): label, score and box; one sequence per image, ordered by label.

    Polygons have more than 4 numbers, so their rows are longer. If nothing is detected in any image, the result is
    [[-1]], as one sequence.

    Args:
        boxes: (N, M, 4) with scores (N, C, M), one score per box and class; or (rows, C, 4) with scores (rows, C), one
            box per class, in which the rows of an image are a sequence.
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


def _infer_retinanet(
    boxes: Sequence[Spec], scores: Sequence[Spec], anchors: Sequence[Spec], info: Spec
) -> Spec:
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
    infer=_infer_retinanet,
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
