# SPDX-License-Identifier: Apache-2.0
"""sequence_conv, sequence_context and row_conv: context windows of rows, with or without a matrix product; im2sequence.

im2sequence: windows of images as rows of sequences, one sequence per image. If Y (images, 2) gives the original heights
and widths of the images of a batch, only the windows that start inside them are used.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import Limit, one_of
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, Offsets, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, positions, scatter_sum
from paddle.ops.base.shapes import agree

_ATTRS = {
    "paddingTrainable": False,
    "contextLength": Limit(int, least=1),
    "contextStart": 0,
    "contextStride": one_of(1),
}


@operator(
    "sequence_conv",
    "X+ PaddingData? Filter -> Out+",
    attrs=_ATTRS,
    infer="X(N, D), Filter(contextLength * D, M) -> X(N, M, lod=max(X, 1))",
)
def sequence_conv(
    x: Any, padding: Array | None, filters: Array, *, contextLength: int, contextStart: int
) -> LoDArray:
    """Return a convolution along sequences: each row's window of contextLength rows, from contextStart, times Filter.

    Rows before or after the sequence are zero, or taken from PaddingData: first the rows before it, then those after
    it.
    """
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    return LoDArray(_columns(data, padding, rows) @ filters, x.lod)


@gradient("sequence_conv", "X+ PaddingData? Filter Out@GRAD -> X@GRAD PaddingData@GRAD? Filter@GRAD")
def sequence_conv_grad(
    x: Any, padding: Array | None, filters: Array, dout: Array, *, contextLength: int, contextStart: int
) -> tuple[Array, Array | None, Array]:
    """Return the gradients of X, PaddingData and Filter.

    A row's gradient is summed over all windows that contain it.
    """
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    dfilters = _columns(data, padding, rows).T @ dout
    return *_brought_back(dout @ filters.T, rows, data, padding), dfilters


@operator(
    "sequence_context",
    "X+ PaddingData? -> Out+",
    attrs=_ATTRS,
    infer="X(N, D) -> X(N, contextLength * D, lod=max(X, 1))",
)
def sequence_context(x: Any, padding: Array | None, *, contextLength: int, contextStart: int) -> LoDArray:
    """Return the context window of each row t: contextLength rows starting at t + contextStart, side by side."""
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    return LoDArray(_columns(data, padding, rows), x.lod)


@gradient("sequence_context", "X+ PaddingData? Out@GRAD -> X@GRAD PaddingData@GRAD?")
def sequence_context_grad(
    x: Any, padding: Array | None, dout: Array, *, contextLength: int, contextStart: int
) -> tuple[Array, Array | None]:
    """Return the gradients of X and PaddingData: for each row, the sum over all windows that contain it."""
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    return _brought_back(dout, rows, data, padding)


def _brought_back(
    columns: Array, rows: Offsets, data: Array, padding: Array | None
) -> tuple[Array, Array | None]:
    parts = columns.reshape(-1, data.shape[1])
    padded = 1 if padding is None else len(padding)
    table = scatter_sum(parts, at(rows.reshape(-1), parts), len(data) + padded)
    return table[: len(data)], None if padding is None else table[len(data) :]


def _window(offsets: Offsets, start: int, length: int, is_padded: bool) -> Offsets:
    """Return the row numbers (rows, length) in the table of X's rows followed by those of the padding."""
    place = positions(offsets)[:, None] + np.arange(start, start + length)
    count = np.repeat(lengths(offsets), lengths(offsets))[:, None]
    first = np.repeat(offsets[:-1], lengths(offsets))[:, None]
    before = max(0, -start)
    outside = np.where(place < 0, place + before, before + place - count) if is_padded else 0
    return np.where((place >= 0) & (place < count), first + place, offsets[-1] + outside)


def _columns(data: Array, padding: Array | None, rows: Offsets) -> Array:
    xp = array_module(data)
    outside = xp.zeros((1, data.shape[1]), data.dtype) if padding is None else padding
    table = xp.concatenate([data, outside])
    return table[at(rows, data)].reshape(len(rows), rows.shape[1] * data.shape[1])


@operator("row_conv", "X+ Filter -> Out+", infer="X(_, ...), Filter(_, ...) -> X")
def row_conv(x: Any, filters: Array) -> LoDArray:
    """Return a lookahead convolution, Out[t] = Σ Filter[j] X[t + j] over all j with t + j in the same sequence."""
    data, offsets = sequences(x, "X")
    out = array_module(data).zeros_like(data)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        out[here] += filters[ahead] * data[there]
    return LoDArray(out, x.lod)


@gradient("row_conv", "X+ Filter Out@GRAD -> X@GRAD Filter@GRAD")
def row_conv_grad(x: Any, filters: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX[t + j] = sum of Filter[j] dOut[t]; dFilter[j] = sum of X[t + j] dOut[t]."""
    data, offsets = sequences(x, "X")
    xp = array_module(data)
    dx, dfilters = xp.zeros_like(data), xp.zeros_like(filters)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        dx[there] += filters[ahead] * dout[here]
        dfilters[ahead] = (data[there] * dout[here]).sum(axis=0)
    return dx, dfilters


def _pairs(offsets: Offsets, width: int, like: Array) -> list[tuple[Array, Array]]:
    """Return, for each j, the rows that have a row j positions later in their sequence, and those later rows."""
    left = np.repeat(lengths(offsets), lengths(offsets)) - positions(offsets)
    rows = [np.flatnonzero(left > ahead) for ahead in range(width)]
    return [(at(here, like), at(here + ahead, like)) for ahead, here in enumerate(rows)]


def _infer_im2sequence(x: Spec, real: Spec | None, *, kernels: tuple[int, ...]) -> Spec:
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (images, channels, height, width), got {x.shape}")
    if real is not None and (len(real.shape) != 2 or not agree(real.shape[1], 2)):
        raise ShapeError(f"expected Y (images, 2), the height and width of each image, got {real.shape}")
    return Spec((-1, x.shape[1] * kernels[0] * kernels[1]), x.dtype, 1)


@operator("im2sequence", "X Y? -> Out+", attrs={"kernels": tuple}, infer=_infer_im2sequence)
def im2sequence(
    x: Array,
    real: Array | None,
    *,
    kernels: tuple[int, ...],
    strides: tuple[int, ...] = (1, 1),
    paddings: tuple[int, ...] = (0, 0, 0, 0),
    out_stride: tuple[int, ...] = (1, 1),
) -> LoDArray:
    """Return each window of the images as a row (channels * kernel), from left to right and from top to bottom.

    paddings are up, left, down, right. Y's sizes are those of the original images, which X has reduced by out_stride.

    Raises:
        InputError: an image is larger than X allows, or Y has a different number of images.
    """
    up, left, down, right = paddings
    xp = array_module(x)
    padded = xp.pad(x, ((0, 0), (0, 0), (up, down), (left, right)))
    view = xp.lib.stride_tricks.sliding_window_view(padded, kernels, (2, 3))[
        :, :, :: strides[0], :: strides[1]
    ]
    windows = view.transpose(0, 2, 3, 1, 4, 5)
    count = len(x) * windows.shape[1] * windows.shape[2]
    rows = windows.reshape(count, x.shape[1] * kernels[0] * kernels[1])
    counts = [_windows(each, kernels, strides, paddings) for each in _real_sizes(x, real, out_stride)]
    offsets = np.cumsum([0, *(high * wide for high, wide in counts)])
    if real is not None:
        rows = rows[_taken(counts, windows.shape[1], windows.shape[2], x)]
    return LoDArray(rows, (offsets,))


@gradient("im2sequence", "X Y? Out@GRAD -> X@GRAD")
def im2sequence_grad(
    x: Array,
    real: Array | None,
    dout: Array,
    *,
    kernels: tuple[int, ...],
    strides: tuple[int, ...],
    paddings: tuple[int, ...],
    out_stride: tuple[int, ...],
) -> Array:
    """Return dX: for each pixel, the sum of the gradients of all windows that contain it."""
    up, left, down, right = paddings
    height, width = x.shape[2] + up + down, x.shape[3] + left + right
    high, wide = _windows(x.shape[2:], kernels, strides, paddings)
    if real is not None:
        counts = [_windows(each, kernels, strides, paddings) for each in _real_sizes(x, real, out_stride)]
        taken, dout_of_taken = _taken(counts, high, wide, x), dout
        dout = array_module(x).zeros((len(x) * high * wide, *dout.shape[1:]), dout.dtype)
        dout[taken] = dout_of_taken
    parts = dout.reshape(len(x), high, wide, x.shape[1], *kernels)
    whole = array_module(x).zeros((*x.shape[:2], height, width), x.dtype)
    for i, j in np.ndindex(*kernels):
        rows = slice(i, i + strides[0] * high, strides[0])
        columns = slice(j, j + strides[1] * wide, strides[1])
        whole[:, :, rows, columns] += parts[..., i, j].transpose(0, 3, 1, 2)
    return whole[:, :, up : height - down, left : width - right]


def _windows(
    size: tuple[int, ...], kernels: tuple[int, ...], strides: tuple[int, ...], paddings: tuple[int, ...]
) -> tuple[int, int]:
    """Return the number of windows in vertical and horizontal direction."""
    up, left, down, right = paddings
    high = (size[0] + up + down - kernels[0]) // strides[0] + 1
    return max(high, 0), max((size[1] + left + right - kernels[1]) // strides[1] + 1, 0)


def _real_sizes(x: Array, real: Array | None, out_stride: tuple[int, ...]) -> list[tuple[int, int]]:
    if real is None:
        return [x.shape[2:]] * len(x)
    found = [(-(-int(h) // out_stride[0]), -(-int(w) // out_stride[1])) for h, w in real.tolist()]
    bad = [(h, w) for h, w in found if not (0 < h <= x.shape[2] and 0 < w <= x.shape[3])]
    if bad or len(found) != len(x):
        raise InputError(
            f"expected {len(x)} image sizes from (1, 1) to {x.shape[2:]} after division by out_stride {out_stride}, "
            f"got {bad or len(found)}"
        )
    return found


def _taken(counts: list[tuple[int, int]], high: int, wide: int, like: Array) -> Array:
    """Return which of all (images * high * wide) rows are windows inside the real images."""
    grid = np.arange(high * wide).reshape(high, wide)
    parts = [grid[:h, :w].reshape(-1) + image * high * wide for image, (h, w) in enumerate(counts)]
    return at(np.concatenate([np.zeros(0, np.int64), *parts]), like)
