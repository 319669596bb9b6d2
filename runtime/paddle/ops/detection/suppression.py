# SPDX-License-Identifier: Apache-2.0
"""Non-maximum suppression: among boxes that overlap too much, the one with the highest score remains."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.detection.boxes import areas
from paddle.ops.detection.polygons import overlap as polygon_overlap


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
    return [polygon_overlap(polygon.reshape(-1, 2), each.reshape(-1, 2)) for each in others]
