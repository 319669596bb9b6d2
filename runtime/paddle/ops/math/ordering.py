# SPDX-License-Identifier: Apache-2.0
"""cumsum, argsort and reverse along an axis; top_k, arg_max and arg_min, which prefer the first of equal values.

similarity_focus: a mask of the positions with the greatest similarity (He et al., 2016).
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import AttrError, InputError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of, decided, keeps_rows

_INT64 = np.dtype("int64")


def _infer_cumsum(x: Spec, *, axis: int) -> Spec:
    axis_of(axis, len(x.shape))
    return x


@operator("cumsum", "X -> Out", infer=_infer_cumsum)
def cumsum(x: Array, *, axis: int = -1, exclusive: bool = False, reverse: bool = False) -> Array:
    """Return the cumulative sums along an axis; `exclusive` omits the element itself, `reverse` starts from the end."""
    xp = array_module(x)
    turned = xp.flip(x, axis) if reverse else x
    sums = xp.cumsum(turned, axis=axis, dtype=x.dtype)
    if exclusive:
        sums = sums - turned
    return xp.flip(sums, axis) if reverse else sums


@gradient("cumsum", "Out@GRAD -> X@GRAD")
def cumsum_grad(dout: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return dX, the cumulative sums of dOut in the opposite direction."""
    return cumsum(dout, axis=axis, exclusive=exclusive, reverse=not reverse)


def _infer_argsort(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    axis_of(axis, len(x.shape))
    return x, x._replace(dtype=_INT64)


@operator("argsort", "X -> Out Indices", infer=_infer_argsort)
def argsort(x: Array, *, axis: int = -1) -> tuple[Array, Array]:
    """Return the values in ascending order, and their int64 positions in X; the sort is stable."""
    xp = array_module(x)
    order = xp.argsort(x, axis=axis, kind="stable")
    return xp.take_along_axis(x, order, axis=axis), order.astype(_INT64, copy=False)


def _infer_reverse(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    for each in axis:
        axis_of(each, len(x.shape))
    return x


@operator("reverse", "X -> Out", attrs={"axis": tuple}, infer=_infer_reverse)
def reverse(x: Array, *, axis: tuple[int, ...]) -> Array:
    """Reverse the order of elements along the given axes."""
    return array_module(x).flip(x, axis)


@gradient("reverse", "Out@GRAD -> X@GRAD")
def reverse_grad(dout: Array, *, axis: tuple[int, ...]) -> Array:
    """Return dX, which is dOut with the order of elements reversed along the axes."""
    return array_module(dout).flip(dout, axis)


def _infer_top_k(x: Spec, given: Spec | None, *, k: int) -> tuple[Spec, Spec]:
    if given is not None and x.shape:
        k = -1
    elif not x.shape or k < 1 or 0 <= x.shape[-1] < k:
        raise AttrError(f"k: expected 1 to the last size of X {x.shape}, got {k}")
    out = x._replace(shape=(*x.shape[:-1], k))
    return out, out._replace(dtype=_INT64)


@operator("top_k", "X K? -> Out Indices", infer=_infer_top_k)
def top_k(x: Array, given: Array | None, *, k: int = 1) -> tuple[Array, Array]:
    """Return the k largest values of each row, descending, and their int64 positions; the tensor K overrides k.

    Raises:
        InputError: K is not in 1 to the last size of X.
    """
    xp = array_module(x)
    (k,) = decided(given, (), (k,))
    if not 1 <= k <= x.shape[-1]:
        raise InputError(f"k: expected 1 to the last size of X {x.shape}, got {k}")
    rows = x.reshape(-1, x.shape[-1])
    places = rows.argmax(axis=1)[:, None] if k == 1 and x.size else _chosen(rows, k)
    values = xp.take_along_axis(rows, places, axis=1)
    if k > 1:
        order = (-values).argsort(axis=1, kind="stable")
        places = xp.take_along_axis(places, order, axis=1)
        values = xp.take_along_axis(values, order, axis=1)
    shape = (*x.shape[:-1], k)
    return values.reshape(shape), places.astype(_INT64, copy=False).reshape(shape)


def _infer_arg(x: Spec, *, axis: int) -> Spec:
    at = axis_of(axis, len(x.shape))
    return Spec((x.shape[:at] + x.shape[at + 1 :]) or (1,), _INT64)


@operator("arg_max", "X -> Out", infer=_infer_arg, shares_lod=keeps_rows("axis"))
def arg_max(x: Array, *, axis: int = -1) -> Array:
    """Return the int64 index of the maximum along the axis; the result lacks this axis."""
    return x.argmax(axis=axis).reshape((x.shape[: axis % x.ndim] + x.shape[axis % x.ndim + 1 :]) or (1,))


@operator("arg_min", "X -> Out", infer=_infer_arg, shares_lod=keeps_rows("axis"))
def arg_min(x: Array, *, axis: int = -1) -> Array:
    """Return the int64 index of the minimum along the axis; the result lacks this axis."""
    return (-x).argmax(axis=axis).reshape((x.shape[: axis % x.ndim] + x.shape[axis % x.ndim + 1 :]) or (1,))


def _chosen(rows: Array, k: int) -> Array:
    """Return the ascending positions of the k largest values of each row; the first ones of equal values."""
    xp = array_module(rows)
    least = xp.partition(rows, rows.shape[1] - k, axis=1)[:, rows.shape[1] - k, None]
    greater, equal = rows > least, rows == least
    room = k - greater.sum(axis=1, keepdims=True)
    mask = greater | (equal & (xp.cumsum(equal, axis=1) <= room))
    if int(mask.sum()) != len(rows) * k:  # a row with nan, which cannot be ordered
        return xp.sort((-rows).argsort(axis=1, kind="stable")[:, :k], axis=1)
    return xp.nonzero(mask)[1].reshape(len(rows), k)


def _infer_focus(x: Spec, *, axis: int, indexes: tuple[int, ...]) -> Spec:
    if len(x.shape) != 4 or axis not in (1, 2, 3):
        raise ShapeError(f"expected X of four dimensions and an axis from 1 to 3, got {x.shape} and {axis=}")
    if not indexes or (x.shape[axis] >= 0 and not all(0 <= index < x.shape[axis] for index in indexes)):
        raise AttrError(f"indexes: expected numbers below {x.shape[axis]}, got {indexes}")
    return x


@operator("similarity_focus", "X -> Out", attrs={"axis": int, "indexes": tuple}, infer=_infer_focus)
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
            for row, column in _focused(images[index]):
                into[:, row, column] = 1
    return from_host(mask, x)


def _focused(matrix: Array) -> list[tuple[int, int]]:
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
