# SPDX-License-Identifier: Apache-2.0
"""Functions of boxes (left, top, right, bottom) on the host, and iou_similarity, the intersection over union of boxes.

If boxes are `whole`, both end pixels are included, so that a side is 1 longer than the difference of its ends.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import Offsets, lod_of, plain
from paddle.ops.base.registry import Spec, operator


def areas(boxes: Array, whole: bool = False) -> Array:
    """Return the area of each box (..., 4), 0 where an end precedes its start."""
    sides = boxes[..., 2:] - boxes[..., :2]
    product: Array = np.where((sides < 0).any(axis=-1), 0, (sides + whole).prod(axis=-1))
    return product


def overlaps(left: Array, right: Array, whole: bool = False) -> Array:
    """Return the intersection over union (n, m) of n boxes with m boxes; 0 for boxes without area.

    Boxes are (n, 4) and (m, 4); boxes with other leading shapes are broadcast and give one value per pair.
    """
    a, b = (left[:, None], right[None]) if left.ndim == 2 and right.ndim == 2 else (left, right)
    sides = np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]) + whole
    common = sides.clip(0).prod(axis=-1)
    union = areas(a, whole) + areas(b, whole) - common
    found: Array = common / np.where(union > 0, union, 1)
    return found


def corners(centers: Array, sides: Array) -> Array:
    """Convert centers and sides (..., 2) to boxes (..., 4)."""
    return np.concatenate([centers - sides / 2, centers + sides / 2], axis=-1)


def images_of(value: Any, rows: int) -> Offsets:
    """Return the row offsets of images: an image per sequence of the last level or, without LoD, a single image."""
    levels = lod_of(value)
    return levels[-1] if levels else np.array([0, rows])


def host(value: Any) -> Array:
    """Return the rows of a value as a numpy array in host memory."""
    return to_host(plain(value))


def expect_boxes(spec: Spec, slot: str) -> None:
    """Check that the shape is (rows, 4).

    Raises:
        ShapeError: the shape is different.
    """
    if len(spec.shape) != 2 or spec.shape[1] not in (4, -1):
        raise ShapeError(f"{slot}: expected boxes (rows, 4), got {spec.shape}")


@operator("iou_similarity", "X Y -> Out", infer="X(N, 4), Y(M, 4) -> X(N, M, lod=0)")
def iou_similarity(x: Array, y: Array) -> Array:
    """Return the intersection over union (n, m) of boxes x (n, 4) with boxes y (m, 4)."""
    return from_host(overlaps(to_host(x), to_host(y)), x)
