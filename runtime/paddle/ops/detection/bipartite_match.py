# SPDX-License-Identifier: Apache-2.0
"""bipartite_match: greedily matches rows (objects of an image) to columns (candidate boxes), largest overlap first."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from paddle.backend import Array, from_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.lod import plain
from paddle.ops.base.registry import Spec, operator
from paddle.ops.detection.boxes import host, images_of

_INT32 = np.dtype("int32")
_LEAST = 1e-6  # a row and a column with a smaller value are never paired


def _infer(distances: Spec) -> tuple[Spec, Spec]:
    shape = (-1 if distances.lod_level else 1, distances.shape[1])
    return Spec(shape, _INT32), Spec(shape, distances.dtype)


@operator(
    "bipartite_match",
    "DistMat+ -> ColToRowMatchIndices ColToRowMatchDist",
    attrs={"match_type": one_of("bipartite", "per_prediction"), "dist_threshold": 0.5},
    infer=_infer,
)
def bipartite_match(distances: Any, *, match_type: str, dist_threshold: float) -> tuple[Array, Array]:
    """Match rows to columns; return the row of each column, (images, M) int32, -1 if unmatched, and the pairs' values.

    Args:
        distances: (rows, M), one sequence per image; without LoD there is one image. Larger means closer.
        match_type: bipartite: each row gets one column at most; per_prediction: in addition, each unmatched column gets
            its best row, if the value is at least dist_threshold.
    """
    values = host(distances)
    offsets = images_of(distances, len(values))
    indices = np.full((len(offsets) - 1, values.shape[1]), -1, _INT32)
    found = np.zeros(indices.shape, values.dtype)
    for number, (start, end) in enumerate(itertools.pairwise(offsets)):
        match(values[start:end], indices[number], found[number])
        if match_type == "per_prediction":
            match_rest(values[start:end], indices[number], found[number], dist_threshold)
    return from_host(indices, plain(distances)), from_host(found, plain(distances))


def match(values: Array, indices: Array, found: Array) -> None:
    """Match the pair with the largest value, then that of the remaining rows and columns, and so on; in place."""
    # Columns first: among equal values, the first column wins, and within it the first row.
    rest = values.T.copy()
    for _ in range(min(values.shape)):
        column, row = np.unravel_index(rest.argmax(), rest.shape)
        if not rest[column, row] >= _LEAST:
            break
        indices[column], found[column] = row, values[row, column]
        rest[column] = rest[:, row] = -1


def match_rest(values: Array, indices: Array, found: Array, threshold: float) -> None:
    """Match each unmatched column to its best row, if the value is at least the threshold, in place."""
    if len(values):
        rows = values.argmax(axis=0)
        best = values[rows, np.arange(len(rows))]
        chosen = (indices == -1) & (best >= max(threshold, _LEAST))
        indices[chosen], found[chosen] = rows[chosen], best[chosen]
