# SPDX-License-Identifier: Apache-2.0
"""bilinear_interp, nearest_interp: resize images by interpolation.

The operator's name determines the method; interp_method is ignored.

The output size is OutSize (2,); without it, the input's size times `scale`; and if `scale` is 0, (out_h, out_w).
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
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
