# SPDX-License-Identifier: Apache-2.0
"""Polygons (k, 2): their area and overlap; polygon_box_transform: offsets in each cell as corners of a polygon."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, operator

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
    """Return (sign, positively oriented triangle) for each pair of neighbours and the first corner."""
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


def _infer(x: Spec) -> Spec:
    if len(x.shape) != 4 or x.shape[1] % 2:
        raise ShapeError(f"expected Input (N, an even number, H, W), got {x.shape}")
    return x


@operator("polygon_box_transform", "Input -> Output", infer=_infer, shares_lod=False)
def polygon_box_transform(x: Array) -> Array:
    """Return 4 times the column minus the offset in even channels, 4 times the row minus the offset in odd ones."""
    xp = array_module(x)
    out = xp.empty_like(x)
    out[:, ::2] = 4 * xp.arange(x.shape[3]).astype(x.dtype) - x[:, ::2]
    out[:, 1::2] = 4 * xp.arange(x.shape[2]).astype(x.dtype)[:, None] - x[:, 1::2]
    return out
