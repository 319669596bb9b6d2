# SPDX-License-Identifier: Apache-2.0
"""cumsum, argsort and reverse: running sums along an axis, its order, and the other way round."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of

_INT64 = np.dtype("int64")


def _infer_cumsum(x: Spec, *, axis: int) -> Spec:
    axis_of(axis, len(x.shape))
    return x


@operator("cumsum", "X -> Out", attrs={"axis": -1, "exclusive": False, "reverse": False}, infer=_infer_cumsum)
def cumsum(x: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """Return the sum of all values up to each one, without it if exclusive, from the end if reverse."""
    xp = array_module(x)
    turned = xp.flip(x, axis) if reverse else x
    sums = xp.cumsum(turned, axis=axis, dtype=x.dtype)
    if exclusive:
        sums = sums - turned
    return xp.flip(sums, axis) if reverse else sums


@gradient("cumsum", "Out@GRAD -> X@GRAD")
def cumsum_grad(dout: Array, *, axis: int, exclusive: bool, reverse: bool) -> Array:
    """dX = the same sums from the other end."""
    return cumsum(dout, axis=axis, exclusive=exclusive, reverse=not reverse)


def _infer_argsort(x: Spec, *, axis: int) -> tuple[Spec, Spec]:
    axis_of(axis, len(x.shape))
    return x, x._replace(dtype=_INT64)


@operator("argsort", "X -> Out Indices", attrs={"axis": -1}, infer=_infer_argsort)
def argsort(x: Array, *, axis: int) -> tuple[Array, Array]:
    """Return the values in ascending order, and where each was; equal values keep their order."""
    xp = array_module(x)
    order = xp.argsort(x, axis=axis, kind="stable")
    return xp.take_along_axis(x, order, axis=axis), order.astype(_INT64, copy=False)


def _infer_reverse(x: Spec, *, axis: tuple[int, ...]) -> Spec:
    for each in axis:
        axis_of(each, len(x.shape))
    return x


@operator("reverse", "X -> Out", attrs={"axis": tuple}, infer=_infer_reverse)
def reverse(x: Array, *, axis: tuple[int, ...]) -> Array:
    """Turn X round along the axes."""
    return array_module(x).flip(x, axis)


@gradient("reverse", "Out@GRAD -> X@GRAD")
def reverse_grad(dout: Array, *, axis: tuple[int, ...]) -> Array:
    """Turn dOut round."""
    return array_module(dout).flip(dout, axis)
