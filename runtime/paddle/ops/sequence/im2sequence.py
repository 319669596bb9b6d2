# SPDX-License-Identifier: Apache-2.0
"""im2sequence: windows of images as rows of sequences, one sequence an image."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.lod import LoDArray
from paddle.ops.base.registry import Spec, gradient, operator

_ATTRS = {"kernels": tuple, "strides": (1, 1), "paddings": (0, 0, 0, 0)}


def _infer(x: Spec, *, kernels: tuple[int, ...]) -> Spec:
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (images, channels, height, width), got {x.shape}")
    return Spec((-1, x.shape[1] * kernels[0] * kernels[1]), x.dtype, 1)


@operator("im2sequence", "X -> Out+", attrs=_ATTRS, infer=_infer)
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
