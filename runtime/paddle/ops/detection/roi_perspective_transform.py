# SPDX-License-Identifier: Apache-2.0
"""roi_perspective_transform: maps quadrilateral regions of images to rectangles by perspective transformations."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.registry import gradient, operator
from paddle.ops.detection.anchor_generator import rounded
from paddle.ops.detection.bilinear import Points, points, sampled, scatter
from paddle.ops.detection.roi_align import images_of_regions

_ATTRS = {"spatial_scale": 1.0, "transformed_height": 1, "transformed_width": 1}
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
    attrs=_ATTRS,
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
        rois: (rois, 8) corners, in order from the upper left; the number of their sequence is that of the image.
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
