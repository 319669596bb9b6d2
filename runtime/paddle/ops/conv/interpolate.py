# SPDX-License-Identifier: Apache-2.0
"""bilinear_interp, nearest_interp: images of another size."""

from __future__ import annotations

from paddle.backend import Array
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.shape.resampling import Matrix, applied, linear, nearest, taken_back

_ATTRS = {"out_h": 0, "out_w": 0, "align_corners": True, "align_mode": 1}


def _infer(x: Spec, size: Spec | None, *, out_h: int, out_w: int) -> Spec:
    if len(x.shape) != 4:
        raise ShapeError(f"expected X (N, C, H, W), got {x.shape}")
    if size is not None:
        return x._replace(shape=(*x.shape[:2], -1, -1))
    if out_h < 1 or out_w < 1:
        raise AttrError(f"out_h and out_w must be positive, got {out_h} and {out_w}")
    return x._replace(shape=(*x.shape[:2], out_h, out_w))


@operator("bilinear_interp", "X OutSize? -> Out", attrs=_ATTRS, infer=_infer)
def bilinear_interp(
    x: Array, size: Array | None, *, out_h: int, out_w: int, align_corners: bool, align_mode: int
) -> Array:
    """Return images whose pixels lie between four of the input; OutSize (2,) goes before out_h and out_w."""
    return applied(x, *_linear(x, _size(size, out_h, out_w), align_corners, align_mode))


@gradient("bilinear_interp", "X OutSize? Out@GRAD -> X@GRAD")
def bilinear_interp_grad(
    x: Array, size: Array | None, dout: Array, *, align_corners: bool, align_mode: int
) -> Array:
    """Each pixel's gradient goes to the four it was made of."""
    return taken_back(dout, *_linear(x, dout.shape[2:], align_corners, align_mode))


@operator("nearest_interp", "X OutSize? -> Out", attrs=_ATTRS, infer=_infer)
def nearest_interp(x: Array, size: Array | None, *, out_h: int, out_w: int, align_corners: bool) -> Array:
    """Return images whose pixels are each one of the input."""
    return applied(x, *_nearest(x, _size(size, out_h, out_w), align_corners))


@gradient("nearest_interp", "X OutSize? Out@GRAD -> X@GRAD")
def nearest_interp_grad(x: Array, size: Array | None, dout: Array, *, align_corners: bool) -> Array:
    """Each pixel's gradient goes to the one it was."""
    return taken_back(dout, *_nearest(x, dout.shape[2:], align_corners))


def _size(size: Array | None, out_h: int, out_w: int) -> tuple[int, int]:
    return (out_h, out_w) if size is None else (int(size[0]), int(size[1]))


def _linear(x: Array, wanted: tuple[int, ...], align_corners: bool, align_mode: int) -> tuple[Matrix, Matrix]:
    sizes = zip(x.shape[2:], wanted, strict=True)
    rows, columns = (linear(size, want, align_corners, align_mode) for size, want in sizes)
    return rows, columns


def _nearest(x: Array, wanted: tuple[int, ...], align_corners: bool) -> tuple[Matrix, Matrix]:
    sizes = zip(x.shape[2:], wanted, strict=True)
    rows, columns = (nearest(size, want, align_corners) for size, want in sizes)
    return rows, columns
