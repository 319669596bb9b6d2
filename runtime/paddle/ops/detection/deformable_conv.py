# SPDX-License-Identifier: Apache-2.0
"""deformable_conv: convolution with learned sampling offsets and a mask that scales the samples.

Source: Zhu et al., Deformable ConvNets v2, 2019.

deformable_conv_v1 has no mask. Offsets are (vertical, horizontal) in pixels of the input.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree
from paddle.ops.detection.bilinear import Points, points, sampled, scatter

_ATTRS = {
    "strides": (1, 1),
    "paddings": (0, 0),
    "dilations": (1, 1),
    "groups": 1,
    "deformable_groups": 1,
    "im2col_step": 64,
}


def _infer(x: Spec, offset: Spec, mask: Spec | None, filters: Spec, *, attrs: dict[str, Any]) -> Spec:
    groups, shared = attrs["groups"], attrs["deformable_groups"]
    if len(x.shape) != 4 or len(offset.shape) != 4 or len(filters.shape) != 4:
        raise ShapeError(
            f"expected Input and Offset (N, C, H, W) and Filter (M, C / groups, h, w), got {x.shape}, {offset.shape} "
            f"and {filters.shape}"
        )
    if not agree(x.shape[1], filters.shape[1] * groups) or filters.shape[0] % groups or x.shape[1] % shared:
        raise ShapeError(
            f"expected filters of {x.shape[1]} / {groups} channels, a multiple of {groups} filters, and channels "
            f"divisible by {shared} deformable_groups; got Filter {filters.shape}"
        )
    places = shared * filters.shape[2] * filters.shape[3]
    masked = places if mask is None else mask.shape[1]
    if not agree(offset.shape[1], 2 * places) or not agree(masked, places):
        raise ShapeError(
            f"expected {2 * places} channels of Offset and {places} of Mask, got {offset.shape[1]} and {masked}"
        )
    if any(each <= 0 for each in (*attrs["strides"], *attrs["dilations"], attrs["im2col_step"])):
        raise AttrError(
            f"strides, dilations and im2col_step must be positive, got {attrs['strides']}, {attrs['dilations']} and "
            f"{attrs['im2col_step']}"
        )
    return Spec((x.shape[0], filters.shape[0], *_sizes(x.shape, filters.shape, attrs)), x.dtype)


def _infer_v1(x: Spec, offset: Spec, filters: Spec, *, attrs: dict[str, Any]) -> Spec:
    return _infer(x, offset, None, filters, attrs=attrs)


@operator("deformable_conv", "Input Offset Mask Filter -> Output", attrs=_ATTRS, infer=_infer)
def deformable_conv(
    x: Array, offset: Array, mask: Array | None, filters: Array, *, attrs: dict[str, Any]
) -> Array:
    """Return the deformable convolution of X, sampled at the offsets, (N, M, H', W').

    Args:
        x: (N, C, H, W), surrounded by zeros.
        offset: (N, deformable_groups h w 2, H', W') offset of each position of the window, for the channels of a
            deformable group.
        mask: (N, deformable_groups h w, H', W'), or None for 1.
        filters: (M, C / groups, h, w).
    """
    kernel = _by_group(to_host(filters), attrs)
    out = np.empty((len(x), len(filters), *offset.shape[2:]), x.dtype)
    for number in range(len(x)):
        _, _, columns = _window(x, offset, mask, filters, number, attrs)
        parts = columns.reshape(attrs["groups"], kernel.shape[2], -1)
        out[number] = (kernel @ parts).reshape(out.shape[1:])
    return from_host(out, x)


@operator("deformable_conv_v1", "Input Offset Filter -> Output", attrs=_ATTRS, infer=_infer_v1)
def deformable_conv_v1(x: Array, offset: Array, filters: Array, *, attrs: dict[str, Any]) -> Array:
    """Return the result of `deformable_conv` with a mask of 1."""
    return deformable_conv(x, offset, None, filters, attrs=attrs)


@gradient(
    "deformable_conv",
    "Input Offset Mask Filter Output@GRAD -> Input@GRAD Offset@GRAD Mask@GRAD Filter@GRAD",
)
def deformable_conv_grad(
    x: Array, offset: Array, mask: Array | None, filters: Array, dout: Array, *, attrs: dict[str, Any]
) -> tuple[Array, Array, Array, Array]:
    """Return dInput, dOffset (from the slopes of sampled values), dMask (from the values) and dFilter.

    dInput and dFilter are those of a convolution.
    """
    kernel, arriving = _by_group(to_host(filters), attrs), to_host(dout)
    dx, doffset = np.zeros(x.shape, x.dtype), np.zeros(offset.shape, x.dtype)
    dmask = np.zeros((len(x), offset.shape[1] // 2, *offset.shape[2:]), x.dtype)
    dkernel = np.zeros(kernel.shape, x.dtype)
    for number in range(len(x)):
        found, weight, columns = _window(x, offset, mask, filters, number, attrs)
        above = arriving[number].reshape(attrs["groups"], kernel.shape[1], -1)
        dkernel += above @ columns.reshape(attrs["groups"], kernel.shape[2], -1).swapaxes(1, 2)
        dcolumns = (kernel.swapaxes(1, 2) @ above).reshape(columns.shape)
        images = to_host(x)[number].reshape(len(weight), -1, x.shape[2] * x.shape[3])
        dimages = dx[number].reshape(images.shape)
        shifts = doffset[number].reshape(len(weight), weight.shape[1], 2, *weight.shape[2:])
        masks = dmask[number].reshape(weight.shape)
        for group, image in enumerate(images):
            at, here = found.at[:, group], dcolumns.reshape(len(weight), -1, *weight.shape[1:])[group]
            masks[group] = (here * sampled(image, at, found.weight[:, group])).sum(axis=0)
            paid = here * weight[group]
            scatter(dimages[group], at, found.weight[:, group], paid)
            shifts[group, :, 0] = (paid * sampled(image, at, found.by_row[:, group])).sum(axis=0)
            shifts[group, :, 1] = (paid * sampled(image, at, found.by_column[:, group])).sum(axis=0)
    made = (dx, doffset, dmask, dkernel.reshape(filters.shape))
    first, second, third, fourth = (from_host(each, x) for each in made)
    return first, second, third, fourth


@gradient("deformable_conv_v1", "Input Offset Filter Output@GRAD -> Input@GRAD Offset@GRAD Filter@GRAD")
def deformable_conv_v1_grad(
    x: Array, offset: Array, filters: Array, dout: Array, *, attrs: dict[str, Any]
) -> tuple[Array, Array, Array]:
    """Return dInput, dOffset and dFilter of `deformable_conv` with a mask of 1."""
    dx, doffset, _, dfilters = deformable_conv_grad(x, offset, None, filters, dout, attrs=attrs)
    return dx, doffset, dfilters


def _sizes(x: tuple[int, ...], filters: tuple[int, ...], attrs: dict[str, Any]) -> tuple[int, int]:
    height, width = (
        -1 if size < 0 else (size + 2 * pad - (dilation * (window - 1) + 1)) // stride + 1
        for size, window, pad, dilation, stride in zip(
            x[2:], filters[2:], attrs["paddings"], attrs["dilations"], attrs["strides"], strict=True
        )
    )
    return height, width


def _by_group(filters: Array, attrs: dict[str, Any]) -> Array:
    """Return (groups, M / groups, C / groups h w)."""
    groups = attrs["groups"]
    return filters.reshape(groups, len(filters) // groups, -1)


def _window(
    x: Array, offset: Array, mask: Array | None, filters: Array, number: int, attrs: dict[str, Any]
) -> tuple[Points, Array, Array]:
    """Return for one image the source positions, the mask (D, h w, H', W'), and the values (C, h w, H', W')."""
    shared, (height, width), (rows, columns) = (
        attrs["deformable_groups"],
        filters.shape[2:],
        offset.shape[2:],
    )
    shift = to_host(offset)[number].reshape(shared, height * width, 2, rows, columns)
    i, j = np.divmod(np.arange(height * width), width)
    (down, across), (high, wide), (tall, broad) = attrs["strides"], attrs["paddings"], attrs["dilations"]
    y = (np.arange(rows) * down - high)[:, None] + (i * tall)[:, None, None] + shift[:, :, 0]
    z = np.arange(columns) * across - wide + (j * broad)[:, None, None] + shift[:, :, 1]
    found = points(y, z, *x.shape[2:])
    weight = np.ones(y.shape, x.dtype) if mask is None else to_host(mask)[number].reshape(y.shape)
    images = to_host(x)[number].reshape(shared, -1, x.shape[2] * x.shape[3])
    values = [
        sampled(image, found.at[:, group], found.weight[:, group]) * weight[group]
        for group, image in enumerate(images)
    ]
    return found, weight, np.concatenate(values).astype(x.dtype)
