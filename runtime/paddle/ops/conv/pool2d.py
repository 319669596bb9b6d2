# SPDX-License-Identifier: Apache-2.0
"""pool2d: the greatest value or the mean of each window over images (N, C, H, W)."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.conv import adaptive_pool
from paddle.ops.conv.window import Pair, Window, padded, shifted, unpadded

_ATTRS = {
    "pooling_type": str,
    "ksize": tuple,
    "global_pooling": False,
    "strides": (1, 1),
    "paddings": (0, 0),
    "exclusive": True,
    "ceil_mode": False,
    "adaptive": False,
}


def _infer(
    x: Spec,
    *,
    pooling_type: str,
    ksize: Pair,
    global_pooling: bool,
    strides: Pair,
    paddings: Pair,
    ceil_mode: bool,
    adaptive: bool,
) -> Spec:
    if pooling_type not in ("max", "avg"):
        raise AttrError(f"pooling_type: expected 'max' or 'avg', got {pooling_type!r}")
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (N, C, H, W), got {x.shape}")
    if global_pooling:
        return x._replace(shape=(*x.shape[:2], 1, 1))
    window = Window(ksize, strides, paddings)
    if adaptive:
        return x._replace(shape=(*x.shape[:2], *ksize))
    return x._replace(shape=(*x.shape[:2], *window.places(x.shape[2:], ceil_mode)))


@operator("pool2d", "X -> Out", attrs=_ATTRS, infer=_infer)
def pool2d(
    x: Array,
    *,
    pooling_type: str,
    ksize: Pair,
    global_pooling: bool,
    strides: Pair,
    paddings: Pair,
    exclusive: bool,
    ceil_mode: bool,
    adaptive: bool,
) -> Array:
    """Return (N, C, H', W'); padding never wins a maximum, and counts in a mean only if not exclusive.

    A window of nothing but padding gives zero. If adaptive, ksize says how many cells there are.
    """
    if global_pooling:
        return (
            x.max(axis=(2, 3), keepdims=True) if pooling_type == "max" else x.mean(axis=(2, 3), keepdims=True)
        )
    if adaptive:
        return adaptive_pool.pooled(x, ksize, pooling_type)
    window = Window(ksize, strides, paddings)
    places = window.places(x.shape[2:], ceil_mode)
    if pooling_type == "max":
        return _greatest(x, window, places)
    return _total(x, window, places) / _cells(x, window, places, exclusive)


@gradient("pool2d", "X Out Out@GRAD -> X@GRAD")
def pool2d_grad(
    x: Array,
    out: Array,
    dout: Array,
    *,
    pooling_type: str,
    ksize: Pair,
    global_pooling: bool,
    strides: Pair,
    paddings: Pair,
    exclusive: bool,
    adaptive: bool,
) -> Array:
    """dOut goes to the first greatest cell of its window, or in equal shares to all of its cells."""
    if adaptive and not global_pooling:
        return adaptive_pool.taken_back(x, out, dout, pooling_type)
    window = Window(x.shape[2:], (1, 1), (0, 0)) if global_pooling else Window(ksize, strides, paddings)
    if pooling_type == "max":
        return _to_greatest(x, out, dout, window)
    if global_pooling:
        share = dout / x.dtype.type(x.shape[2] * x.shape[3])
        return array_module(x).broadcast_to(share, x.shape)
    return _to_all(x, dout / _cells(x, window, dout.shape[2:], exclusive), window)


def _greatest(x: Array, window: Window, places: Pair) -> Array:
    full = padded(x, window, places, value=_lowest(x))
    out: Array = None
    for _, distance in window.offsets():
        cell = shifted(full, window, places, distance)
        out = cell.copy() if out is None else array_module(x).maximum(out, cell, out=out)
    for axis in (0, 1):
        for at in _outside(x.shape[2 + axis], window, places, axis):
            out[(slice(None),) * (2 + axis) + (at,)] = 0
    return out


def _outside(size: int, window: Window, places: Pair, axis: int) -> list[int]:
    """Return the places along an axis whose windows hold nothing but padding; they give zero."""
    first = [at * window.strides[axis] - window.paddings[axis] for at in range(places[axis])]
    return [at for at, begin in enumerate(first) if begin >= size or begin + window.kernel[axis] <= 0]


def _total(x: Array, window: Window, places: Pair) -> Array:
    full = padded(x, window, places)
    out = array_module(x).zeros((*x.shape[:2], *places), x.dtype)
    for _, distance in window.offsets():
        out += shifted(full, window, places, distance)
    return out


def _cells(x: Array, window: Window, places: Pair, exclusive: bool) -> Array:
    """Return by what each window's sum is divided, (places down, places across)."""
    xp = array_module(x)
    if not exclusive:
        return x.dtype.type(window.kernel[0] * window.kernel[1])
    counts = []
    for axis in (0, 1):
        first = xp.arange(places[axis]) * window.strides[axis] - window.paddings[axis]
        last = xp.minimum(first + window.kernel[axis], x.shape[2 + axis])
        counts.append(xp.maximum(last - xp.maximum(first, 0), 0))
    return xp.maximum(counts[0][:, None] * counts[1], 1).astype(x.dtype)


def _to_greatest(x: Array, out: Array, dout: Array, window: Window) -> Array:
    xp = array_module(x)
    if window.kernel == x.shape[2:] and window.paddings == (0, 0):
        flat = xp.zeros((*x.shape[:2], x.shape[2] * x.shape[3]), x.dtype)
        at = x.reshape(flat.shape).argmax(axis=2)[..., None]
        xp.put_along_axis(flat, at, dout.reshape(at.shape), axis=2)
        return flat.reshape(x.shape)
    places = dout.shape[2:]
    full = padded(x, window, places, value=_lowest(x))
    dfull = xp.zeros(full.shape, x.dtype)
    open_ = xp.ones(out.shape, bool)
    apart = window.strides[0] >= window.kernel[0] and window.strides[1] >= window.kernel[1]
    for _, distance in window.offsets():
        won = shifted(full, window, places, distance) == out
        won &= open_
        open_ ^= won
        target = shifted(dfull, window, places, distance)
        if apart:
            xp.multiply(dout, won, out=target)
        else:
            target += dout * won
    return unpadded(dfull, window, *x.shape[2:])


def _to_all(x: Array, share: Array, window: Window) -> Array:
    xp = array_module(x)
    places = share.shape[2:]
    room = padded(xp.broadcast_to(x.dtype.type(0), (1, 1, *x.shape[2:])), window, places).shape[2:]
    dfull = xp.zeros((*x.shape[:2], *room), x.dtype)
    for _, distance in window.offsets():
        target = shifted(dfull, window, places, distance)
        target += share
    return unpadded(dfull, window, *x.shape[2:])


def _lowest(x: Array) -> float:
    return float(np.finfo(x.dtype).min)
