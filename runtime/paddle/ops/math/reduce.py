# SPDX-License-Identifier: Apache-2.0
"""Reductions over some dimensions, or over all to shape (1,): reduce_sum, mean, max, min, prod, all, any; and mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.shapes import axis_of, keeps_rows
from paddle.ops.math.elementwise import quotient

_ATTRS = {"dim": (0,), "keep_dim": False, "reduce_all": False}


def _infer(x: Spec, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Spec:
    return Spec(_reduced_shape(x.shape, dim, keep_dim, reduce_all), x.dtype)


def _keeps_rows(attrs: Mapping[str, Any], rank: int) -> bool:
    return not attrs["reduce_all"] and keeps_rows("dim")(attrs, rank)


_reduction = partial(operator, signature="X -> Out", attrs=_ATTRS, shares_lod=_keeps_rows)


@_reduction("reduce_sum", infer=_infer)
def reduce_sum(x: Array, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
    """Return the sum of X over the given dimensions."""
    return _sum(x, x.dtype, dim, keep_dim, reduce_all)


@gradient("reduce_sum", "X Out@GRAD -> X@GRAD")
def reduce_sum_grad(x: Array, dout: Array, *, dim: tuple[int, ...], reduce_all: bool) -> Array:
    """Return dX, which is dOut, broadcast to the shape of X."""
    return _spread(dout, x, dim, reduce_all)


@_reduction("reduce_mean", infer=_infer)
def reduce_mean(x: Array, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
    """Return the mean of X over the given dimensions."""
    total = _sum(x, _wide(x.dtype), dim, keep_dim, reduce_all)
    return _shared(total, _count(x, dim, reduce_all)).astype(x.dtype, copy=False)


@gradient("reduce_mean", "X Out@GRAD -> X@GRAD")
def reduce_mean_grad(x: Array, dout: Array, *, dim: tuple[int, ...], reduce_all: bool) -> Array:
    """Return dX, which is dOut / count, broadcast to the shape of X."""
    return _spread(dout / x.dtype.type(_count(x, dim, reduce_all)), x, dim, reduce_all)


def _reducing(method: str) -> Callable[..., Array]:
    def reduce(x: Array, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
        shape = _reduced_shape(x.shape, dim, keep_dim, reduce_all)
        # A product keeps X's dtype.
        more = {"dtype": x.dtype} if method == "prod" else {}
        found: Array = getattr(x, method)(axis=_axes_of(x.ndim, dim, reduce_all), **more)
        return found.reshape(shape)

    return reduce


for _method in ("max", "min", "prod"):
    _reduction(f"reduce_{_method}", infer=_infer)(_reducing(_method))


@gradient("reduce_max", "X Out Out@GRAD -> X@GRAD")
@gradient("reduce_min", "X Out Out@GRAD -> X@GRAD")
def reduce_extreme_grad(
    x: Array, out: Array, dout: Array, *, dim: tuple[int, ...], reduce_all: bool
) -> Array:
    """Return the gradient of a maximum or minimum: dOut at every element that equals it."""
    return _spread(dout, x, dim, reduce_all) * (x == _spread(out, x, dim, reduce_all))


@gradient("reduce_prod", "X Out Out@GRAD -> X@GRAD")
def reduce_prod_grad(x: Array, out: Array, dout: Array, *, dim: tuple[int, ...], reduce_all: bool) -> Array:
    """Return dX = dOut Out / X."""
    return _spread(dout * out, x, dim, reduce_all) / x


def _sum(x: Array, dtype: Any, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Array:
    shape = _reduced_shape(x.shape, dim, keep_dim, reduce_all)
    total: Array = x.sum(axis=_axes_of(x.ndim, dim, reduce_all), dtype=dtype)
    return total.reshape(shape)


def _wide(dtype: Any) -> Any:
    """Return the dtype in which a mean is summed: int64 for integers, so that sums do not overflow."""
    return np.int64 if dtype.kind in "iu" else dtype


def _shared(total: Array, count: int) -> Array:
    """Return total / count in the dtype of the total."""
    divisor = total.dtype.type(count)
    return quotient(total, divisor) if total.dtype.kind in "iu" else total / divisor


def _axes_of(rank: int, dim: tuple[int, ...], reduce_all: bool) -> tuple[int, ...]:
    """Return the axes to reduce, ascending."""
    return tuple(range(rank)) if reduce_all else tuple(sorted({axis_of(axis, rank) for axis in dim}))


def _reduced_shape(
    shape: tuple[int, ...], dim: tuple[int, ...], keep_dim: bool, reduce_all: bool
) -> tuple[int, ...]:
    """Return the shape after reduction; (1,) if no dimension remains."""
    axes = _axes_of(len(shape), dim, reduce_all)
    if keep_dim:
        return tuple(1 if axis in axes else size for axis, size in enumerate(shape))
    return tuple(size for axis, size in enumerate(shape) if axis not in axes) or (1,)


def _count(x: Array, dim: tuple[int, ...], reduce_all: bool) -> int:
    return prod(x.shape[axis] for axis in _axes_of(x.ndim, dim, reduce_all))


def _spread(reduced: Array, x: Array, dim: tuple[int, ...], reduce_all: bool) -> Array:
    shape = _reduced_shape(x.shape, dim, True, reduce_all)
    return array_module(x).broadcast_to(reduced.reshape(shape), x.shape)


def _infer_logic(x: Spec, *, dim: tuple[int, ...], keep_dim: bool, reduce_all: bool) -> Spec:
    if x.dtype != np.bool_:
        raise ShapeError(f"expected a bool tensor, got {x.dtype}: use the result of a comparison")
    return Spec(_reduced_shape(x.shape, dim, keep_dim, reduce_all), x.dtype)


for _method in ("all", "any"):
    _reduction(f"reduce_{_method}", infer=_infer_logic)(_reducing(_method))


@operator("mean", "X -> Out", infer="-> X(1, lod=0)", shares_lod=False)
def mean(x: Array) -> Array:
    """Return the mean of all elements, (1,); 0 if there are none, so that an empty batch has zero cost."""
    total = x.sum(dtype=_wide(x.dtype)).reshape(1)
    return (_shared(total, x.size) if x.size else total).astype(x.dtype, copy=False)


@gradient("mean", "X Out@GRAD -> X@GRAD")
def mean_grad(x: Array, dout: Array) -> Array:
    """Return dX = dOut / size."""
    return array_module(x).broadcast_to(dout / x.dtype.type(max(x.size, 1)), x.shape)


linear("reduce_sum", "reduce_mean", "mean")
