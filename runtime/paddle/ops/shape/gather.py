# SPDX-License-Identifier: Apache-2.0
"""gather, scatter, multiplex: read, write or select rows by index.

where: the positions at which a condition holds; diag: a vector on the diagonal of a matrix of zeros.
one_hot: class numbers (..., 1) as one-hot rows; a tensor may give the number of classes.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.dtypes import VarType
from paddle.ops.base.errors import AttrError, InputError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.segments import require_within
from paddle.ops.base.selected_rows import merge_rows
from paddle.ops.base.shapes import decided, product, same

_INT64 = np.dtype("int64")


def _infer_gather(x: Spec, index: Spec) -> Spec:
    _check_index(index)
    return x._replace(shape=(product(index.shape), *x.shape[1:]))


@operator("gather", "X Index -> Out", infer=_infer_gather)
def gather(x: Array, index: Array) -> Array:
    """Select rows of X by index: Out[i] = X[Index[i]]."""
    return x.take(_rows(index, len(x)), axis=0)


@gradient("gather", "X Index Out@GRAD -> X@GRAD")
def gather_grad(x: Array, index: Array, dout: Array) -> Array:
    """Return dX[j] = sum of dOut[i] with Index[i] = j."""
    dx = array_module(x).zeros(x.shape, x.dtype)
    rows, summed = merge_rows(_rows(index, len(x)), dout)
    dx[rows] = summed
    return dx


def _infer_scatter(x: Spec, ids: Spec, updates: Spec) -> Spec:
    _check_index(ids)
    same((product(ids.shape), *x.shape[1:]), updates.shape, "Updates and the rows of X")
    return x


@operator("scatter", "X Ids Updates -> Out", infer=_infer_scatter)
def scatter(x: Array, ids: Array, updates: Array, *, overwrite: bool = True) -> Array:
    """Return X with row Ids[i] replaced with Updates[i] or, if not overwrite, with the sum of its updates."""
    rows = _rows(ids, len(x), "Ids")
    out = x.copy()
    if overwrite:
        out[rows] = updates
    else:
        merged, summed = merge_rows(rows, updates)
        out[merged] = summed
    return out


@gradient("scatter", "Ids Out@GRAD -> X@GRAD Updates@GRAD")
def scatter_grad(ids: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX = dOut with zeros in the rows that were set; dUpdates = those rows of dOut."""
    rows = ids.reshape(-1)
    dx = dout.copy()
    dx[rows] = 0
    return dx, dout.take(rows, axis=0)


def _check_index(index: Spec) -> None:
    if (
        index.dtype.kind not in "iu"
        or len(index.shape) > 2
        or (len(index.shape) == 2 and index.shape[1] != 1)
    ):
        raise ShapeError(f"expected row numbers (n,) or (n, 1), got {index.shape} {index.dtype}")


def _rows(index: Array, height: int, slot: str = "Index") -> Array:
    rows = index.reshape(-1)
    require_within(index, height, slot, "row number")
    return rows


@operator("multiplex", "Ids X* -> Out", infer="X(...) -> X(...)")
def multiplex(ids: Array, x: list[Array]) -> Array:
    """Select rows from several inputs: row i of Out is row i of input Ids[i]."""
    chosen = _chosen(ids, x)
    xp = array_module(x[0])
    return xp.stack(x)[chosen, xp.arange(len(chosen))]


@gradient("multiplex", "Ids X* Out@GRAD -> X@GRAD*")
def multiplex_grad(ids: Array, x: list[Array], dout: Array) -> list[Array]:
    """Return the gradients of the inputs: each row of dOut goes to the input from which it was selected."""
    chosen = _chosen(ids, x).reshape(-1, *(1,) * (dout.ndim - 1))
    return [dout * (chosen == number) for number in range(len(x))]


def _chosen(ids: Array, x: list[Array]) -> Array:
    chosen = ids.reshape(-1)
    require_within(ids, len(x), "Ids", "id", "the number of inputs")
    return chosen


def _infer_where(condition: Spec) -> Spec:
    return Spec((-1, len(condition.shape)), _INT64)


@operator("where", "Condition -> Out", infer=_infer_where, shares_lod=False)
def where(condition: Array) -> Array:
    """Return the indices of all true (nonzero) elements, (count, rank) int64, in row-major order."""
    xp = array_module(condition)
    return xp.stack(xp.nonzero(condition), axis=1).astype(_INT64)


@operator("diag", "Diagonal -> Out", infer="Diagonal(N) -> Diagonal(N, N, lod=0)", shares_lod=False)
def diag(diagonal: Array) -> Array:
    """Return the diagonal matrix (n, n) of a vector (n,)."""
    return array_module(diagonal).diag(diagonal)


@gradient("diag", "Out@GRAD -> Diagonal@GRAD")
def diag_grad(dout: Array) -> Array:
    """Return dDiagonal, the diagonal of dOut."""
    return array_module(dout).diagonal(dout).copy()


_HOT = {"depth": -1, "dtype": VarType.FP32, "allow_out_of_range": False}


def _infer(x: Spec, given: Spec | None, *, depth: int, dtype: VarType) -> Spec:
    if given is not None:
        depth = -1
    elif depth <= 0:
        raise AttrError(f"depth: expected a positive number of classes, got {depth}")
    if not x.shape or x.shape[-1] != 1 or x.dtype.kind not in "iu":
        raise ShapeError(f"expected integers X of shape (..., 1), got {x.dtype} of shape {x.shape}")
    return Spec((*x.shape[:-1], depth), dtype.numpy, x.lod_level)


@operator("one_hot", "X depth_tensor? -> Out", attrs=_HOT, infer=_infer)
def one_hot(x: Array, given: Array | None, *, depth: int, dtype: VarType, allow_out_of_range: bool) -> Array:
    """Return one-hot rows (..., depth) for class numbers (..., 1): 1 at the class number, 0 elsewhere.

    Raises:
        InputError: a class number is outside [0, depth), or a depth given by a tensor is not positive.
    """
    xp = array_module(x)
    (depth,) = decided(given, (), (depth,))
    if depth < 1:
        raise InputError(f"depth: expected a positive number of classes, got {depth}")
    flat = x.reshape(-1)
    if not allow_out_of_range:
        require_within(x, depth, "X", "number")
    out = xp.zeros((len(flat), depth), dtype.numpy)
    (rows,) = xp.nonzero((flat >= 0) & (flat < depth))
    out[rows, flat[rows]] = 1
    return out.reshape(*x.shape[:-1], depth)


linear("gather")
