# SPDX-License-Identifier: Apache-2.0
"""anchor_generator: anchor boxes for each cell of a feature map; box_clip: clips boxes to images."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import lod_of, plain, with_lod
from paddle.ops.base.registry import operator
from paddle.ops.base.segments import owners
from paddle.ops.detection.boxes import host, images_of


def rounded(values: Array) -> Array:
    """Round each element to the nearest integer, with halves rounded away from zero as in C."""
    whole = np.trunc(values)
    return whole + np.trunc(2 * (values - whole))


def within(boxes: Array, height: Any, width: Any) -> Array:
    """Clip boxes (..., 4) to the pixels of an image; the sizes may be arrays, which are broadcast."""
    last = np.stack(np.broadcast_arrays(width - 1, height - 1, width - 1, height - 1), axis=-1)
    return np.maximum(np.minimum(boxes, last), 0)


@operator(
    "anchor_generator",
    "Input -> Anchors Variances",
    attrs={
        "anchor_sizes": tuple,
        "aspect_ratios": tuple,
        "variances": Limit((0.1, 0.1, 0.2, 0.2), length=4),
        "stride": Limit(tuple, length=2),
        "offset": 0.5,
    },
    infer=(
        "Input(N, C, H, W) -> Input(H, W, len(anchor_sizes) * len(aspect_ratios), 4, lod=0), "
        "Input(H, W, len(anchor_sizes) * len(aspect_ratios), 4, lod=0)"
    ),
    shares_lod=False,
)
def anchor_generator(features: Array, *, attrs: dict[str, Any]) -> tuple[Array, Array]:
    """Return anchor boxes (H, W, boxes, 4) in pixels and their variances, for each cell of a feature map.

    All sizes come for each ratio (height over width). A ratio's base box has the area of a stride and integer sides; a
    size scales it relative to the stride.
    """
    strides = np.array(attrs["stride"], float)
    ratios = np.array(attrs["aspect_ratios"], float)
    widths = rounded(np.sqrt(strides.prod() / ratios))
    base = np.stack([widths, rounded(widths * ratios)], axis=1)
    scales = np.array(attrs["anchor_sizes"], float)[:, None] / strides
    half = (0.5 * (base[:, None] * scales - 1)).reshape(-1, 2)
    x, y = (
        np.arange(size) * stride + attrs["offset"] * (stride - 1)
        for size, stride in zip((features.shape[3], features.shape[2]), strides, strict=True)
    )
    centers = np.stack(np.meshgrid(x, y), axis=-1)[:, :, None]
    boxes = np.concatenate([centers - half, centers + half], axis=-1)
    variances = np.broadcast_to(np.array(attrs["variances"]), boxes.shape)
    found = (from_host(each.astype(features.dtype), features) for each in (boxes, variances))
    anchors, spread = found
    return anchors, spread


@operator("box_clip", "Input+ ImInfo -> Output+", infer="Input(..., 4), ImInfo(_, 3) -> Input")
def box_clip(boxes: Any, info: Array) -> Any:
    """Clip boxes to their image; its size is (height, width) / scale, from its row of ImInfo.

    Args:
        boxes: (rows, ..., 4), one sequence per image.
        info: (N, 3) height, width and scale of each image.
    """
    data, images = host(boxes), to_host(info)
    offsets = images_of(boxes, len(data))
    if len(offsets) - 1 != len(images):
        raise InputError(f"Input has boxes of {len(offsets) - 1} images, but ImInfo has {len(images)} rows")
    sizes = rounded(images[:, :2] / images[:, 2:3])[owners(offsets)]
    height, width = (sizes[:, at].reshape(-1, *[1] * (data.ndim - 2)) for at in (0, 1))
    cut = within(data, height, width).astype(data.dtype)
    return with_lod(from_host(cut, plain(boxes)), lod_of(boxes))
