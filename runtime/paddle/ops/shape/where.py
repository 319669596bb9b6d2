# SPDX-License-Identifier: Apache-2.0
"""where: the places at which a condition holds; diag: a vector along the diagonal of a matrix of zeros."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator

_INT64 = np.dtype("int64")


def _infer_where(condition: Spec) -> Spec:
    return Spec((-1, len(condition.shape)), _INT64)


@operator("where", "Condition -> Out", infer=_infer_where, shares_lod=False)
def where(condition: Array) -> Array:
    """Return the indices of all elements that hold, (found, rank) int64, row by row."""
    xp = array_module(condition)
    places: Array = xp.stack(xp.nonzero(condition), axis=1).astype(_INT64)
    return places


def _infer_diag(diagonal: Spec) -> Spec:
    if len(diagonal.shape) != 1:
        raise ShapeError(f"expected a Diagonal (n,), got {diagonal.shape}")
    return Spec((diagonal.shape[0], diagonal.shape[0]), diagonal.dtype)


@operator("diag", "Diagonal -> Out", infer=_infer_diag, shares_lod=False)
def diag(diagonal: Array) -> Array:
    """Return (n, n) with the vector along its diagonal."""
    matrix: Array = array_module(diagonal).diag(diagonal)
    return matrix


@gradient("diag", "Out@GRAD -> Diagonal@GRAD")
def diag_grad(dout: Array) -> Array:
    """dDiagonal = the diagonal of dOut."""
    return array_module(dout).diagonal(dout).copy()
