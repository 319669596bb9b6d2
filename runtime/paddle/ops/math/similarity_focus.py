# SPDX-License-Identifier: Apache-2.0
"""similarity_focus: a mask of the positions with the greatest similarity (He et al., 2016)."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, operator


def _infer(x: Spec, *, axis: int, indexes: tuple[int, ...]) -> Spec:
    if len(x.shape) != 4 or axis not in (1, 2, 3):
        raise ShapeError(f"expected X of four dimensions and an axis from 1 to 3, got {x.shape} and {axis=}")
    if not indexes or (x.shape[axis] >= 0 and not all(0 <= index < x.shape[axis] for index in indexes)):
        raise AttrError(f"indexes: expected numbers below {x.shape[axis]}, got {indexes}")
    return x


@operator("similarity_focus", "X -> Out", attrs={"axis": int, "indexes": tuple}, infer=_infer)
def similarity_focus(x: Array, *, axis: int, indexes: tuple[int, ...]) -> Array:
    """Return a mask in X's shape: 1 along the whole axis at the selected positions, and 0 elsewhere.

    For each sample and index, the slice X[index] along the axis is a matrix. Its largest elements are selected one
    after the other, no two of them in one row or column, until each row or each column has one.
    """
    host = to_host(x)
    mask = np.zeros(host.shape, host.dtype)
    across = np.moveaxis(mask, axis, 1)
    for sample, (images, into) in enumerate(zip(np.moveaxis(host, axis, 1), across, strict=True)):
        for index in indexes:
            if not 0 <= index < len(images):
                raise AttrError(
                    f"index {index} is out of range for X {x.shape} along axis {axis} (sample {sample})"
                )
            for row, column in _chosen(images[index]):
                into[:, row, column] = 1
    return from_host(mask, x)


def _chosen(matrix: Array) -> list[tuple[int, int]]:
    rows, columns = matrix.shape
    free_rows, free_columns = np.ones(rows, bool), np.ones(columns, bool)
    found: list[tuple[int, int]] = []
    for place in np.argsort(-matrix, axis=None, kind="stable"):
        row, column = divmod(int(place), columns)
        if free_rows[row] and free_columns[column]:
            found.append((row, column))
            free_rows[row] = free_columns[column] = False
            if len(found) == min(rows, columns):
                break
    return found
