# SPDX-License-Identifier: Apache-2.0
"""roi_align (He et al., 2017) and psroi_pool: average pooling of image regions over a grid of cells.

The mean of interpolated values is computed as the product of row weights, the image and column weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import owners
from paddle.ops.detection.anchor_generator import rounded

_GRID = {"spatial_scale": 1.0, "pooled_height": 1, "pooled_width": 1}
_ATTRS = {**_GRID, "sampling_ratio": -1}


def images_of_regions(x: Array, rois: Any) -> tuple[Array, Array]:
    """Copy the regions to the host; return them, and the index of each region's image.

    Raises:
        InputError: there are more sequences of regions than images.
    """
    data, offsets = sequences(rois, "ROIs")
    if len(offsets) - 1 > len(x):
        raise InputError(f"ROIs has {len(offsets) - 1} sequences, but there are only {len(x)} images")
    return to_host(data), owners(offsets)


@operator(
    "roi_align",
    "X ROIs+ -> Out",
    attrs=_ATTRS,
    infer="X(N, C, H, W), ROIs(R, 4) -> X(R, C, pooled_height, pooled_width, lod=0)",
)
def roi_align(x: Array, rois: Any, *, attrs: dict[str, Any]) -> Array:
    """Return the means (rois, C, pooled_height, pooled_width) of sampling_ratio² interpolated values per cell.

    Args:
        x: (N, C, H, W).
        rois: (rois, 4) left, top, right, bottom, multiplied by spatial_scale to positions in x; the number of their
            sequence is that of the image. Without a sampling_ratio, a cell has one value per pixel of each side.
    """
    boxes, images = images_of_regions(x, rois)
    pixels = to_host(x)
    out = np.empty((len(boxes), x.shape[1], attrs["pooled_height"], attrs["pooled_width"]), pixels.dtype)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        rows, columns = _weights(box, pixels.shape, attrs, pixels.dtype)
        out[number] = rows @ pixels[image] @ columns.T
    return from_host(out, x)


@gradient("roi_align", "X ROIs+ Out@GRAD -> X@GRAD")
def roi_align_grad(x: Array, rois: Any, dout: Array, *, attrs: dict[str, Any]) -> Array:
    """Return dX, computed by the products of the forward pass with both weight matrices transposed."""
    boxes, images = images_of_regions(x, rois)
    dx, arriving = np.zeros(x.shape, x.dtype), to_host(dout)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        rows, columns = _weights(box, dx.shape, attrs, dx.dtype)
        dx[image] += rows.T @ arriving[number] @ columns
    return from_host(dx, x)


def _weights(box: Array, shape: tuple[int, ...], attrs: dict[str, Any], dtype: Any) -> tuple[Array, Array]:
    """Return (pooled_height, H) and (pooled_width, W)."""
    left, top, right, bottom = box * attrs["spatial_scale"]
    ratio = attrs["sampling_ratio"]
    rows = _line(top, max(bottom - top, 1.0), attrs["pooled_height"], ratio, shape[2])
    columns = _line(left, max(right - left, 1.0), attrs["pooled_width"], ratio, shape[3])
    return rows.astype(dtype), columns.astype(dtype)


def _line(start: float, length: float, cells: int, ratio: int, size: int) -> Array:
    """Return the weight of each pixel of a line in each cell, (cells, size)."""
    step = length / cells
    count = ratio if ratio > 0 else int(np.ceil(step))
    places = start + (np.arange(cells)[:, None] + (np.arange(count) + 0.5) / count) * step
    inside = (places >= -1) & (places <= size)
    cut = places.clip(0, size - 1)
    low = np.floor(cut).astype(int)
    weights = np.zeros((cells, size))
    cell = np.broadcast_to(np.arange(cells)[:, None], places.shape)
    np.add.at(weights, (cell, low), inside * (1 - (cut - low)) / count)
    np.add.at(weights, (cell, np.minimum(low + 1, size - 1)), inside * (cut - low) / count)
    return weights


@operator(
    "psroi_pool",
    "X ROIs+ -> Out",
    attrs={"output_channels": int, **_GRID},
    infer=(
        "X(N, output_channels * pooled_height * pooled_width, H, W), ROIs(R, 4) -> X(R, "
        "output_channels, pooled_height, pooled_width, lod=0)"
    ),
)
def psroi_pool(x: Array, rois: Any, *, attrs: dict[str, Any]) -> Array:
    """Return position-sensitive means (rois, output_channels, pooled_height, pooled_width), one channel per cell.

    Args:
        x: (N, output_channels pooled_height pooled_width, H, W).
        rois: (rois, 4) left, top, right, bottom, both ends included; the number of their sequence is that of the image.
    """
    boxes, images = images_of_regions(x, rois)
    pixels = _by_cell(to_host(x), attrs)
    out = np.empty((len(boxes), *pixels.shape[1:4]), pixels.dtype)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        rows, columns = _means(box, x.shape, attrs, pixels.dtype)
        out[number] = np.einsum("cpqhw,ph,qw->cpq", pixels[image], rows, columns, optimize=True)
    return from_host(out, x)


@gradient("psroi_pool", "X ROIs+ Out@GRAD -> X@GRAD")
def psroi_pool_grad(x: Array, rois: Any, dout: Array, *, attrs: dict[str, Any]) -> Array:
    """Return dX: distribute each cell's gradient equally to its pixels."""
    boxes, images = images_of_regions(x, rois)
    dx, arriving = np.zeros(x.shape, x.dtype), to_host(dout)
    cells = _by_cell(dx, attrs)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        rows, columns = _means(box, x.shape, attrs, dx.dtype)
        cells[image] += np.einsum("cpq,ph,qw->cpqhw", arriving[number], rows, columns, optimize=True)
    return from_host(dx, x)


def _by_cell(pixels: Array, attrs: dict[str, Any]) -> Array:
    """Return a view (N, output_channels, pooled_height, pooled_width, H, W)."""
    grid = (attrs["output_channels"], attrs["pooled_height"], attrs["pooled_width"])
    return pixels.reshape(len(pixels), *grid, *pixels.shape[2:])


def _means(box: Array, shape: tuple[int, ...], attrs: dict[str, Any], dtype: Any) -> tuple[Array, Array]:
    """Return (pooled_height, H) and (pooled_width, W): the reciprocal of the number of pixels per cell."""
    whole = rounded(box)
    found = []
    for first, last, cells, size in (
        (whole[1], whole[3], attrs["pooled_height"], shape[2]),
        (whole[0], whole[2], attrs["pooled_width"], shape[3]),
    ):
        start, end = first * attrs["spatial_scale"], (last + 1) * attrs["spatial_scale"]
        step = max(end - start, 0.1) / cells
        begins = np.floor(np.arange(cells) * step + start).clip(0, size)[:, None]
        ends = np.ceil(np.arange(1, cells + 1) * step + start).clip(0, size)[:, None]
        line = np.arange(size)
        found.append(((line >= begins) & (line < ends)) / np.maximum(ends - begins, 1))
    return found[0].astype(dtype), found[1].astype(dtype)
