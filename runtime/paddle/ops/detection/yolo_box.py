# SPDX-License-Identifier: Apache-2.0
"""yolo_box: boxes and class scores in each cell of a YOLO v3 feature map.

The channels of an anchor are, in order: horizontal shift, vertical shift, width, height, objectness, each class.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, operator
from paddle.ops.base.shapes import agree, product, same


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(−x))."""
    small = np.exp(-np.abs(x))
    found: Array = np.where(x > 0, 1, small) / (1 + small)
    return found


def by_anchor(x: Array, anchors: int) -> Array:
    """Return (N, anchors, 5 + classes, H, W) of a feature map."""
    return to_host(x).reshape(len(x), anchors, -1, *x.shape[2:])


def placed(maps: Array, anchors: Any, downsample: int) -> tuple[Array, Array]:
    """Return centres and sides (N, anchors, H, W, 2) of the boxes at each position, in fractions of the image.

    As in the original, both are relative to the height of the map.
    """
    height, width = maps.shape[3:]
    here = np.stack(np.meshgrid(np.arange(width), np.arange(height)), axis=-1)
    centres = (here + sigmoid(np.moveaxis(maps[:, :, :2], 2, -1))) / height
    base = np.asarray(anchors, maps.dtype).reshape(1, -1, 1, 1, 2) / (downsample * height)
    return centres.astype(maps.dtype), np.exp(np.moveaxis(maps[:, :, 2:4], 2, -1)) * base


def expect_channels(x: Spec, anchors: int, classes: int) -> None:
    """Check the shape of a feature map.

    Raises:
        ShapeError: it does not have 5 + classes channels per anchor.
        AttrError: class_num is below 1.
    """
    if classes <= 0:
        raise AttrError(f"class_num must be above 0, got {classes}")
    if len(x.shape) != 4 or not agree(x.shape[1], anchors * (5 + classes)):
        raise ShapeError(f"X: expected (N, {anchors} anchors x (5 + {classes} classes), H, W), got {x.shape}")


def _infer(x: Spec, size: Spec, *, anchors: tuple[int, ...], class_num: int) -> tuple[Spec, Spec]:
    if not anchors or len(anchors) % 2:
        raise AttrError(f"anchors: expected pairs of width and height, got {anchors}")
    expect_channels(x, len(anchors) // 2, class_num)
    same((x.shape[0], 2), size.shape, "sizes (N, 2) of the images of X and ImgSize")
    count = product([len(anchors) // 2, *x.shape[2:]])
    return Spec((x.shape[0], count, 4), x.dtype), Spec((x.shape[0], count, class_num), x.dtype)


@operator(
    "yolo_box",
    "X ImgSize -> Boxes Scores",
    attrs={"class_num": int, "anchors": tuple, "downsample_ratio": 32, "conf_thresh": 0.01},
    infer=_infer,
    shares_lod=False,
)
def yolo_box(
    x: Array, size: Array, *, anchors: tuple[int, ...], conf_thresh: float, downsample_ratio: int
) -> tuple[Array, Array]:
    """Return boxes (N, A H W, 4) in pixels of their images, and scores (N, A H W, classes).

    Both are 0 where the probability of an object is below conf_thresh.

    Args:
        x: (N, A (5 + classes), H, W).
        size: (N, 2) int32 height and width of each image.
        anchors: A widths and heights in pixels of the network's input.
    """
    maps = by_anchor(x, len(anchors) // 2)
    centres, sides = placed(maps, anchors, downsample_ratio)
    image = to_host(size)[:, ::-1].astype(maps.dtype).reshape(-1, 1, 1, 1, 2)
    ends = [(centres - sides / 2) * image, (centres + sides / 2) * image]
    boxes = np.concatenate([np.maximum(ends[0], 0), np.minimum(ends[1], image - 1)], axis=-1)
    chance = sigmoid(maps[:, :, 4])
    seen = (chance >= conf_thresh)[..., None]
    scores = chance[..., None] * sigmoid(np.moveaxis(maps[:, :, 5:], 2, -1))
    found = (
        from_host((each * seen).reshape(len(x), -1, each.shape[-1]).astype(maps.dtype), x)
        for each in (boxes, scores)
    )
    rows, chances = found
    return rows, chances
