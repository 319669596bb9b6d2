# SPDX-License-Identifier: Apache-2.0
"""im2col: convolutions, and the gradients of images and filters, as matrix products over columns.

Each image's windows become the columns of a matrix (C/groups · kernel, places). A few images are processed at a time,
so that their columns stay in the cache. Filters are (F, C/groups, *kernel), images (N, C, *sizes) with any number of
spatial dimensions.

    image (C=1)     columns of a 2 x 2 kernel at stride 1, one per position
    a b c           a b d e     cell (0, 0) of each window
    d e f           b c e f     cell (0, 1)
    g h i           d e g h     cell (1, 0)
                    e f h i     cell (1, 1)
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.conv.window import Sizes, Window, cells, padded, padded_size, unpadded, views, window_of

# The bytes of columns that fit in a second-level cache next to the filters; measured on x86 servers. A GPU needs few
# large products instead.
_CHUNK_BYTES, _CHUNK_BYTES_GPU = 1 << 20, 1 << 28
_THIN = 32


def convolve(x: Array, filters: Array, window: Window, groups: int) -> Array:
    """Convolve images with filters; return (N, F, *places)."""
    count = filters.shape[0]
    places = window.places(x.shape[2:])
    if _few(places, groups):
        return _convolve_few(x, filters, window, places)
    matrix = filters.reshape(groups, count // groups, -1)
    out = array_module(x).empty((len(x), groups, count // groups, prod(places)), x.dtype)
    for part, columns in _columns(x, window, places, groups):
        array_module(x).matmul(matrix, columns, out=out[part])
    return out.reshape(len(x), count, *places)


def filter_gradient(x: Array, dout: Array, filters: Array, window: Window, groups: int) -> Array:
    """Return the gradient of the filters, (F, C/groups, *kernel)."""
    xp = array_module(x)
    places = dout.shape[2:]
    if _few(places, groups):
        by_filter = dout.swapaxes(0, 1).reshape(filters.shape[0], -1)
        return (by_filter @ _rows(x, window, places)).reshape(filters.shape)
    total = xp.zeros((groups, filters.shape[0] // groups, filters[0].size), filters.dtype)
    rows = _grouped(dout, groups)
    for part, columns in _columns(x, window, places, groups, total.nbytes):
        product = xp.matmul(rows[part], columns.swapaxes(-1, -2))
        total += product[0] if len(product) == 1 else product.sum(axis=0)
    return total.reshape(filters.shape)


def image_gradient(filters: Array, dout: Array, size: Sizes, window: Window, groups: int) -> Array:
    """Return the gradient of the images, (N, C, *size)."""
    if _better_turned(filters, dout, size, window):
        return _turned_convolution(filters, dout, window, groups)
    xp = array_module(dout)
    images, count = dout.shape[:2]
    channels = filters.shape[1] * groups
    places = dout.shape[2:]
    matrix = filters.reshape(groups, count // groups, -1).swapaxes(-1, -2)
    rows = _grouped(dout, groups)
    full = xp.zeros((images, channels, *padded_size(size, window, places)), dout.dtype)
    chunk = _chunk(channels * prod(window.kernel) * prod(places) * dout.dtype.itemsize, xp)
    for first in range(0, images, chunk):
        part = slice(first, first + chunk)
        columns = xp.matmul(matrix, rows[part]).reshape(-1, channels, *window.kernel, *places)
        for cell, target in cells(full[part], window, places):
            target += columns[(slice(None), slice(None), *cell)]
    return unpadded(full, window, size)


def _columns(
    x: Array, window: Window, places: Sizes, groups: int, product_bytes: int = 0
) -> Iterator[tuple[slice, Array]]:
    """Yield (slice of the images, their columns (m, groups, C/groups · kernel, places)); the array is reused.

    Args:
        product_bytes: what the caller computes per image, if that may be larger than the columns.
    """
    xp = array_module(x)
    if max(window.kernel) == max(window.strides) == 1 and not any(window.paddings):
        yield slice(None), _grouped(x, groups)
        return
    source = views(padded(x, window, places), window, places)
    per_image = source[:1].nbytes if xp is np else max(source[:1].nbytes, product_bytes)
    chunk = min(_chunk(per_image, xp), len(x))
    buffer = xp.empty((chunk, *source.shape[1:]), x.dtype)
    for first in range(0, len(x), max(chunk, 1)):
        part = source[first : first + chunk]
        filled = buffer[: len(part)]
        xp.copyto(filled, part)
        yield slice(first, first + chunk), filled.reshape(len(part), groups, -1, prod(places))


def _few(places: Sizes, groups: int) -> bool:
    """Return whether images have too few positions for BLAS to compute products per image efficiently."""
    return groups == 1 and prod(places) < _THIN


def _rows(x: Array, window: Window, places: Sizes) -> Array:
    """Return the windows of all images as rows, (N · places, C · kernel)."""
    source = views(padded(x, window, places), window, places)
    sides = len(places)
    axes = (0, *range(2 + sides, 2 + 2 * sides), *range(1, 2 + sides))  # N, places, C, kernel
    return source.transpose(axes).reshape(len(x) * prod(places), x.shape[1] * prod(window.kernel))


def _convolve_few(x: Array, filters: Array, window: Window, places: Sizes) -> Array:
    matrix = filters.reshape(len(filters), filters[0].size)
    product = (_rows(x, window, places) @ matrix.T).reshape(len(x), *places, len(filters))
    return array_module(x).ascontiguousarray(array_module(x).moveaxis(product, -1, 1))


def _grouped(x: Array, groups: int) -> Array:
    """Return images as (N, groups, channels / groups, places)."""
    return x.reshape(len(x), groups, x.shape[1] // groups, prod(x.shape[2:]))


def _chunk(bytes_per_image: int, xp: Any) -> int:
    return max(1, (_CHUNK_BYTES if xp is np else _CHUNK_BYTES_GPU) // max(bytes_per_image, 1))


def _better_turned(filters: Array, dout: Array, size: Sizes, window: Window) -> bool:
    """Return whether convolving dOut with flipped filters is cheaper than adding columns back into images.

    Both need equally many products only where dOut is no larger than the images; copying columns is then cheaper than
    adding them. A GPU waits for the start of each of its kernels: adding takes one per cell, copying one in all.
    """
    if max(window.strides) > 1 or any(
        pad > reach - 1 for pad, reach in zip(window.paddings, window.extent, strict=True)
    ):
        return False
    if array_module(dout) is not np:
        return True
    enlarged = dout.shape[1] * prod(size)
    return filters.shape[1] >= 32 and bool(enlarged <= filters.shape[1] * prod(dout.shape[2:]))


def _turned_convolution(filters: Array, dout: Array, window: Window, groups: int) -> Array:
    count, per_group = filters.shape[:2]
    backwards = (..., *(slice(None, None, -1) for _ in window.kernel))
    split = filters.reshape(groups, count // groups, per_group, *window.kernel)[backwards]
    turned = split.swapaxes(1, 2).reshape(groups * per_group, count // groups, *window.kernel)
    rest = tuple(reach - 1 - pad for reach, pad in zip(window.extent, window.paddings, strict=True))
    return convolve(dout, turned, window_of(window.kernel, window.strides, rest, window.dilations), groups)
