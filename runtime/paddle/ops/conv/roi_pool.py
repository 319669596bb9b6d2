# SPDX-License-Identifier: Apache-2.0
"""Max pooling to a fixed number of values: roi_pool of image regions (Fast R-CNN, Girshick, 2015), spp of images.

roi_pool pools over a grid of cells; spp, spatial pyramid pooling, over several grids (He et al., 2014).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import plain, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import owners
from paddle.ops.conv.pool import pool, pool_grad

_ROI_ATTRS = {"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1}
_INT64 = np.dtype("int64")


@operator(
    "roi_pool",
    "X ROIs+ Images? -> Out Argmax~",
    attrs=_ROI_ATTRS,
    infer=(
        "X(N, C, H, W), ROIs(R, 4) -> X(R, C, pooled_height, pooled_width, lod=0), int64(R, C, "
        "pooled_height, pooled_width)"
    ),
)
def roi_pool(
    x: Array, rois: Any, of: Array | None, *, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Array, Array]:
    """Return maxima (rois, C, pooled_height, pooled_width), and their positions in the image, or -1.

    Args:
        x: (N, C, H, W).
        rois: (rois, 4) left, top, right, bottom, both ends included; sequence i contains the regions of image i.
        of: (rois, 1) image numbers, which take precedence over the sequence numbers.
    """
    whose = _images(rois, of, len(x))
    images, boxes = to_host(x), _rounded(to_host(plain(rois)) * spatial_scale)
    out = np.zeros((len(boxes), x.shape[1], pooled_height, pooled_width), images.dtype)
    places = np.full(out.shape, -1, _INT64)
    for number, (image, box) in enumerate(zip(whose, boxes, strict=True)):
        rows = _cuts(box[1], box[3], pooled_height, x.shape[2])
        columns = _cuts(box[0], box[2], pooled_width, x.shape[3])
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                if bottom > top and right > left:
                    cell = images[image, :, top:bottom, left:right].reshape(x.shape[1], -1)
                    best = cell.argmax(axis=1)
                    out[number, :, i, j] = cell.max(axis=1)
                    down, across = np.divmod(best, right - left)
                    places[number, :, i, j] = (top + down) * x.shape[3] + left + across
    return from_host(out, x), from_host(places, x)


@gradient("roi_pool", "X ROIs+ Images? Argmax Out@GRAD -> X@GRAD")
def roi_pool_grad(x: Array, rois: Any, of: Array | None, places: Array, dout: Array) -> Array:
    """Return dX: route dOut to the pixels that were the maxima."""
    whose = _images(rois, of, len(x))
    dx = np.zeros((len(x), x.shape[1], x.shape[2] * x.shape[3]), x.dtype)
    at, arriving = to_host(places), to_host(dout)
    images = np.broadcast_to(whose.reshape(-1, 1, 1, 1), at.shape)
    channels = np.broadcast_to(np.arange(x.shape[1]).reshape(1, -1, 1, 1), at.shape)
    found = at >= 0
    np.add.at(dx, (images[found], channels[found], at[found]), arriving[found])
    return from_host(dx.reshape(x.shape), x)


def _images(rois: Any, of: Array | None, count: int) -> Any:
    """Return the number of each roi's image.

    Raises:
        InputError: a region refers to an image that does not exist.
    """
    if of is not None:
        found = to_host(of).reshape(-1).astype(int)
        if found.size and not 0 <= found.min() <= found.max() < count:
            raise InputError(
                f"Images: expected indices from 0 to {count - 1}, got {found.min()} to {found.max()}"
            )
        return found
    offsets = sequences(rois, "ROIs")[1]
    if len(offsets) - 1 > count:
        raise InputError(f"ROIs have {len(offsets) - 1} sequences, but there are {count} images")
    return owners(offsets)


def _rounded(values: Any) -> Any:
    """Return the nearest integers, with halves rounded away from zero as in C."""
    whole = np.trunc(values)
    return (whole + np.trunc(2 * (values - whole))).astype(int)


def _cuts(first: int, last: int, count: int, size: int) -> list[tuple[int, int]]:
    """Return the start and end of each of `count` cells from `first` to `last`, clipped to the image."""
    step = max(last - first + 1, 1) / count
    starts = np.floor(np.arange(count) * step).astype(int) + first
    ends = np.ceil(np.arange(1, count + 1) * step).astype(int) + first
    return [(int(a), int(b)) for a, b in zip(starts.clip(0, size), ends.clip(0, size), strict=True)]


_SPP_ATTRS = {"pyramid_height": Limit(int, least=1), "pooling_type": one_of("max", "avg", default=str)}


@operator(
    "spp",
    "X -> Out",
    attrs=_SPP_ATTRS,
    infer="X(N, C, H, W) -> X(N, C * (4**pyramid_height - 1) // 3)",
    shares_lod=False,
)
def spp(x: Array, *, pyramid_height: int, pooling_type: str) -> Array:
    """Apply spatial pyramid pooling over 1, 2 x 2, 4 x 4, ... cells.

    Return (N, C (1 + 4 + 16 + ...)), level by level.
    """
    levels = []
    for bins, window in _levels(x, pyramid_height):
        cells = pool(x, pooling_type=pooling_type, ceil_mode=False, **window)[..., :bins, :bins]
        levels.append(cells.reshape(len(x), x.shape[1] * bins * bins))
    return array_module(x).concatenate(levels, axis=1)


@gradient("spp", "X Out Out@GRAD -> X@GRAD")
def spp_grad(x: Array, out: Array, dout: Array, *, pyramid_height: int, pooling_type: str) -> Array:
    """Return dX, the sum of the gradients of all pyramid levels, (N, C, H, W)."""
    dx, begin = array_module(x).zeros_like(x), 0
    for bins, window in _levels(x, pyramid_height):
        end = begin + x.shape[1] * bins * bins
        parts = [each[:, begin:end].reshape(*x.shape[:2], bins, bins) for each in (out, dout)]
        dx += pool_grad(x, *parts, pooling_type=pooling_type, **window)
        begin = end
    return dx


def _levels(x: Array, height: int) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of cells per side and the windows of each level: adjacent ones, with the necessary padding."""
    for level in range(height):
        bins = 2**level
        kernel = tuple(-(-size // bins) for size in x.shape[2:])
        paddings = tuple(
            (each * bins - size + 1) // 2 for each, size in zip(kernel, x.shape[2:], strict=True)
        )
        fixed = {"global_pooling": False, "exclusive": True, "adaptive": False}
        yield bins, {"ksize": kernel, "strides": kernel, "paddings": paddings, **fixed}
