# SPDX-License-Identifier: Apache-2.0
"""max_pool2d_with_index, max_pool3d_with_index: maximum pooling with positions; unpool: scatters values to positions.

Mask (N, C, *places) int32 numbers the pixels of an image row by row, without its padding.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.conv.pool import even_cells
from paddle.ops.conv.window import Sizes, cells, padded, window_of

_INT32 = np.dtype("int32")


def _attrs(sides: int) -> dict[str, object]:
    return {
        "ksize": tuple,
        "global_pooling": False,
        "adaptive": False,
        "strides": (1,) * sides,
        "paddings": (0,) * sides,
    }


def _shape_rule(sides: int) -> Callable[..., tuple[Spec, Spec]]:
    def infer(
        x: Spec, *, ksize: Sizes, global_pooling: bool, adaptive: bool, strides: Sizes, paddings: Sizes
    ) -> tuple[Spec, Spec]:
        if len(x.shape) != 2 + sides or len(ksize) != sides:
            raise ShapeError(
                f"expected X with {2 + sides} dimensions and ksize with {sides} numbers, got {x.shape} and {ksize}"
            )
        places = (1,) * sides if global_pooling else ksize
        if not global_pooling and not adaptive:
            places = window_of(ksize, strides, paddings, (1,) * sides).places(x.shape[2:])
        return x._replace(shape=(*x.shape[:2], *places)), Spec((*x.shape[:2], *places), _INT32)

    return infer


@operator("max_pool2d_with_index", "X -> Out Mask", attrs=_attrs(2), infer=_shape_rule(2))
@operator("max_pool3d_with_index", "X -> Out Mask", attrs=_attrs(3), infer=_shape_rule(3))
def max_pool_with_index(
    x: Array, *, ksize: Sizes, global_pooling: bool, adaptive: bool, strides: Sizes, paddings: Sizes
) -> tuple[Array, Array]:
    """Apply max pooling; return the maxima, and the position of each one's first occurrence, (N, C, *places) int32.

    If adaptive, ksize is the number of cells: they are evenly spaced and may overlap.
    """
    sides = x.ndim - 2
    if global_pooling:
        return _of_cells(x, (1,) * sides)
    if adaptive:
        return _of_cells(x, ksize)
    xp, window = array_module(x), window_of(ksize, strides, paddings, (1,) * sides)
    places = window.places(x.shape[2:])
    lowest = xp.finfo(x.dtype).min
    numbers = xp.arange(prod(x.shape[2:]), dtype=_INT32).reshape(1, 1, *x.shape[2:])
    full, full_numbers = padded(x, window, places, value=lowest), padded(numbers, window, places, value=-1)
    out = xp.full((*x.shape[:2], *places), lowest, x.dtype)
    mask = xp.full(out.shape, -1, _INT32)
    for (_, cell), (_, number) in zip(
        cells(full, window, places), cells(full_numbers, window, places), strict=True
    ):
        won = ((cell > out) | (mask < 0)) & (number >= 0)
        out, mask = xp.where(won, cell, out), xp.where(won, number, mask)
    return out, mask


@gradient("max_pool2d_with_index", "X Mask Out@GRAD -> X@GRAD")
@gradient("max_pool3d_with_index", "X Mask Out@GRAD -> X@GRAD")
def max_pool_with_index_grad(x: Array, mask: Array, dout: Array) -> Array:
    """Return dX: route dOut to the position of the maximum."""
    return _scattered(dout, mask, x.shape[2:])


def _of_cells(x: Array, counts: Sizes) -> tuple[Array, Array]:
    xp = array_module(x)
    out = xp.empty((*x.shape[:2], *counts), x.dtype)
    mask = xp.empty(out.shape, _INT32)
    numbers = xp.arange(prod(x.shape[2:]), dtype=_INT32).reshape(x.shape[2:])
    for place, cell in even_cells(x.shape[2:], counts):
        part = x[cell].reshape(*x.shape[:2], -1 if x.size else 1)
        best = part.argmax(axis=2)
        out[place] = xp.take_along_axis(part, best[..., None], axis=2)[..., 0]
        mask[place] = numbers[cell[2:]].reshape(-1)[best]
    return out, mask


def _scattered(values: Array, mask: Array, size: Sizes) -> Array:
    """Return images (N, C, *size) with the values added at the positions in the mask."""
    xp, area = array_module(values), prod(size)
    flat = xp.zeros((*values.shape[:2], area), values.dtype)
    rows, channels = xp.arange(len(values))[:, None, None], xp.arange(values.shape[1])[None, :, None]
    at = mask.reshape(*values.shape[:2], prod(mask.shape[2:]))
    kept = at >= 0
    xp.add.at(flat, (rows, channels, at * kept), values.reshape(at.shape) * kept)
    return flat.reshape(*values.shape[:2], *size)


def _infer_unpool(x: Spec, indices: Spec, *, ksize: Sizes, strides: Sizes, paddings: Sizes) -> Spec:
    if len(x.shape) != 4 or x.shape[1:] != indices.shape[1:]:
        raise ShapeError(
            f"expected X (N, C, H, W) and Indices of the same shape, got {x.shape} and {indices.shape}"
        )
    window = window_of(ksize, strides, paddings, (1, 1))
    return x._replace(shape=(*x.shape[:2], *window.grown(x.shape[2:])))


@operator(
    "unpool",
    "X Indices -> Out",
    attrs={
        "ksize": tuple,
        "strides": (1, 1),
        "paddings": (0, 0),
        "unpooling_type": one_of("max", default=str),
    },
    infer=_infer_unpool,
)
def unpool(x: Array, indices: Array, *, ksize: Sizes, strides: Sizes, paddings: Sizes) -> Array:
    """Undo max pooling: return images with each element of X at its position in Indices, and 0 elsewhere.

    The height of the result is (H - 1) stride - 2 padding + kernel.

    Raises:
        InputError: a position is outside the image.
    """
    xp = array_module(x)
    size = window_of(ksize, strides, paddings, (1, 1)).grown(x.shape[2:])
    flat = xp.zeros((*x.shape[:2], prod(size)), x.dtype)
    xp.put_along_axis(flat, _places(indices, prod(size)), x.reshape(*x.shape[:2], prod(x.shape[2:])), axis=2)
    return flat.reshape(*x.shape[:2], *size)


@gradient("unpool", "Indices Out@GRAD -> X@GRAD")
def unpool_grad(indices: Array, dout: Array) -> Array:
    """Return dX: the elements of dOut at the positions of X's elements."""
    flat = dout.reshape(*dout.shape[:2], prod(dout.shape[2:]))
    return (
        array_module(dout)
        .take_along_axis(flat, _places(indices, flat.shape[2]), axis=2)
        .reshape(indices.shape)
    )


def _places(indices: Array, area: int) -> Array:
    flat = indices.reshape(*indices.shape[:2], prod(indices.shape[2:]))
    if flat.size and not bool(((flat >= 0) & (flat < area)).all()):
        raise InputError(
            f"Indices: expected pixel numbers from 0 to {area - 1}, got {flat.min()} to {flat.max()}"
        )
    return flat
