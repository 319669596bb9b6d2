# SPDX-License-Identifier: Apache-2.0
"""pad2d: more rows and columns around images: of one value, mirrored, or those of the edge."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.shape.spread_matrix import Matrix, applied, padding, taken_back

Sizes = tuple[int, ...]
_ATTRS = {"paddings": (0, 0, 0, 0), "mode": "constant", "pad_value": 0.0, "data_format": "NCHW"}
_MODES = ("constant", "reflect", "edge")


def _infer(x: Spec, *, paddings: Sizes, mode: str, data_format: str) -> Spec:
    if len(x.shape) != 4 or data_format not in ("NCHW", "NHWC"):
        raise ShapeError(f"expected X (N, C, H, W) or (N, H, W, C), got {x.shape} as {data_format}")
    if len(paddings) != 4 or min(paddings) < 0 or mode not in _MODES:
        raise AttrError(
            f"expected paddings (top, bottom, left, right) and one of {_MODES}, got {paddings} {mode!r}"
        )
    at = 2 if data_format == "NCHW" else 1
    sides = zip(x.shape[at : at + 2], _sums(paddings), strict=True)
    grown = [size if size < 0 else size + more for size, more in sides]
    return x._replace(shape=(*x.shape[:at], *grown, *x.shape[at + 2 :]))


@operator("pad2d", "X -> Out", attrs=_ATTRS, infer=_infer)
def pad2d(x: Array, *, paddings: Sizes, mode: str, pad_value: float, data_format: str) -> Array:
    """Return images with rows above and below, columns left and right."""
    if mode == "constant":
        widths = (paddings[:2], paddings[2:])
        around = ((0, 0), (0, 0), *widths) if data_format == "NCHW" else ((0, 0), *widths, (0, 0))
        return array_module(x).pad(x, around, constant_values=pad_value)
    images = _channels_first(x, data_format)
    return _restored(applied(images, *_matrices(images.shape, paddings, mode)), data_format)


@gradient("pad2d", "X Out@GRAD -> X@GRAD")
def pad2d_grad(x: Array, dout: Array, *, paddings: Sizes, mode: str, data_format: str) -> Array:
    """dOut, with what went to the border brought back to where it came from."""
    images = _channels_first(x, data_format)
    matrices = _matrices(images.shape, paddings, mode)
    return _restored(taken_back(_channels_first(dout, data_format), *matrices), data_format)


def _matrices(images: Sizes, paddings: Sizes, mode: str) -> tuple[Matrix, Matrix]:
    top, bottom, left, right = paddings
    return padding(images[2], top, bottom, mode), padding(images[3], left, right, mode)


def _sums(paddings: Sizes) -> Sizes:
    return paddings[0] + paddings[1], paddings[2] + paddings[3]


def _channels_first(x: Array, data_format: str) -> Array:
    return x if data_format == "NCHW" else array_module(x).moveaxis(x, 3, 1)


def _restored(x: Array, data_format: str) -> Array:
    return x if data_format == "NCHW" else array_module(x).moveaxis(x, 1, 3)
