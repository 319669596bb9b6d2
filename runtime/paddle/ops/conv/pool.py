# SPDX-License-Identifier: Apache-2.0
"""pool2d and pool3d: maximum or average pooling of images (N, C, H, W) or volumes (N, C, D, H, W)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import prod

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.conv import pool_loops
from paddle.ops.conv.window import Sizes, Window, cells, padded, padded_size, unpadded, window_of

_SIDES = {2: "H, W", 3: "D, H, W"}


def _attrs(sides: int) -> dict[str, object]:
    return {
        "pooling_type": one_of("max", "avg", default=str),
        "ksize": tuple,
        "global_pooling": False,
        "strides": (1,) * sides,
        "paddings": (0,) * sides,
        "exclusive": True,
        "ceil_mode": False,
        "adaptive": False,
    }


def _shape_rule(sides: int) -> Callable[..., Spec]:
    def infer(
        x: Spec,
        *,
        ksize: Sizes,
        global_pooling: bool,
        strides: Sizes,
        paddings: Sizes,
        ceil_mode: bool,
        adaptive: bool,
    ) -> Spec:
        if len(x.shape) != 2 + sides:
            raise ShapeError(f"expected X (N, C, {_SIDES[sides]}), got {x.shape}")
        if global_pooling:
            return x._replace(shape=(*x.shape[:2], *(1,) * sides))
        window = _window(ksize, strides, paddings)
        if adaptive:
            return x._replace(shape=(*x.shape[:2], *ksize))
        return x._replace(shape=(*x.shape[:2], *window.places(x.shape[2:], ceil_mode)))

    return infer


@operator("pool2d", "X -> Out", attrs=_attrs(2), infer=_shape_rule(2))
@operator("pool3d", "X -> Out", attrs=_attrs(3), infer=_shape_rule(3))
def pool(
    x: Array,
    *,
    pooling_type: str,
    ksize: Sizes,
    global_pooling: bool,
    strides: Sizes,
    paddings: Sizes,
    exclusive: bool,
    ceil_mode: bool,
    adaptive: bool,
) -> Array:
    """Apply max or average pooling to each window; return (N, C, *places).

    Padding is never a maximum, and counts in a mean only if not exclusive.

    A window that covers only padding gives zero. If adaptive, ksize is the number of cells: they are evenly spaced and
    may overlap.
    """
    if global_pooling:
        sides = tuple(range(2, x.ndim))
        return (
            x.max(axis=sides, keepdims=True) if pooling_type == "max" else x.mean(axis=sides, keepdims=True)
        )
    if adaptive:
        return _adaptive(x, ksize, pooling_type)
    window = _window(ksize, strides, paddings)
    places = window.places(x.shape[2:], ceil_mode)
    is_served = pool_loops.are_served(x)
    if pooling_type == "max":
        return pool_loops.maxima(x, window, places) if is_served else _maxima(x, window, places)
    counts = _counts(x, window, places, exclusive)
    if is_served:
        return pool_loops.means(x, window, places, counts)
    return _total(x, window, places) / counts


@gradient("pool2d", "X Out Out@GRAD -> X@GRAD")
@gradient("pool3d", "X Out Out@GRAD -> X@GRAD")
def pool_grad(
    x: Array,
    out: Array,
    dout: Array,
    *,
    pooling_type: str,
    ksize: Sizes,
    global_pooling: bool,
    strides: Sizes,
    paddings: Sizes,
    exclusive: bool,
    adaptive: bool,
) -> Array:
    """Return dX: dOut goes to the first maximal cell of its window or, for averages, in equal shares to all cells."""
    if adaptive and not global_pooling:
        return _adaptive_grad(x, dout, pooling_type)
    xp = array_module(x)
    whole = global_pooling or (ksize == x.shape[2:] and not any(paddings))
    if pooling_type == "max" and whole:
        flat = xp.zeros((*x.shape[:2], prod(x.shape[2:])), x.dtype)
        at = x.reshape(flat.shape).argmax(axis=2)[..., None]
        xp.put_along_axis(flat, at, dout.reshape(at.shape), axis=2)
        return flat.reshape(x.shape)
    if global_pooling:
        return xp.broadcast_to(dout / x.dtype.type(prod(x.shape[2:])), x.shape)
    window = _window(ksize, strides, paddings)
    is_served = pool_loops.are_served(x, dout)
    if pooling_type == "max":
        return (pool_loops.to_maxima if is_served else _to_maxima)(x, out, dout, window)
    share = dout / _counts(x, window, dout.shape[2:], exclusive)
    return (pool_loops.to_all if is_served else _to_all)(x.shape, share, window)


def _window(ksize: Sizes, strides: Sizes, paddings: Sizes) -> Window:
    return window_of(ksize, strides, paddings, (1,) * len(ksize))


def _maxima(x: Array, window: Window, places: Sizes) -> Array:
    full = padded(x, window, places, value=_lowest(x))
    out: Array = None
    for _, cell in cells(full, window, places):
        out = cell.copy() if out is None else array_module(x).maximum(out, cell, out=out)
    for axis in range(len(places)):
        for at in _outside(x.shape[2 + axis], window, places, axis):
            out[(slice(None),) * (2 + axis) + (at,)] = 0
    return out


def _outside(size: int, window: Window, places: Sizes, axis: int) -> list[int]:
    """Return the positions along an axis whose windows cover only padding; their result is zero."""
    first = [at * window.strides[axis] - window.paddings[axis] for at in range(places[axis])]
    return [at for at, begin in enumerate(first) if begin >= size or begin + window.kernel[axis] <= 0]


def _total(x: Array, window: Window, places: Sizes) -> Array:
    full = padded(x, window, places)
    out = array_module(x).zeros((*x.shape[:2], *places), x.dtype)
    for _, cell in cells(full, window, places):
        out += cell
    return out


def _counts(x: Array, window: Window, places: Sizes, exclusive: bool) -> Array:
    """Return the divisor of each window's sum, (*places), at least 1."""
    xp = array_module(x)
    if not exclusive:
        return x.dtype.type(prod(window.kernel))
    counts = xp.ones((), np.int64)
    for axis, count in enumerate(places):
        first = xp.arange(count) * window.strides[axis] - window.paddings[axis]
        last = xp.minimum(first + window.kernel[axis], x.shape[2 + axis])
        counts = counts[..., None] * xp.maximum(last - xp.maximum(first, 0), 0)
    return xp.maximum(counts, 1).astype(x.dtype)


def _to_maxima(x: Array, out: Array, dout: Array, window: Window) -> Array:
    xp = array_module(x)
    places = dout.shape[2:]
    full = padded(x, window, places, value=_lowest(x))
    dfull = xp.zeros(full.shape, x.dtype)
    open_ = xp.ones(out.shape, bool)
    apart = all(stride >= size for stride, size in zip(window.strides, window.kernel, strict=True))
    for (_, cell), (_, target) in zip(cells(full, window, places), cells(dfull, window, places), strict=True):
        won = cell == out
        won &= open_
        open_ ^= won
        if apart:
            xp.multiply(dout, won, out=target)
        else:
            target += dout * won
    return unpadded(dfull, window, x.shape[2:])


def _to_all(shape: Sizes, share: Array, window: Window) -> Array:
    places = share.shape[2:]
    dfull = array_module(share).zeros((*shape[:2], *padded_size(shape[2:], window, places)), share.dtype)
    for _, target in cells(dfull, window, places):
        target += share
    return unpadded(dfull, window, shape[2:])


def _lowest(x: Array) -> float:
    return float(np.finfo(x.dtype).min)


def _adaptive(x: Array, counts: Sizes, kind: str) -> Array:
    out = array_module(x).empty((*x.shape[:2], *counts), x.dtype)
    sides = tuple(range(2, x.ndim))
    for place, cell in even_cells(x.shape[2:], counts):
        out[place] = x[cell].max(axis=sides) if kind == "max" else x[cell].mean(axis=sides)
    return out


def _adaptive_grad(x: Array, dout: Array, kind: str) -> Array:
    xp = array_module(x)
    dx = xp.zeros_like(x)
    rows, channels = xp.arange(len(x))[:, None], xp.arange(x.shape[1])[None, :]
    for place, cell in even_cells(x.shape[2:], dout.shape[2:]):
        part, into = x[cell], dx[cell]
        if kind == "avg":
            into += (dout[place] / x.dtype.type(prod(part.shape[2:]))).reshape(
                *part.shape[:2], *(1,) * (x.ndim - 2)
            )
            continue
        best = (
            part.reshape(*part.shape[:2], -1).argmax(axis=2) if part.size else xp.zeros(part.shape[:2], int)
        )
        into[(rows, channels, *xp.unravel_index(best, part.shape[2:]))] += dout[place]
    return dx


def even_cells(size: Sizes, counts: Sizes) -> Iterator[tuple[tuple[slice | int, ...], tuple[slice, ...]]]:
    """Yield, for each cell of adaptive pooling, its position and the part of the images that it covers."""
    each = slice(None), slice(None)
    for place in product(*map(range, counts)):
        sides = zip(place, size, counts, strict=True)
        yield (
            (*each, *place),
            (*each, *(slice(at * all_ // count, -(-(at + 1) * all_ // count)) for at, all_, count in sides)),
        )


linear("pool2d", "pool3d")
