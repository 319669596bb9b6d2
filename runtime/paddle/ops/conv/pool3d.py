# SPDX-License-Identifier: Apache-2.0
"""pool3d: the greatest value or the mean of each window over volumes (N, C, D, H, W)."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.conv.volume import Cube, Sizes

_ATTRS = {
    "pooling_type": str,
    "ksize": tuple,
    "global_pooling": False,
    "strides": (1, 1, 1),
    "paddings": (0, 0, 0),
    "exclusive": True,
    "ceil_mode": False,
}
_LOWEST = float("-inf")


def _infer(
    x: Spec,
    *,
    pooling_type: str,
    ksize: Sizes,
    global_pooling: bool,
    strides: Sizes,
    paddings: Sizes,
    ceil_mode: bool,
) -> Spec:
    if pooling_type not in ("max", "avg"):
        raise AttrError(f"pooling_type: expected 'max' or 'avg', got {pooling_type!r}")
    if len(x.shape) != 5:
        raise ShapeError(f"expected X (N, C, D, H, W), got {x.shape}")
    cube = _cube(x.shape, ksize, global_pooling, strides, paddings)
    places = (1, 1, 1) if global_pooling else cube.places(x.shape[2:], ceil_mode)
    return x._replace(shape=(*x.shape[:2], *places))


@operator("pool3d", "X -> Out", attrs=_ATTRS, infer=_infer)
def pool3d(
    x: Array,
    *,
    pooling_type: str,
    ksize: Sizes,
    global_pooling: bool,
    strides: Sizes,
    paddings: Sizes,
    exclusive: bool,
    ceil_mode: bool,
) -> Array:
    """Return (N, C, D', H', W'); padding never wins a maximum, and counts in a mean only if not exclusive.

    A window of nothing but padding gives zero.
    """
    cube = _cube(x.shape, ksize, global_pooling, strides, paddings)
    places = cube.places(x.shape[2:], ceil_mode)
    if pooling_type == "max":
        return _greatest(x, cube, places)
    return _total(x, cube, places) / _counts(x, cube, places, exclusive)


@gradient("pool3d", "X Out Out@GRAD -> X@GRAD")
def pool3d_grad(
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
) -> Array:
    """dOut goes to the first greatest of each window, or to all of it in equal parts."""
    xp, places = array_module(x), out.shape[2:]
    cube = _cube(x.shape, ksize, global_pooling, strides, paddings)
    dx = cube.padded(xp.zeros_like(x), places)
    if pooling_type == "avg":
        share = dout / _counts(x, cube, places, exclusive)
        for _, part in cube.cells(dx, places):
            part += share
        return cube.unpadded(dx, x.shape[2:])
    left = xp.ones(out.shape, bool)
    volume = cube.padded(x, places, _LOWEST)
    for (_, into), (_, given) in zip(cube.cells(dx, places), cube.cells(volume, places), strict=True):
        chosen = left & (given == out)
        into += dout * chosen
        left &= ~chosen
    return cube.unpadded(dx, x.shape[2:])


def _cube(x: Sizes, ksize: Sizes, global_pooling: bool, strides: Sizes, paddings: Sizes) -> Cube:
    if global_pooling:
        return Cube(tuple(max(size, 1) for size in x[2:]), (1, 1, 1), (0, 0, 0))
    return Cube(ksize, strides, paddings)


def _greatest(x: Array, cube: Cube, places: Sizes) -> Array:
    xp = array_module(x)
    out = xp.full((*x.shape[:2], *places), _LOWEST, x.dtype)
    for _, part in cube.cells(cube.padded(x, places, _LOWEST), places):
        xp.maximum(out, part, out=out)
    return xp.where(out == _LOWEST, x.dtype.type(0), out)


def _total(x: Array, cube: Cube, places: Sizes) -> Array:
    out = array_module(x).zeros((*x.shape[:2], *places), x.dtype)
    for _, part in cube.cells(cube.padded(x, places), places):
        out += part
    return out


def _counts(x: Array, cube: Cube, places: Sizes, exclusive: bool) -> Array:
    """Return how many cells of each window count, at least 1."""
    xp = array_module(x)
    if not exclusive:
        return x.dtype.type(cube.kernel[0] * cube.kernel[1] * cube.kernel[2])
    return xp.maximum(_total(xp.ones((1, 1, *x.shape[2:]), x.dtype), cube, places), 1)
