# SPDX-License-Identifier: Apache-2.0
"""crop and slice: a part of X; tensors may give its position and take precedence over the attributes.

random_crop: crops each sample at a random position.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from paddle.backend import Array, array_module, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.second import linear
from paddle.ops.base.shapes import axis_of, decided, keeps_rows

Sizes = tuple[int, ...]


def _infer_crop(x: Spec, y: Spec | None, given: Spec | None, *, offsets: Sizes, shape: Sizes) -> Spec:
    wanted = y.shape if y is not None else shape
    _check_crop(x.shape, wanted, offsets if given is None else (0,) * len(x.shape))
    return x._replace(shape=tuple(wanted))


def _check_crop(x: Sizes, wanted: Sizes, offsets: Sizes) -> None:
    if len(wanted) != len(x) or len(offsets) != len(x):
        raise AttrError(
            f"crop: expected {len(x)} offsets and a shape of {len(x)} sizes, as X {x} has, got {offsets} and {wanted}"
        )
    for size, offset, part in zip(x, offsets, wanted, strict=True):
        if offset < 0 or (size >= 0 and part >= 0 and offset + part > size):
            raise ShapeError(f"crop: expected a region inside X {x}, got {wanted} at {offsets}")


@operator("crop", "X Y? Offsets? -> Out", infer=_infer_crop)
def crop(x: Array, y: Array | None, given: Array | None, *, offsets: Sizes = (), shape: Sizes = ()) -> Array:
    """Crop X: return the part at the offsets, of Y's shape or of the given one (-1: up to the end)."""
    at, wanted = decided(given, (), offsets), y.shape if y is not None else shape
    _check_crop(x.shape, wanted, at)
    return x[_window(x.shape, at, wanted)]


@gradient("crop", "X Y? Offsets? Out@GRAD -> X@GRAD")
def crop_grad(x: Array, _: Array | None, given: Array | None, dout: Array, *, offsets: Sizes) -> Array:
    """Return dX: dOut padded with zeros to the shape of X."""
    dx = array_module(x).zeros(x.shape, x.dtype)
    dx[_window(x.shape, decided(given, (), offsets), dout.shape)] = dout
    return dx


def _infer_slice(
    x: Spec,
    start: Spec | None,
    end: Spec | None,
    start_parts: list[Spec],
    end_parts: list[Spec],
    *,
    axes: Sizes,
    starts: Sizes,
    ends: Sizes,
    infer_flags: Sizes,
    decrease_axis: Sizes,
) -> Spec:
    open_ = start is not None or end is not None or bool(start_parts or end_parts)
    known = infer_flags if open_ and infer_flags else (-1 if open_ else 1,) * len(axes)
    begins = starts if len(starts) or not open_ else (0,) * len(axes)
    stops = ends if len(ends) or not open_ else (0,) * len(axes)
    if not len(axes) == len(begins) == len(stops) == len(known):
        raise AttrError(f"axes, starts and ends must have the same length, got {axes}, {starts}, {ends}")
    sizes = list(x.shape)
    for axis, first, last, flag in zip(axes, begins, stops, known, strict=True):
        at = axis_of(axis, len(sizes))
        is_known = sizes[at] >= 0 and flag >= 0
        sizes[at] = len(range(*slice(first, last).indices(sizes[at]))) if is_known else -1
    return x._replace(shape=_decreased(tuple(sizes), decrease_axis))


@operator(
    "slice",
    "Input StartsTensor? EndsTensor? StartsTensorList*? EndsTensorList*? -> Out",
    attrs={"axes": tuple, "starts": tuple, "ends": tuple, "infer_flags": ()},
    infer=_infer_slice,
    shares_lod=keeps_rows("axes"),
)
def slice_(
    x: Array,
    start: Array | None,
    end: Array | None,
    start_parts: list[Array],
    end_parts: list[Array],
    *,
    axes: Sizes,
    starts: Sizes,
    ends: Sizes,
    decrease_axis: Sizes = (),
) -> Array:
    """Return a view of the range starts[i]:ends[i] of each axis axes[i]; negative numbers count from the end.

    infer_flags is -1 for each axis with a start or end given by a tensor, and 1 for the others.
    """
    starts, ends = decided(start, start_parts, starts), decided(end, end_parts, ends)
    part = x[_slices(x.ndim, axes, starts, ends)]
    return part.reshape(_decreased(part.shape, decrease_axis)) if decrease_axis else part


@gradient(
    "slice", "Input StartsTensor? EndsTensor? StartsTensorList*? EndsTensorList*? Out@GRAD -> Input@GRAD"
)
def slice_grad(
    x: Array,
    start: Array | None,
    end: Array | None,
    start_parts: list[Array],
    end_parts: list[Array],
    dout: Array,
    *,
    axes: Sizes,
    starts: Sizes,
    ends: Sizes,
) -> Array:
    """Return dX: dOut padded with zeros to the shape of X."""
    starts, ends = decided(start, start_parts, starts), decided(end, end_parts, ends)
    dx = array_module(x).zeros(x.shape, x.dtype)
    part = dx[_slices(x.ndim, axes, starts, ends)]
    part[...] = dout.reshape(part.shape)
    return dx


def _window(x: Sizes, offsets: Sizes, shape: Sizes) -> tuple[slice, ...]:
    parts = zip(x, offsets, shape, strict=True)
    return tuple(slice(offset, size if part < 0 else offset + part) for size, offset, part in parts)


def _slices(rank: int, axes: Sizes, starts: Sizes, ends: Sizes) -> tuple[slice, ...]:
    if not len(axes) == len(starts) == len(ends):
        raise AttrError(f"axes, starts and ends must have the same length, got {axes}, {starts}, {ends}")
    slices = [slice(None)] * rank
    for axis, start, end in zip(axes, starts, ends, strict=True):
        slices[axis] = slice(start, end)
    return tuple(slices)


def _decreased(shape: Sizes, decrease_axis: Sizes) -> Sizes:
    if not decrease_axis:
        return shape
    return tuple(size for axis, size in enumerate(shape) if axis not in decrease_axis) or (1,)


linear("slice", "crop")


_INT64 = np.dtype("int64")
_BELOW = 2**31 - 1


def _infer(x: Spec, seed: Spec | None, *, shape: tuple[int, ...]) -> tuple[Spec, Spec]:
    around = x.shape[len(x.shape) - len(shape) :]
    if len(shape) > len(x.shape) or any(
        0 <= size < wanted for size, wanted in zip(around, shape, strict=True)
    ):
        raise ShapeError(f"expected a shape that fits into X {x.shape}, got {shape}")
    return x._replace(shape=(*x.shape[: len(x.shape) - len(shape)], *shape)), Spec((1,), _INT64)


@operator("random_crop", "X Seed? -> Out SeedOut~", attrs={"shape": tuple}, infer=_infer, shares_lod=False)
def random_crop(
    x: Array, seed: Array | None, *, shape: tuple[int, ...], startup_seed: int = 0, runs: Iterator[int]
) -> tuple[Array, Array]:
    """Return crops (..., *shape) of X (..., *larger), each at its own position, and the next seed (1,) int64.

    Positions are drawn with Seed (1,) or, without Seed, with startup_seed and the number of the run.
    """
    numbers = (startup_seed, next(runs)) if seed is None else (int(to_host(seed).reshape(-1)[0]),)
    drawn = np.random.default_rng([number % _BELOW for number in numbers])
    leading = x.ndim - len(shape)
    samples = x.reshape(prod(x.shape[:leading]), *x.shape[leading:])
    room = [size - wanted + 1 for size, wanted in zip(x.shape[leading:], shape, strict=True)]
    firsts = drawn.integers(0, room, (len(samples), len(shape)))
    index = [np.arange(len(samples)).reshape(-1, *(1,) * len(shape))]
    for axis, wanted in enumerate(shape):
        places = firsts[:, axis, None] + np.arange(wanted)
        index.append(places.reshape(-1, *(wanted if at == axis else 1 for at in range(len(shape)))))
    out = samples[tuple(from_host(each, x) for each in index)].reshape(*x.shape[:leading], *shape)
    return out, from_host(drawn.integers(1, _BELOW, 1, _INT64), x)
