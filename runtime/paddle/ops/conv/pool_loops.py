# SPDX-License-Identifier: Apache-2.0
"""Compiled loops for pooling float32 images (`kernels/pool.c`), bit-equal to the plain form in `pool`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

import numpy as np

from paddle.backend import Array
from paddle.kernels.library import Kernels, address
from paddle.ops.base.threads import COMPUTE
from paddle.ops.conv.window import Sizes, Window

KERNELS = Kernels(
    pool_max="pnppp", pool_max_gradient="pppnpppp", pool_mean="pnppp", pool_mean_gradient="pnpp"
)
_LEAST = 1 << 12  # elements from which calls of C cost less than numpy's operations
_PIECE = 1 << 16  # elements of a piece that is worth a thread
_F32 = np.dtype(np.float32)


def are_served(*arrays: Array) -> bool:
    """Return whether the loops take these arrays: large float32 images (N, C, H, W) on the host."""
    return (
        KERNELS.loaded is not None
        and all(
            type(each) is np.ndarray and each.dtype == _F32 and each.ndim == 4 and each.size
            for each in arrays
        )
        and max(each.size for each in arrays) >= _LEAST
    )


def maxima(x: Array, window: Window, places: Sizes) -> Array:
    """Return the maximum of each window, (N, C, *places); 0 for a window that covers only padding."""
    out = np.empty((*x.shape[:2], *places), _F32)

    def work(x: Array, out: Array, geometry: int) -> None:
        part = np.empty(x.shape[1] * places[1], _F32)
        KERNELS.loaded.pool_max(_at(x), len(x), geometry, _at(part), _at(out))

    _run(work, x.shape[2:], window, places, x, out)
    return out


def to_maxima(x: Array, out: Array, dout: Array, window: Window) -> Array:
    """Return the gradient of `maxima`: dOut is added to the first cell of its window that equals Out."""
    dx, places = np.empty(x.shape, _F32), dout.shape[2:]

    def work(x: Array, out: Array, dout: Array, dx: Array, geometry: int) -> None:
        part, at = np.empty(x.shape[1] * places[1], _F32), np.empty(x.shape[1] * places[1], np.int32)
        call = KERNELS.loaded.pool_max_gradient
        call(_at(x), _at(out), _at(dout), len(x), geometry, _at(part), address(at, np.int32), _at(dx))

    _run(work, x.shape[2:], window, places, x, out, dout, dx)
    return dx


def means(x: Array, window: Window, places: Sizes, counts: Array) -> Array:
    """Return the sum of each window, divided by `counts`, which is broadcast to `places`."""
    out = np.empty((*x.shape[:2], *places), _F32)
    by = np.ascontiguousarray(np.broadcast_to(counts, places), _F32)

    def work(x: Array, out: Array, geometry: int) -> None:
        KERNELS.loaded.pool_mean(_at(x), len(x), geometry, _at(by), _at(out))

    _run(work, x.shape[2:], window, places, x, out)
    return out


def to_all(shape: Sizes, share: Array, window: Window) -> Array:
    """Return the gradient of `means`, (*shape): each cell receives its share from every window that contains it."""
    dx = np.empty(shape, _F32)

    def work(share: Array, dx: Array, geometry: int) -> None:
        KERNELS.loaded.pool_mean_gradient(_at(share), len(dx), geometry, _at(dx))

    _run(work, shape[2:], window, share.shape[2:], share, dx)
    return dx


def _run(work: Callable[..., None], size: Sizes, window: Window, places: Sizes, *arrays: Array) -> None:
    """Call `work` with pieces (planes, height, width) of all arrays (N, C, height, width), and the sizes."""
    sizes = (*size, *places, *window.kernel, *window.strides, *window.paddings)
    geometry = np.array([*sizes, *_reach(size[1], places[1], window)], np.int64)
    planes = [np.ascontiguousarray(each).reshape(-1, *each.shape[2:]) for each in arrays]
    count = len(planes[0])
    pieces = max(1, min(count, prod(arrays[0].shape) // _PIECE))
    ends = [count * number // pieces for number in range(pieces + 1)]

    def piece(number: int) -> None:
        part = slice(ends[number], ends[number + 1])
        work(*(each[part] for each in planes), address(geometry, np.int64))

    COMPUTE.run(piece, pieces)


def _reach(width: int, count: int, window: Window) -> Iterator[int]:
    """Yield first and stop for each column of a window: the outputs for which it is inside the image."""
    stride, pad = window.strides[1], window.paddings[1]
    for column in range(window.kernel[1]):
        yield max(-((column - pad) // stride), 0)
        yield min(max((width - 1 + pad - column) // stride + 1, 0), count)


def _at(array: Array) -> int:
    return address(array, _F32)
