# SPDX-License-Identifier: Apache-2.0
"""Bilinear interpolation between the four pixels around a position; pixels outside the image are 0."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array
from paddle_node.contract.classes import NamedTuple


class Points(NamedTuple):
    """Positions in an image of H rows and W columns, with their four neighboring pixels and weights.

    Attributes:
        at: (4, ...) pixels, as row W + column: up left, up right, down left, down right.
        weight: (4, ...) weight of each pixel, 0 outside the image.
        by_row: (4, ...) derivative of the weight with respect to the row.
        by_column: (4, ...) derivative of the weight with respect to the column.
    """

    at: Array
    weight: Array
    by_row: Array
    by_column: Array


def points(rows: Array, columns: Array, height: int, width: int) -> Points:
    """Return the four pixels around each position, and their weights in a bilinear interpolation."""
    top, left = np.floor(rows), np.floor(columns)
    down, right = rows - top, columns - left
    at, weight, by_row, by_column = [], [], [], []
    for i in (0, 1):
        for j in (0, 1):
            row, column = top + i, left + j
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            vertical, horizontal = (down if i else 1 - down), (right if j else 1 - right)
            at.append((np.where(inside, row, 0) * width + np.where(inside, column, 0)).astype(int))
            weight.append(inside * vertical * horizontal)
            by_row.append(inside * (horizontal if i else -horizontal))
            by_column.append(inside * (vertical if j else -vertical))
    return Points(np.stack(at), np.stack(weight), np.stack(by_row), np.stack(by_column))


def sampled(image: Array, at: Array, weight: Array) -> Array:
    """Interpolate an image (C, H W) at positions; return the values (C, ...)."""
    return sum(image[:, at[k]] * weight[k] for k in range(4))


def scatter(dimage: Array, at: Array, weight: Array, arriving: Array) -> None:
    """Add the gradient (C, ...) of the values to an image's gradient (C, H W), in place."""
    flat = arriving.reshape(len(dimage), -1)
    for k in range(4):
        np.add.at(dimage.T, at[k].reshape(-1), (flat * weight[k].reshape(-1)).T)
