# SPDX-License-Identifier: Apache-2.0
"""crop and slice: a part of X."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import axis_of

Sizes = tuple[int, ...]


def _infer_crop(x: Spec, y: Spec | None, *, offsets: Sizes, shape: Sizes) -> Spec:
    wanted = y.shape if y is not None else shape
    if len(wanted) != len(x.shape) or len(offsets) != len(x.shape):
        raise AttrError(
            f"crop: X {x.shape} needs offsets and a shape of as many sizes, got {offsets} and {wanted}"
        )
    for size, offset, part in zip(x.shape, offsets, wanted, strict=True):
        if offset < 0 or (size >= 0 and part >= 0 and offset + part > size):
            raise ShapeError(f"crop: {wanted} at {offsets} is not inside of X {x.shape}")
    return x._replace(shape=tuple(wanted))


@operator("crop", "X Y? -> Out", attrs={"offsets": tuple, "shape": ()}, infer=_infer_crop)
def crop(x: Array, y: Array | None, *, offsets: Sizes, shape: Sizes) -> Array:
    """Return the part of X at the offsets, of Y's shape or of the given one (-1: all that is left)."""
    return x[_window(x.shape, offsets, y.shape if y is not None else shape)]


@gradient("crop", "X Y? Out@GRAD -> X@GRAD")
def crop_grad(x: Array, y: Array | None, dout: Array, *, offsets: Sizes, shape: Sizes) -> Array:
    """dOut with zeros around it."""
    dx = array_module(x).zeros(x.shape, x.dtype)
    dx[_window(x.shape, offsets, dout.shape)] = dout
    return dx


def _infer_slice(x: Spec, *, axes: Sizes, starts: Sizes, ends: Sizes, decrease_axis: Sizes) -> Spec:
    if not len(axes) == len(starts) == len(ends):
        raise AttrError(f"axes, starts and ends must be as many, got {axes}, {starts}, {ends}")
    sizes = list(x.shape)
    for axis, start, end in zip(axes, starts, ends, strict=True):
        at = axis_of(axis, len(sizes))
        sizes[at] = -1 if sizes[at] < 0 else len(range(*slice(start, end).indices(sizes[at])))
    return x._replace(shape=_decreased(tuple(sizes), decrease_axis))


@operator(
    "slice",
    "Input -> Out",
    attrs={"axes": tuple, "starts": tuple, "ends": tuple, "decrease_axis": ()},
    infer=_infer_slice,
)
def slice_(x: Array, *, axes: Sizes, starts: Sizes, ends: Sizes, decrease_axis: Sizes) -> Array:
    """Return starts[i]:ends[i] of axis axes[i], negative numbers counted from the end, as a view."""
    part = x[_slices(x.ndim, axes, starts, ends)]
    return part.reshape(_decreased(part.shape, decrease_axis)) if decrease_axis else part


@gradient("slice", "Input Out@GRAD -> Input@GRAD")
def slice_grad(x: Array, dout: Array, *, axes: Sizes, starts: Sizes, ends: Sizes) -> Array:
    """dOut with zeros around it."""
    dx = array_module(x).zeros(x.shape, x.dtype)
    part = dx[_slices(x.ndim, axes, starts, ends)]
    part[...] = dout.reshape(part.shape)
    return dx


def _window(x: Sizes, offsets: Sizes, shape: Sizes) -> tuple[slice, ...]:
    parts = zip(x, offsets, shape, strict=True)
    return tuple(slice(offset, size if part < 0 else offset + part) for size, offset, part in parts)


def _slices(rank: int, axes: Sizes, starts: Sizes, ends: Sizes) -> tuple[slice, ...]:
    slices = [slice(None)] * rank
    for axis, start, end in zip(axes, starts, ends, strict=True):
        slices[axis] = slice(start, end)
    return tuple(slices)


def _decreased(shape: Sizes, decrease_axis: Sizes) -> Sizes:
    if not decrease_axis:
        return shape
    return tuple(size for axis, size in enumerate(shape) if axis not in decrease_axis) or (1,)
