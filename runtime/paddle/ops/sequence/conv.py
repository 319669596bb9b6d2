# SPDX-License-Identifier: Apache-2.0
"""sequence_conv: rows with their neighbours, times a matrix, or not; row_conv: by number; im2sequence.

im2sequence: windows of images as rows of sequences, one sequence an image.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.lod import LoDArray, Offsets, sequences
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.segments import at, lengths, positions, scatter_sum
from paddle.ops.base.shapes import agree, same

_ATTRS = {"paddingTrainable": False, "contextLength": int, "contextStart": 0, "contextStride": 1}
_ATTRS_IM2SEQUENCE = {"kernels": tuple, "strides": (1, 1), "paddings": (0, 0, 0, 0)}


def _infer(x: Spec, padding: Spec | None, filters: Spec, *, contextLength: int, contextStride: int) -> Spec:
    _check(contextLength, contextStride)
    if len(x.shape) != 2 or not agree(filters.shape[0], contextLength * x.shape[1]):
        raise ShapeError(
            f"expected X (rows, D) and Filter (contextLength * D, filters), got {x.shape} and {filters.shape}"
        )
    return Spec((x.shape[0], filters.shape[1]), x.dtype, max(x.lod_level, 1))


@operator("sequence_conv", "X+ PaddingData? Filter -> Out+", attrs=_ATTRS, infer=_infer)
def sequence_conv(
    x: Any, padding: Array | None, filters: Array, *, contextLength: int, contextStart: int
) -> LoDArray:
    """Row t of Out = rows t + contextStart, ..., contextLength of them, side by side, times Filter.

    What lies before or behind the sequence is zero, or the rows of PaddingData if there are: first those for
    what lies before, then those for what lies behind.
    """
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    return LoDArray(_columns(data, padding, rows) @ filters, x.lod)


@gradient("sequence_conv", "X+ PaddingData? Filter Out@GRAD -> X@GRAD PaddingData@GRAD? Filter@GRAD")
def sequence_conv_grad(
    x: Any, padding: Array | None, filters: Array, dout: Array, *, contextLength: int, contextStart: int
) -> tuple[Array, Array | None, Array]:
    """Gradients of the matrix product, those of the columns added up where they came from."""
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    dfilters = _columns(data, padding, rows).T @ dout
    return *_brought_back(dout @ filters.T, rows, data, padding), dfilters


def _infer_context(x: Spec, padding: Spec | None, *, contextLength: int, contextStride: int) -> Spec:
    _check(contextLength, contextStride)
    return Spec((x.shape[0], contextLength * x.shape[1]), x.dtype, max(x.lod_level, 1))


@operator("sequence_context", "X+ PaddingData? -> Out+", attrs=_ATTRS, infer=_infer_context)
def sequence_context(x: Any, padding: Array | None, *, contextLength: int, contextStart: int) -> LoDArray:
    """Row t of Out = rows t + contextStart, ..., contextLength of them, side by side; see sequence_conv."""
    data, offsets = sequences(x, "X")
    rows = _window(offsets, contextStart, contextLength, padding is not None)
    return LoDArray(_columns(data, padding, rows), x.lod)


@gradient("sequence_context", "X+ PaddingData? Out@GRAD -> X@GRAD PaddingData@GRAD?")
def sequence_context_grad(
    x: Any, padding: Array | None, dout: Array, *, contextLength: int, contextStart: int
) -> tuple[Array, Array | None]:
    """Each part's gradient goes back to the row it was."""
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


def _check(length: int, stride: int) -> None:
    if stride != 1 or length < 1:
        raise AttrError(f"expected contextStride 1 and contextLength over 0, got {stride} and {length}")


def _window(offsets: Offsets, start: int, length: int, is_padded: bool) -> Offsets:
    """Return (rows, length) row numbers in the table of X's rows followed by those of the padding."""
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


def _infer_row_conv(x: Spec, filters: Spec) -> Spec:
    same(x.shape[1:], filters.shape[1:], "X and Filter, but for the rows,")
    return x


@operator("row_conv", "X+ Filter -> Out+", infer=_infer_row_conv)
def row_conv(x: Any, filters: Array) -> LoDArray:
    """Out[t] = sum over j of Filter[j] X[t + j], as far as the sequence goes."""
    data, offsets = sequences(x, "X")
    out = array_module(data).zeros_like(data)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        out[here] += filters[ahead] * data[there]
    return LoDArray(out, x.lod)


@gradient("row_conv", "X+ Filter Out@GRAD -> X@GRAD Filter@GRAD")
def row_conv_grad(x: Any, filters: Array, dout: Array) -> tuple[Array, Array]:
    """dX[t + j] = sum of Filter[j] dOut[t]; dFilter[j] = sum of X[t + j] dOut[t]."""
    data, offsets = sequences(x, "X")
    xp = array_module(data)
    dx, dfilters = xp.zeros_like(data), xp.zeros_like(filters)
    for ahead, (here, there) in enumerate(_pairs(offsets, len(filters), data)):
        dx[there] += filters[ahead] * dout[here]
        dfilters[ahead] = (data[there] * dout[here]).sum(axis=0)
    return dx, dfilters


def _pairs(offsets: Offsets, width: int, like: Array) -> list[tuple[Array, Array]]:
    """Return for each j which rows have one j rows further on in their sequence, and which that is."""
    left = np.repeat(lengths(offsets), lengths(offsets)) - positions(offsets)
    rows = [np.flatnonzero(left > ahead) for ahead in range(width)]
    return [(at(here, like), at(here + ahead, like)) for ahead, here in enumerate(rows)]


def _infer_im2sequence(x: Spec, *, kernels: tuple[int, ...]) -> Spec:
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (images, channels, height, width), got {x.shape}")
    return Spec((-1, x.shape[1] * kernels[0] * kernels[1]), x.dtype, 1)


@operator("im2sequence", "X -> Out+", attrs=_ATTRS_IM2SEQUENCE, infer=_infer_im2sequence)
def im2sequence(
    x: Array, *, kernels: tuple[int, ...], strides: tuple[int, ...], paddings: tuple[int, ...]
) -> LoDArray:
    """Return a row (channels * kernel) for each window, from left to right and from top to bottom.

    paddings are up, left, down, right.
    """
    up, left, down, right = paddings
    xp = array_module(x)
    padded = xp.pad(x, ((0, 0), (0, 0), (up, down), (left, right)))
    view = xp.lib.stride_tricks.sliding_window_view(padded, kernels, (2, 3))[
        :, :, :: strides[0], :: strides[1]
    ]
    windows = view.transpose(0, 2, 3, 1, 4, 5)
    per_image = windows.shape[1] * windows.shape[2]
    rows = windows.reshape(len(x) * per_image, x.shape[1] * kernels[0] * kernels[1])
    return LoDArray(rows, (np.arange(len(x) + 1) * per_image,))


@gradient("im2sequence", "X Out@GRAD -> X@GRAD")
def im2sequence_grad(
    x: Array, dout: Array, *, kernels: tuple[int, ...], strides: tuple[int, ...], paddings: tuple[int, ...]
) -> Array:
    """Add up the windows' gradients where they lay."""
    up, left, down, right = paddings
    height, width = x.shape[2] + up + down, x.shape[3] + left + right
    high, wide = (height - kernels[0]) // strides[0] + 1, (width - kernels[1]) // strides[1] + 1
    parts = dout.reshape(len(x), high, wide, x.shape[1], *kernels)
    whole = array_module(x).zeros((*x.shape[:2], height, width), x.dtype)
    for i, j in np.ndindex(*kernels):
        rows = slice(i, i + strides[0] * high, strides[0])
        columns = slice(j, j + strides[1] * wide, strides[1])
        whole[:, :, rows, columns] += parts[..., i, j].transpose(0, 3, 1, 2)
    inner: Array = whole[:, :, up : height - down, left : width - right]
    return inner
