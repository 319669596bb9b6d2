# SPDX-License-Identifier: Apache-2.0
"""deformable_conv and deformable_psroi_pooling: convolution and pooling with learned sampling offsets.

deformable_conv also scales the samples by a mask (Zhu et al., Deformable ConvNets v2, 2019); deformable_conv_v1 does
not. Offsets are (vertical, horizontal) in pixels of the input. deformable_psroi_pooling averages regions over grids of
shifted cells (Dai et al., 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import Limit
from paddle.ops.base.errors import AttrError, ShapeError
from paddle.ops.base.registry import Spec, gradient, operator
from paddle.ops.base.shapes import agree
from paddle.ops.detection.bilinear import Points, points, sampled, scatter
from paddle.ops.detection.boxes import expect_boxes
from paddle.ops.detection.prior_box import rounded
from paddle.ops.detection.roi_align import images_of_regions
from paddle_node.contract.classes import NamedTuple

_CONV_ATTRS = {
    "strides": (1, 1),
    "paddings": (0, 0),
    "dilations": (1, 1),
    "groups": 1,
    "deformable_groups": 1,
    "im2col_step": 64,
}


def _infer_conv(x: Spec, offset: Spec, mask: Spec | None, filters: Spec, *, attrs: dict[str, Any]) -> Spec:
    groups, shared = attrs["groups"], attrs["deformable_groups"]
    if len(x.shape) != 4 or len(offset.shape) != 4 or len(filters.shape) != 4:
        raise ShapeError(
            f"expected Input and Offset (N, C, H, W) and Filter (M, C / groups, h, w), got {x.shape}, {offset.shape} "
            f"and {filters.shape}"
        )
    if not agree(x.shape[1], filters.shape[1] * groups) or filters.shape[0] % groups or x.shape[1] % shared:
        raise ShapeError(
            f"expected a multiple of {groups} filters of {x.shape[1]} / {groups} channels, and deformable_groups "
            f"that divide the channels; got Filter {filters.shape} and {shared}"
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
    return _infer_conv(x, offset, None, filters, attrs=attrs)


@operator("deformable_conv", "Input Offset Mask Filter -> Output", attrs=_CONV_ATTRS, infer=_infer_conv)
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
    kernel = _conv_by_group(to_host(filters), attrs)
    out = np.empty((len(x), len(filters), *offset.shape[2:]), x.dtype)
    for number in range(len(x)):
        _, _, columns = _window(x, offset, mask, filters, number, attrs)
        parts = columns.reshape(attrs["groups"], kernel.shape[2], -1)
        out[number] = (kernel @ parts).reshape(out.shape[1:])
    return from_host(out, x)


@operator("deformable_conv_v1", "Input Offset Filter -> Output", attrs=_CONV_ATTRS, infer=_infer_v1)
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
    kernel, arriving = _conv_by_group(to_host(filters), attrs), to_host(dout)
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


def _conv_by_group(filters: Array, attrs: dict[str, Any]) -> Array:
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


_POOLING_ATTRS = {
    "no_trans": bool,
    "spatial_scale": float,
    "output_dim": int,
    "group_size": Limit(tuple, length=2),
    "pooled_height": int,
    "pooled_width": int,
    "part_size": Limit(tuple, length=2),
    "sample_per_part": Limit(int, least=1),
    "trans_std": float,
}


class _Cells(NamedTuple):
    """The positions whose values the cells of one region average, for each class of shifts.

    Attributes:
        found: (..., classes, pooled_height, pooled_width, values) the positions.
        inside: whether each position counts.
        free: 1 where a shift moves the position down, and across; 0 at the border of the image.
        size: height and width of the region.
    """

    found: Points
    inside: Array
    free: tuple[Array, Array]
    size: tuple[float, float]


def _infer_pooling(x: Spec, rois: Spec, trans: Spec, *, attrs: dict[str, Any]) -> tuple[Spec, Spec]:
    expect_boxes(rois, "ROIs")
    group = attrs["group_size"]
    if len(x.shape) != 4 or not agree(x.shape[1], attrs["output_dim"] * group[0] * group[1]):
        raise ShapeError(
            f"expected Input (N, {attrs['output_dim']} x {group[0]} x {group[1]}, H, W), got {x.shape}"
        )
    shape = (rois.shape[0], attrs["output_dim"], attrs["pooled_height"], attrs["pooled_width"])
    return Spec(shape, x.dtype), Spec(shape, x.dtype)


@operator(
    "deformable_psroi_pooling",
    "Input ROIs+ Trans -> Output TopCount",
    attrs=_POOLING_ATTRS,
    infer=_infer_pooling,
)
def deformable_psroi_pooling(
    x: Array, rois: Any, trans: Array, *, attrs: dict[str, Any]
) -> tuple[Array, Array]:
    """Pool regions over shifted cells; return means (rois, output_dim, pooled_height, pooled_width) and their counts.

    Args:
        x: (N, output_dim × group_size, H, W); each group of grid cells has its own channels.
        rois: (rois, 4) left, top, right, bottom; sequence i contains the regions of image i.
        trans: (rois, 2 classes, part_size) shifts (across, down), multiplied by trans_std and by the region's size;
            ignored with no_trans. A class is output_dim / classes channels.
    """
    boxes, images = images_of_regions(x, rois)
    pixels, shifts = _by_group(to_host(x), attrs), to_host(trans)
    shape = (len(boxes), attrs["output_dim"], attrs["pooled_height"], attrs["pooled_width"])
    out, counts = np.zeros(shape, x.dtype), np.zeros(shape, x.dtype)
    channels = _channels(attrs, shifts)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        cells = _cells(box, shifts[number], x.shape, attrs)
        total = cells.inside.sum(axis=-1)
        counts[number] = total.repeat(channels, axis=0)
        for kind, own, row, column, plane in _planes(pixels[image], cells, channels, attrs):
            at = (kind, row, column)
            values = sampled(plane, cells.found.at[:, *at], cells.found.weight[:, *at] * cells.inside[at])
            out[number, own, row, column] = values.sum(axis=-1) / max(total[at], 1)
    return from_host(out, x), from_host(counts, x)


@gradient("deformable_psroi_pooling", "Input ROIs+ Trans TopCount Output@GRAD -> Input@GRAD Trans@GRAD")
def deformable_psroi_pooling_grad(
    x: Array, rois: Any, trans: Array, counts: Array, dout: Array, *, attrs: dict[str, Any]
) -> tuple[Array, Array]:
    """Return dInput, distributed to pixels by their weights, and dTrans, from the slopes of the values."""
    boxes, images = images_of_regions(x, rois)
    pixels, shifts, arriving = _by_group(to_host(x), attrs), to_host(trans), to_host(dout)
    dx, dtrans = np.zeros(x.shape, x.dtype), np.zeros(trans.shape, x.dtype)
    channels = _channels(attrs, shifts)
    dpixels = _by_group(dx, attrs)
    for number, (box, image) in enumerate(zip(boxes, images, strict=True)):
        cells = _cells(box, shifts[number], x.shape, attrs)
        total = cells.inside.sum(axis=-1)
        for kind, own, row, column, plane in _planes(pixels[image], cells, channels, attrs):
            at = (kind, row, column)
            found, inside = Points(*(each[:, *at] for each in cells.found)), cells.inside[at]
            share = arriving[number, own, row, column] / max(total[at], 1)
            paid = np.broadcast_to(share[:, None], (len(share), len(inside)))
            group = _group(row, column, attrs)
            target = dpixels[image, own, group[0], group[1]].reshape(len(share), -1)
            scatter(target, found.at, found.weight * inside, paid)
            dpixels[image, own, group[0], group[1]] = target.reshape(len(share), *x.shape[2:])
            if not attrs["no_trans"]:
                part = _part(row, column, attrs)
                for axis, change in ((1, found.by_row), (0, found.by_column)):
                    moved = sampled(plane, found.at, change * inside * cells.free[1 - axis][at])
                    size = cells.size[1 - axis] * attrs["trans_std"]
                    dtrans[number, 2 * kind + axis, *part] += (moved * paid).sum() * size
    return from_host(dx, x), from_host(dtrans, x)


def _by_group(pixels: Array, attrs: dict[str, Any]) -> Array:
    """Return a view (N, output_dim, group height, group width, H, W)."""
    return pixels.reshape(len(pixels), attrs["output_dim"], *attrs["group_size"], *pixels.shape[2:])


def _channels(attrs: dict[str, Any], shifts: Array) -> int:
    """Return the number of output channels that share a shift."""
    return int(attrs["output_dim"]) // _classes(attrs, shifts.shape[1])


def _classes(attrs: dict[str, Any], shifts: int) -> int:
    return 1 if attrs["no_trans"] else max(shifts // 2, 1)


def _group(row: int, column: int, attrs: dict[str, Any]) -> tuple[int, int]:
    """Return the position in the group grid of a pooling cell."""
    high, wide = attrs["group_size"]
    down, across = row * high // attrs["pooled_height"], column * wide // attrs["pooled_width"]
    return min(down, high - 1), min(across, wide - 1)


def _part(row: int, column: int, attrs: dict[str, Any]) -> tuple[int, int]:
    """Return the position of a cell's shift."""
    high, wide = attrs["part_size"]
    return row * high // attrs["pooled_height"], column * wide // attrs["pooled_width"]


def _planes(pixels: Array, cells: _Cells, channels: int, attrs: dict[str, Any]) -> Any:
    """Yield (class, channels, row, column, pixels (channels, H W)) for each class and cell."""
    for kind, row, column in np.ndindex(cells.inside.shape[:3]):
        own = slice(kind * channels, (kind + 1) * channels)
        group = _group(row, column, attrs)
        yield kind, own, row, column, pixels[own, group[0], group[1]].reshape(channels, -1)


def _cells(box: Array, shifts: Array, shape: tuple[int, ...], attrs: dict[str, Any]) -> _Cells:
    height, width = shape[2:]
    scale, count = attrs["spatial_scale"], attrs["sample_per_part"]
    grid = attrs["pooled_height"], attrs["pooled_width"]
    left, top, right, bottom = rounded(box)
    x, y = left * scale - 0.5, top * scale - 0.5
    size = max((bottom + 1) * scale - 0.5 - y, 0.1), max((right + 1) * scale - 0.5 - x, 0.1)
    moves = np.zeros((_classes(attrs, len(shifts)), 2, *grid))
    if not attrs["no_trans"]:
        for row, column in np.ndindex(*grid):
            part = _part(row, column, attrs)
            moves[:, :, row, column] = shifts[:, *part].reshape(-1, 2) * attrs["trans_std"]
    step = size[0] / grid[0], size[1] / grid[1]
    starts = np.arange(grid[0])[:, None] * step[0] + y + moves[:, 1] * size[0]
    begins = np.arange(grid[1]) * step[1] + x + moves[:, 0] * size[1]
    i, j = np.divmod(np.arange(count * count), count)
    rows = starts[..., None] + i * step[0] / count
    columns = begins[..., None] + j * step[1] / count
    inside = (rows >= -0.5) & (rows <= height - 0.5) & (columns >= -0.5) & (columns <= width - 0.5)
    free = (rows > 0) & (rows < height - 1), (columns > 0) & (columns < width - 1)
    found = points(rows.clip(0, height - 1), columns.clip(0, width - 1), height, width)
    return _Cells(found, inside, free, size)
