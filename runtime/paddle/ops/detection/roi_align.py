# SPDX-License-Identifier: Apache-2.0
"""Sampling of image regions in grids of cells: roi_align (He et al., 2017), psroi_pool, roi_perspective_transform.

roi_align and psroi_pool average over cells: the mean of interpolated values is the product of row weights, the image
and column weights. roi_perspective_transform maps quadrilateral regions to rectangles.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import owners
from paddle.ops.detection.bilinear import Points, points, sampled, scatter
from paddle.ops.detection.prior_box import rounded
from paddle_node.contract.classes import NamedTuple

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
        rois: (rois, 4) left, top, right, bottom, multiplied by spatial_scale to positions in x; sequence i contains the
            regions of image i. Without a sampling_ratio, a cell has one value per pixel of each side.
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
        rois: (rois, 4) left, top, right, bottom, both ends included; sequence i contains the regions of image i.
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
        # In the regions' own precision: 3 * float32(8 / 3) is 8 only there, and its ceiling otherwise 9.
        edges = np.arange(cells + 1, dtype=box.dtype) * (max(end - start, 0.1) / cells) + start
        begins, ends = np.floor(edges[:-1, None]).clip(0, size), np.ceil(edges[1:, None]).clip(0, size)
        line = np.arange(size)
        found.append(((line >= begins) & (line < ends)) / np.maximum(ends - begins, 1))
    return found[0].astype(dtype), found[1].astype(dtype)


_PERSPECTIVE_ATTRS = {"spatial_scale": 1.0, "transformed_height": 1, "transformed_width": 1}
_CLOSE = 1e-4
_SMALL = 1e-5  # added to the area that divides the matrices, as in the original


class _Source(NamedTuple):
    """The source positions of a rectangle's pixels, and which of them are inside the quadrangle and the image."""

    found: Points
    inside: Array
    matrix: Array


@operator(
    "roi_perspective_transform",
    "X ROIs+ -> Out Mask~ TransformMatrix~",
    attrs=_PERSPECTIVE_ATTRS,
    infer=(
        "X(N, C, H, W), ROIs(R, 8) -> X(R, C, transformed_height, transformed_width, lod=0), "
        "int32(R, 1, transformed_height, transformed_width), X(R, 9, lod=0)"
    ),
)
def roi_perspective_transform(x: Array, rois: Any, *, attrs: dict[str, Any]) -> tuple[Array, Array, Array]:
    """Return rectangles (rois, C, transformed_height, transformed_width), a mask, and matrices (rois, 9).

    The mask marks the pixels taken from the image. A matrix maps (column, row, 1) of the result to (u, v, w): the
    source pixel is at column u / w and row v / w.

    Args:
        x: (N, C, H, W).
        rois: (rois, 8) corners, in order from the upper left; sequence i contains the regions of image i.
    """
    quads, images = images_of_regions(x, rois)
    pixels = to_host(x).reshape(*x.shape[:2], -1)
    size = (attrs["transformed_height"], attrs["transformed_width"])
    out, mask = np.zeros((len(quads), x.shape[1], *size), x.dtype), np.zeros((len(quads), 1, *size), "int32")
    matrices = np.zeros((len(quads), 9), x.dtype)
    for number, (quad, image) in enumerate(zip(quads, images, strict=True)):
        source = _source(quad, x.shape, attrs)
        out[number] = sampled(pixels[image], source.found.at, source.found.weight * source.inside)
        mask[number], matrices[number] = source.inside, source.matrix
    return from_host(out, x), from_host(mask, x), from_host(matrices, x)


@gradient("roi_perspective_transform", "X ROIs+ Out@GRAD -> X@GRAD")
def roi_perspective_transform_grad(x: Array, rois: Any, dout: Array, *, attrs: dict[str, Any]) -> Array:
    """Return dX: distribute each pixel's gradient to the four pixels from which it was interpolated."""
    quads, images = images_of_regions(x, rois)
    dx, arriving = np.zeros((*x.shape[:2], x.shape[2] * x.shape[3]), x.dtype), to_host(dout)
    for number, (quad, image) in enumerate(zip(quads, images, strict=True)):
        source = _source(quad, x.shape, attrs)
        scatter(dx[image], source.found.at, source.found.weight * source.inside, arriving[number])
    return from_host(dx.reshape(x.shape), x)


def _source(quad: Array, shape: tuple[int, ...], attrs: dict[str, Any]) -> _Source:
    corners = quad.reshape(4, 2).astype(float) * attrs["spatial_scale"]
    height, width = attrs["transformed_height"], attrs["transformed_width"]
    matrix = _matrix(corners, height, width)
    row, column = np.mgrid[:height, :width]
    u, v, w = (line[0] * column + line[1] * row + line[2] for line in matrix.reshape(3, 3))
    x, y = u / w, v / w
    inside = _within(x, y, corners)
    for place, size in ((x, shape[3]), (y, shape[2])):
        inside &= (place > -0.5 + _CLOSE) & (place < size - 0.5 - _CLOSE)
    cut = np.where(inside, y, 0).clip(0, shape[2] - 1), np.where(inside, x, 0).clip(0, shape[3] - 1)
    return _Source(points(*cut, shape[2], shape[3]), inside, matrix)


def _matrix(corners: Array, height: int, width: int) -> Array:
    """Return the nine elements of the matrix that maps a rectangle of the same proportions to the quadrangle."""
    sides = np.sqrt(((corners - np.roll(corners, -1, axis=0)) ** 2).sum(axis=1))
    tall, broad = (sides[1] + sides[3]) / 2, (sides[0] + sides[2]) / 2
    down = max(2, height) - 1
    # A quadrangle without height uses the full width.
    across = int(min(rounded(broad * down / tall), width)) if tall > 0 else width
    across = max(2, min(across + 1, width)) - 1
    (x0, y0), (x1, y1), (x2, y2), (x3, y3) = corners
    a, b, c = (x1 - x2, y1 - y2), (x3 - x2, y3 - y2), (x0 - x1 + x2 - x3, y0 - y1 + y2 - y3)
    whole = a[0] * b[1] - b[0] * a[1] + _SMALL
    g, h = (c[0] * b[1] - b[0] * c[1]) / whole / across, (a[0] * c[1] - c[0] * a[1]) / whole / down
    first = ((x1 - x0 + g * across * x1) / across, (x3 - x0 + h * down * x3) / down, x0)
    second = ((y1 - y0 + g * across * y1) / across, (y3 - y0 + h * down * y3) / down, y0)
    return np.array([*first, *second, g, h, 1.0])


def _within(x: Array, y: Array, corners: Array) -> Array:
    """Return which positions are on the border of a quadrangle or inside: a ray to the right crosses it once."""
    on, crossed = np.zeros(x.shape, bool), np.zeros(x.shape, int)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        low, high = min(y0, y1), max(y0, y1)
        if abs(y0 - y1) < _CLOSE:
            beside = (x >= min(x0, x1) - _CLOSE) & (x <= max(x0, x1) + _CLOSE)
            on |= (np.abs(y - y0) < _CLOSE) & beside
            continue
        meets = (y - y0) * (x1 - x0) / (y1 - y0) + x0
        on |= (np.abs(meets - x) < _CLOSE) & (y > low - _CLOSE) & (y < high + _CLOSE)
        crossed += (y > low + _CLOSE) & (y <= high + _CLOSE) & (meets - x > _CLOSE)
    return on | (crossed % 2 == 1)
