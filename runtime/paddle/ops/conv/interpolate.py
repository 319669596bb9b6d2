# SPDX-License-Identifier: Apache-2.0
"""Sampling of images at other positions: bilinear_interp, nearest_interp, affine_grid and grid_sampler.

bilinear_interp and nearest_interp resize images by the method in the operator's name; interp_method is ignored. The
output size is OutSize (2,); without it, the input's size times `scale`; and if `scale` is 0, (out_h, out_w).

affine_grid and grid_sampler sample an image on a transformed grid (spatial transformers, Jaderberg et al., 2015).
Positions in an image are (x, y) from -1 to 1, where the ends are the centers of the outermost pixels.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module, from_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import decided
from paddle.ops.shape.resampling import Matrix, applied, linear, nearest, taken_back

_ATTRS = {"out_h": 0, "out_w": 0, "scale": 0.0, "align_corners": True, "align_mode": 1}
_BILINEAR, _NEAREST = (
    {**_ATTRS, "interp_method": one_of(*methods)}
    for methods in (("bilinear", "nearest"), ("nearest", "bilinear"))
)


def _infer(x: Spec, size: Spec | None, *, out_h: int, out_w: int, scale: float) -> Spec:
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (N, C, H, W), got {x.shape}")
    if size is not None:
        return x._replace(shape=(*x.shape[:2], -1, -1))
    wanted = _size(x.shape, None, out_h, out_w, scale)
    if any(want < 1 and want != -1 for want in wanted) or (scale <= 0 and -1 in wanted):
        raise AttrError(
            f"out_h and out_w, or X's height and width times scale, must be positive, got {wanted[0]} and {wanted[1]}"
        )
    return x._replace(shape=(*x.shape[:2], *wanted))


@operator("bilinear_interp", "X OutSize? -> Out", attrs=_BILINEAR, infer=_infer)
def bilinear_interp(
    x: Array,
    size: Array | None,
    *,
    out_h: int,
    out_w: int,
    scale: float,
    align_corners: bool,
    align_mode: int,
) -> Array:
    """Resize images by bilinear interpolation between four input pixels; integers are rounded towards zero."""
    wanted = _size(x.shape, size, out_h, out_w, scale)
    exact = x if x.dtype.kind == "f" else x.astype(np.float64)
    return applied(exact, *_linear(x, wanted, align_corners, align_mode)).astype(x.dtype, copy=False)


@gradient("bilinear_interp", "X OutSize? Out@GRAD -> X@GRAD")
def bilinear_interp_grad(
    x: Array, size: Array | None, dout: Array, *, align_corners: bool, align_mode: int
) -> Array:
    """Return dX: distribute each pixel's gradient to the four pixels from which it was interpolated."""
    return taken_back(dout, *_linear(x, dout.shape[2:], align_corners, align_mode))


@operator("nearest_interp", "X OutSize? -> Out", attrs=_NEAREST, infer=_infer)
def nearest_interp(
    x: Array, size: Array | None, *, out_h: int, out_w: int, scale: float, align_corners: bool
) -> Array:
    """Resize images by nearest-neighbor interpolation: each pixel is copied from one input pixel."""
    return applied(x, *_nearest(x, _size(x.shape, size, out_h, out_w, scale), align_corners))


@gradient("nearest_interp", "X OutSize? Out@GRAD -> X@GRAD")
def nearest_interp_grad(x: Array, size: Array | None, dout: Array, *, align_corners: bool) -> Array:
    """Return dX: add each pixel's gradient to the pixel from which it was copied."""
    return taken_back(dout, *_nearest(x, dout.shape[2:], align_corners))


def _size(
    shape: tuple[int, ...], size: Array | None, out_h: int, out_w: int, scale: float
) -> tuple[int, int]:
    if size is not None:
        return int(size[0]), int(size[1])
    if scale <= 0:
        return out_h, out_w
    # In single precision, as in Paddle: 10 times 1.1 is 11.
    height, width = (int(np.float32(each) * np.float32(scale)) if each >= 0 else -1 for each in shape[2:])
    return height, width


def _linear(x: Array, wanted: tuple[int, ...], align_corners: bool, align_mode: int) -> tuple[Matrix, Matrix]:
    sizes = zip(x.shape[2:], wanted, strict=True)
    rows, columns = (linear(size, want, align_corners, align_mode) for size, want in sizes)
    return rows, columns


def _nearest(x: Array, wanted: tuple[int, ...], align_corners: bool) -> tuple[Matrix, Matrix]:
    sizes = zip(x.shape[2:], wanted, strict=True)
    rows, columns = (nearest(size, want, align_corners) for size, want in sizes)
    return rows, columns


Sizes = tuple[int, ...]


def _infer_affine(theta: Spec, given: Spec | None, *, output_shape: Sizes) -> Spec:
    if len(theta.shape) != 3 or theta.shape[1:] != (2, 3):
        raise ShapeError(f"expected Theta (N, 2, 3), got {theta.shape}")
    if given is None and len(output_shape) != 4:
        raise AttrError(f"output_shape: expected (N, C, H, W), got {output_shape}")
    return Spec((theta.shape[0], *(output_shape[2:] if given is None else (-1, -1)), 2), theta.dtype)


@operator("affine_grid", "Theta OutputShape? -> Output", infer=_infer_affine)
def affine_grid(theta: Array, given: Array | None, *, output_shape: Sizes = ()) -> Array:
    """Return the sampling grid (N, H, W, 2) of an image (N, C, H, W): position Theta (x, y, 1) for each pixel."""
    points = _points(theta, decided(given, (), output_shape))
    grid: Array = points.reshape(1, -1, 3) @ theta.swapaxes(1, 2)
    return grid.reshape(len(theta), *points.shape[:2], 2)


@gradient("affine_grid", "Theta OutputShape? Output@GRAD -> Theta@GRAD")
def affine_grid_grad(theta: Array, given: Array | None, dout: Array, *, output_shape: Sizes) -> Array:
    """Return dTheta = Σ dOutput (x, y, 1)ᵀ over the pixels."""
    points = _points(theta, decided(given, (), output_shape)).reshape(1, -1, 3)
    flat = dout.reshape(len(dout), points.shape[1], 2)
    return flat.swapaxes(1, 2) @ points


def _points(like: Array, sizes: Sizes) -> Array:
    """Return (H, W, 3): x, y and 1 of each pixel."""
    if len(sizes) != 4:
        raise AttrError(f"output_shape: expected (N, C, H, W), got {sizes}")
    y, x = np.meshgrid(*(np.linspace(-1, 1, size) for size in sizes[2:]), indexing="ij")
    return from_host(np.stack([x, y, np.ones_like(x)], axis=2).astype(like.dtype), like)


@operator("grid_sampler", "X Grid -> Output", infer="X(N, C, H, W), Grid(N, h, w, 2) -> X(N, C, h, w)")
def grid_sampler(x: Array, grid: Array) -> Array:
    """Sample X (N, C, H, W) at the positions in Grid (N, H', W', 2) by bilinear interpolation, with zeros outside X."""
    out = array_module(x).zeros((*x.shape[:2], *grid.shape[1:3]), x.dtype)
    for values, weight, *_ in _corners(x, grid):
        out += values * weight
    return out


@gradient("grid_sampler", "X Grid Output@GRAD -> X@GRAD Grid@GRAD")
def grid_sampler_grad(x: Array, grid: Array, dout: Array) -> tuple[Array, Array]:
    """Return dX: dOutput, distributed to the four pixels by weight; and dGrid, from the weights' slopes."""
    xp = array_module(x)
    dx, dgrid = xp.zeros_like(x), xp.zeros_like(grid)
    samples, channels = xp.arange(len(x))[:, None, None, None], xp.arange(x.shape[1])[None, :, None, None]
    for values, weight, slopes, (row, column, inside) in _corners(x, grid):
        xp.add.at(dx, (samples, channels, row, column), dout * (weight * inside))
        passed = (dout * values).sum(axis=1)
        for axis in range(2):
            dgrid[..., axis] += passed * slopes[axis] * x.dtype.type((x.shape[3 - axis] - 1) / 2)
    return dx, dgrid


def _corners(
    x: Array, grid: Array
) -> list[tuple[Array, Array, tuple[Array, Array], tuple[Array, Array, Array]]]:
    """Return, for each of the four pixels around a position: X, its weight, the weight's slopes, and its index."""
    xp, dtype = array_module(x), x.dtype
    height, width = x.shape[2:]
    places = [(grid[..., axis] + 1) * dtype.type((size - 1) / 2) for axis, size in enumerate((width, height))]
    firsts = [xp.floor(place) for place in places]
    shares = [place - first for place, first in zip(places, firsts, strict=True)]
    samples, channels = xp.arange(len(x))[:, None, None, None], xp.arange(x.shape[1])[None, :, None, None]
    found = []
    for down in range(2):
        for right in range(2):
            column, row = firsts[0] + right, firsts[1] + down
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            at = [xp.where(inside, each, 0).astype(np.int64)[:, None] for each in (row, column)]
            values = x[samples, channels, at[0], at[1]] * inside[:, None]
            across, along = (shares[0] if right else 1 - shares[0]), (shares[1] if down else 1 - shares[1])
            slopes = ((2 * right - 1) * along, (2 * down - 1) * across)
            found.append((values, (across * along)[:, None], slopes, (at[0], at[1], inside[:, None])))
    return found
