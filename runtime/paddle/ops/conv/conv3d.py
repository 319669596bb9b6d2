# SPDX-License-Identifier: Apache-2.0
"""conv3d and conv3d_transpose over volumes (N, C, D, H, W)."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.conv.volume import Cube, Sizes

_ATTRS = {"strides": (1, 1, 1), "paddings": (0, 0, 0), "groups": 1, "dilations": (1, 1, 1)}


def _infer(x: Spec, filters: Spec, *, strides: Sizes, paddings: Sizes, groups: int, dilations: Sizes) -> Spec:
    _check(x, filters)
    if x.shape[1] != filters.shape[1] * groups or filters.shape[0] % groups:
        raise ShapeError(f"Input {x.shape} does not fit Filter {filters.shape} with {groups} groups")
    cube = Cube(filters.shape[2:], strides, paddings, dilations)
    return Spec((x.shape[0], filters.shape[0], *cube.places(x.shape[2:])), x.dtype)


@operator("conv3d", "Input Filter -> Output", attrs=_ATTRS, infer=_infer)
def conv3d(
    x: Array, filters: Array, *, strides: Sizes, paddings: Sizes, groups: int, dilations: Sizes
) -> Array:
    """Return (N, F, D', H', W'); filters are (F, C/groups, kd, kh, kw)."""
    return _convolved(x, filters, Cube(filters.shape[2:], strides, paddings, dilations), groups)


@gradient("conv3d", "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD")
def conv3d_grad(
    x: Array, filters: Array, dout: Array, *, strides: Sizes, paddings: Sizes, groups: int, dilations: Sizes
) -> tuple[Array, Array]:
    """Gradients of the volumes and of the filters."""
    cube = Cube(filters.shape[2:], strides, paddings, dilations)
    return _volumes(dout, filters, cube, groups, x.shape[2:]), _filters(x, dout, filters, cube, groups)


def _infer_transpose(
    x: Spec,
    filters: Spec,
    *,
    output_size: Sizes,
    strides: Sizes,
    paddings: Sizes,
    groups: int,
    dilations: Sizes,
) -> Spec:
    _check(x, filters)
    if x.shape[1] != filters.shape[0] or filters.shape[0] % groups:
        raise ShapeError(f"Input {x.shape} does not fit Filter {filters.shape} with {groups} groups")
    cube = Cube(filters.shape[2:], strides, paddings, dilations)
    size = output_size or cube.grown(x.shape[2:])
    if -1 not in x.shape[2:] and cube.places(size) != x.shape[2:]:
        raise ShapeError(f"output_size {output_size} does not give volumes of {x.shape[2:]} under {cube}")
    return Spec((x.shape[0], filters.shape[1] * groups, *size), x.dtype)


@operator(
    "conv3d_transpose", "Input Filter -> Output", attrs={"output_size": (), **_ATTRS}, infer=_infer_transpose
)
def conv3d_transpose(
    x: Array,
    filters: Array,
    *,
    output_size: Sizes,
    strides: Sizes,
    paddings: Sizes,
    groups: int,
    dilations: Sizes,
) -> Array:
    """Return (N, F, D', H', W') of which conv3d makes volumes like the input; filters are (C, F/groups, kd, kh, kw)."""
    cube = Cube(filters.shape[2:], strides, paddings, dilations)
    return _volumes(x, filters, cube, groups, output_size or cube.grown(x.shape[2:]))


@gradient("conv3d_transpose", "Input Filter Output@GRAD -> Input@GRAD Filter@GRAD")
def conv3d_transpose_grad(
    x: Array, filters: Array, dout: Array, *, strides: Sizes, paddings: Sizes, groups: int, dilations: Sizes
) -> tuple[Array, Array]:
    """The volumes' gradient is a convolution of dOut."""
    cube = Cube(filters.shape[2:], strides, paddings, dilations)
    return _convolved(dout, filters, cube, groups), _filters(dout, x, filters, cube, groups)


def _convolved(x: Array, filters: Array, cube: Cube, groups: int) -> Array:
    xp, places = array_module(x), cube.places(x.shape[2:])
    out = xp.zeros((groups, filters.shape[0] // groups, len(x), *places), x.dtype)
    by_group = _by_group(filters, groups)
    for cell, part in cube.cells(cube.padded(x, places), places):
        for group, channels in enumerate(_parts(part, groups)):
            out[group] += xp.tensordot(by_group[(group, ..., *cell)], channels, axes=(1, 1))
    return xp.moveaxis(out.reshape(filters.shape[0], len(x), *places), 0, 1)


def _volumes(dout: Array, filters: Array, cube: Cube, groups: int, size: Sizes) -> Array:
    xp, places = array_module(dout), cube.places(size)
    dx = cube.padded(xp.zeros((len(dout), filters.shape[1] * groups, *size), dout.dtype), places)
    by_group = _by_group(filters, groups)
    for cell, part in cube.cells(dx, places):
        for group, (into, arriving) in enumerate(
            zip(_parts(part, groups), _parts(dout, groups), strict=True)
        ):
            into += xp.moveaxis(xp.tensordot(by_group[(group, ..., *cell)], arriving, axes=(0, 1)), 0, 1)
    return cube.unpadded(dx, size)


def _filters(x: Array, dout: Array, filters: Array, cube: Cube, groups: int) -> Array:
    xp, places = array_module(x), dout.shape[2:]
    found = xp.zeros_like(_by_group(filters, groups))
    for cell, part in cube.cells(cube.padded(x, places), places):
        for group, (given, arriving) in enumerate(
            zip(_parts(part, groups), _parts(dout, groups), strict=True)
        ):
            axes = (0, 2, 3, 4)
            found[(group, ..., *cell)] = xp.tensordot(arriving, given, axes=(axes, axes))
    return found.reshape(filters.shape)


def _by_group(filters: Array, groups: int) -> Array:
    return filters.reshape(groups, filters.shape[0] // groups, *filters.shape[1:])


def _parts(x: Array, groups: int) -> list[Any]:
    width = x.shape[1] // groups
    return [x[:, at * width : (at + 1) * width] for at in range(groups)]


def _check(x: Spec, filters: Spec) -> None:
    if len(x.shape) != 5 or len(filters.shape) != 5 or x.dtype != filters.dtype:
        raise ShapeError(
            f"expected Input (N, C, D, H, W) and Filter (F, C, kd, kh, kw) of one dtype, got {x.shape} {x.dtype} and "
            f"{filters.shape} {filters.dtype}"
        )
