# SPDX-License-Identifier: Apache-2.0
"""Padding and resizing of images by two small matrices: output rows and columns are weighted sums of input ones.

The forward pass is A X Bᵀ, so the gradient is Aᵀ dOut B for any weights.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host

Matrix = np.ndarray[Any, np.dtype[Any]]


def applied(x: Array, rows: Matrix, columns: Matrix) -> Array:
    """Return A X Bᵀ of images (N, C, H, W), with A `rows` (H', H) and B `columns` (W', W)."""
    a, b = from_host(rows.astype(x.dtype), x), from_host(columns.astype(x.dtype), x)
    return a @ x @ b.T


def taken_back(dout: Array, rows: Matrix, columns: Matrix) -> Array:
    """Return the gradient Aᵀ dOut B of images to which `applied` was applied."""
    return applied(dout, rows.T, columns.T)


def padding(size: int, before: int, after: int, mode: str) -> Matrix:
    """Return the matrix (before + size + after, size) that mirrors ("reflect") or repeats ("edge") the outer rows."""
    places = np.arange(size)
    numbers = np.pad(places, (before, after), mode="reflect" if mode == "reflect" else "edge")
    return np.asarray(numbers[:, None] == places, np.float64)


def nearest(size: int, wanted: int, align_corners: bool) -> Matrix:
    """Return the matrix (wanted, size) of nearest-neighbor resizing, by which each output row copies one row."""
    source = _ratio(size, wanted, align_corners) * np.arange(wanted) + (0.5 if align_corners else 0.0)
    return np.asarray(np.minimum(source.astype(int), size - 1)[:, None] == np.arange(size), np.float64)


def linear(size: int, wanted: int, align_corners: bool, align_mode: int) -> Matrix:
    """Return the matrix (wanted, size) of linear interpolation between two neighboring rows.

    align_mode 0 takes positions as pixel centers, unless corners are aligned.
    """
    ratio, places = _ratio(size, wanted, align_corners), np.arange(wanted)
    in_middle = align_mode == 0 and not align_corners
    source = np.maximum(ratio * (places + 0.5) - 0.5, 0.0) if in_middle else ratio * places
    low = np.minimum(source.astype(int), size - 1)
    share = source - low
    weights = np.zeros((wanted, size))
    weights[places, low] += 1.0 - share
    weights[places, np.minimum(low + 1, size - 1)] += share
    return weights


def _ratio(size: int, wanted: int, align_corners: bool) -> float:
    if align_corners:
        return (size - 1) / (wanted - 1) if wanted > 1 else 0.0
    return size / wanted
