# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: among boxes that overlap too much, the one with the highest score remains.

Boxes can be polygons (k, 2). polygon_box_transform converts offsets in each cell to the corners of a polygon.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import operator
from paddle.ops.detection.boxes import areas

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
    found: Array = np.where((sides < 0).any(axis=1), 0.0, shares)
    return found


def _with_polygons(polygon: Array, others: Array) -> Any:
    return [overlap(polygon.reshape(-1, 2), each.reshape(-1, 2)) for each in others]
