# SPDX-License-Identifier: Apache-2.0
"""pad and pad2d: pad X by one value, by reflection, or by repeating its edge.

pad_constant_like: Y padded at the end of each dimension to the shape of X.

The tensor Paddings of pad2d takes precedence over its attribute.
"""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.shapes import decided
from paddle.ops.shape.resampling import Matrix, applied, padding, taken_back

Sizes = tuple[int, ...]
_MODES = ("constant", "reflect", "edge")


def _infer_pad(x: Spec, *, paddings: Sizes) -> Spec:
    if len(paddings) != 2 * len(x.shape) or any(size < 0 for size in paddings):
        raise AttrError(f"paddings: expected (before, after) for each size of X {x.shape}, got {paddings}")
    return _grown(x, paddings)


@operator("pad", "X -> Out", attrs={"paddings": tuple}, infer=_infer_pad)
def pad(x: Array, *, paddings: Sizes, pad_value: float = 0.0) -> Array:
    """Pad X along each dimension i: paddings[2i] values before it, and paddings[2i + 1] after it."""
    return array_module(x).pad(x, _pairs(paddings), constant_values=pad_value)


@gradient("pad", "Out@GRAD -> X@GRAD")
def pad_grad(dout: Array, *, paddings: Sizes) -> Array:
    """Return dX: dOut without the padding."""
    ends = zip(dout.shape, _pairs(paddings), strict=True)
    return dout[tuple(slice(before, size - after) for size, (before, after) in ends)]


def _infer_pad2d(x: Spec, given: Spec | None, *, paddings: Sizes, mode: str, data_format: str) -> Spec:
    if len(x.shape) != 4 or data_format not in ("NCHW", "NHWC"):
        raise ShapeError(f"expected X (N, C, H, W) or (N, H, W, C), got {x.shape} as {data_format}")
    if given is None:
        _check_sides(paddings, mode)
        return _grown(x, _of_all(paddings, data_format))
    _check_sides((0, 0, 0, 0), mode)
    images = (2, 3) if data_format == "NCHW" else (1, 2)
    return x._replace(shape=tuple(-1 if at in images else size for at, size in enumerate(x.shape)))


def _check_sides(paddings: Sizes, mode: str) -> None:
    if len(paddings) != 4 or min(paddings) < 0 or mode not in _MODES:
        raise AttrError(
            f"expected four non-negative paddings (top, bottom, left, right) and one of the modes {_MODES}, "
            f"got {paddings} and {mode!r}"
        )


@operator(
    "pad2d",
    "X Paddings? -> Out",
    attrs={"paddings": (0, 0, 0, 0), "mode": "constant", "pad_value": 0.0, "data_format": "NCHW"},
    infer=_infer_pad2d,
)
def pad2d(
    x: Array, given: Array | None, *, paddings: Sizes, mode: str, pad_value: float, data_format: str
) -> Array:
    """Pad images above, below, left and right: by one value, by reflection, or by repeating the edge."""
    paddings = decided(given, (), paddings)
    _check_sides(paddings, mode)
    if mode == "constant":
        return pad(x, paddings=_of_all(paddings, data_format), pad_value=pad_value)
    images = _channels_first(x, data_format)
    return _restored(applied(images, *_matrices(images.shape, paddings, mode)), data_format)


@gradient("pad2d", "X Paddings? Out@GRAD -> X@GRAD")
def pad2d_grad(
    x: Array, given: Array | None, dout: Array, *, paddings: Sizes, mode: str, data_format: str
) -> Array:
    """Return dX: the inner part of dOut, plus the gradients of the padding at the pixels from which it was copied."""
    paddings = decided(given, (), paddings)
    if mode == "constant":
        return pad_grad(dout, paddings=_of_all(paddings, data_format))
    images = _channels_first(x, data_format)
    matrices = _matrices(images.shape, paddings, mode)
    return _restored(taken_back(_channels_first(dout, data_format), *matrices), data_format)


def _pairs(paddings: Sizes) -> tuple[Sizes, ...]:
    return tuple(zip(paddings[::2], paddings[1::2], strict=True))


def _grown(x: Spec, paddings: Sizes) -> Spec:
    ends = zip(x.shape, _pairs(paddings), strict=True)
    return x._replace(
        shape=tuple(-1 if size < 0 else before + size + after for size, (before, after) in ends)
    )


def _of_all(paddings: Sizes, data_format: str) -> Sizes:
    """Return the paddings of all four dimensions, as `pad` takes them, from those of height and width."""
    return (0, 0, 0, 0, *paddings) if data_format == "NCHW" else (0, 0, *paddings, 0, 0)


def _matrices(images: Sizes, paddings: Sizes, mode: str) -> tuple[Matrix, Matrix]:
    top, bottom, left, right = paddings
    return padding(images[2], top, bottom, mode), padding(images[3], left, right, mode)


def _channels_first(x: Array, data_format: str) -> Array:
    return x if data_format == "NCHW" else array_module(x).moveaxis(x, 3, 1)


def _restored(x: Array, data_format: str) -> Array:
    return x if data_format == "NCHW" else array_module(x).moveaxis(x, 1, 3)


linear("pad", "pad2d")


def _infer(x: Spec, y: Spec) -> Spec:
    if len(x.shape) != len(y.shape) or any(0 <= x < y for x, y in zip(x.shape, y.shape, strict=True)):
        raise ShapeError(
            f"Y {y.shape} must have the same rank as X {x.shape} and must not exceed it in any dimension"
        )
    return y._replace(shape=x.shape)


@operator("pad_constant_like", "X Y -> Out", infer=_infer, shares_lod=False)
def pad_constant_like(x: Array, y: Array, *, pad_value: float = 0.0) -> Array:
    """Pad Y with pad_value at the end of each dimension to the shape of X."""
    behind = [grown - size for grown, size in zip(x.shape, y.shape, strict=True)]
    return pad(y, paddings=tuple(size for each in behind for size in (0, each)), pad_value=pad_value)


@gradient("pad_constant_like", "Y Out@GRAD -> Y@GRAD")
def pad_constant_like_grad(y: Array, dout: Array) -> Array:
    """Return dY: the part of dOut at the positions of Y."""
    return dout[tuple(slice(size) for size in y.shape)]
