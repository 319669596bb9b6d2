# SPDX-License-Identifier: Apache-2.0
"""Pooling layers: img_pool, img_pool3d, spp (spatial pyramid pooling) and roi_pool (regions of interest)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from paddle.graph import Variable
from paddle.v2 import pooling
from paddle.v2.errors import UsageError
from paddle.v2.layer.convolution import source_volume, triple, volume_of
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import Geometry, geometry, made_of_image, pair, source_image
from paddle.v2.layer.output import LayerOutput, pooling_of, require_layer
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["img_pool", "img_pool3d", "roi_pool", "spp"]

_KEYS = ("pooling_type", "ksize", "strides", "paddings", "ceil_mode", "exclusive")


@declares(
    "input, pool_size, name=None, num_channels=None, pool_type=None, stride=1, padding=0, layer_attr=None, "
    "pool_size_y=None, stride_y=None, padding_y=None, ceil_mode=True, exclude_mode=None",
    prefix="pool",
)
def img_pool(
    input: LayerOutput,
    pool_size: int,
    num_channels: int | None,
    pool_type: pooling.BasePoolingType | None,
    stride: int,
    padding: int,
    pool_size_y: int | None,
    stride_y: int | None,
    padding_y: int | None,
    ceil_mode: bool,
    exclude_mode: bool | None,
) -> Made:
    """Declare pooling of images, Max by default; output sizes are rounded up, and averages exclude padding."""
    kind, exclusive = _pool_kind(pool_type, "img_pool", exclude_mode)
    image = geometry(input, num_channels, "img_pool")
    kernel = pair(pool_size, pool_size_y, "img_pool: pool_size", least=1)
    steps = pair(stride, stride_y, "img_pool: stride", least=1)
    pads = pair(padding, padding_y, "img_pool: padding", least=0)
    width = _pooled(image.width, kernel[0], pads[0], steps[0], ceil_mode)
    height = _pooled(image.height, kernel[1], pads[1], steps[1], ceil_mode)
    if height < 1 or width < 1:
        raise UsageError(
            f"img_pool: expected a window that fits an image of {image.height}x{image.width} pixels with its "
            f"padding, got {kernel[0]}x{kernel[1]}"
        )
    attrs: Attrs = {
        "pooling_type": kind,
        "ksize": kernel[::-1],
        "strides": steps[::-1],
        "paddings": pads[::-1],
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
    }
    return made_of_image(input, image, Geometry(image.channels, height, width), attrs)


@emits("img_pool", together=None)
def _img_pool(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.unary("pool2d", source_image(emitter, config), **{key: config.attrs[key] for key in _KEYS})


@declares(
    "input, pool_size, name=None, num_channels=None, pool_type=None, stride=1, padding=0, layer_attr=None, "
    "pool_size_y=None, stride_y=None, padding_y=None, pool_size_z=None, stride_z=None, padding_z=None, "
    "ceil_mode=True",
    prefix="pool3d",
)
def img_pool3d(
    input: LayerOutput,
    pool_size: int | Sequence[int],
    num_channels: int | None,
    pool_type: pooling.BasePoolingType | None,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    pool_size_y: int | None,
    stride_y: int | None,
    padding_y: int | None,
    pool_size_z: int | None,
    stride_z: int | None,
    padding_z: int | None,
    ceil_mode: bool,
) -> Made:
    """Declare pooling of volumes, Max by default; sizes are (x, y, z) or one number, output sizes are rounded up."""
    kind, exclusive = _pool_kind(pool_type, "img_pool3d")
    channels, *inside = volume_of(input, num_channels, "img_pool3d")
    given = (
        (pool_size, pool_size_y, pool_size_z),
        (stride, stride_y, stride_z),
        (padding, padding_y, padding_z),
    )
    kernel, steps, pads = (
        triple(_along(*each), f"img_pool3d: {what}", least=least)
        for each, (what, least) in zip(given, (("pool_size", 1), ("stride", 1), ("padding", 0)), strict=True)
    )
    depth, height, width = sizes = [
        _pooled(size, window, pad, step, ceil_mode)
        for size, window, pad, step in zip(inside, kernel, pads, steps, strict=True)
    ]
    if min(sizes) < 1:
        raise UsageError(
            f"img_pool3d: expected a window that fits volumes of {tuple(inside)} cells with their padding, got "
            f"{kernel}"
        )
    attrs: Attrs = {
        "pooling_type": kind,
        "ksize": kernel,
        "strides": steps,
        "paddings": pads,
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
        "channels": channels,
        "sizes": tuple(inside),
        "depth": depth,
    }
    return Made([input], channels * math.prod(sizes), attrs, image=(channels, height, width))


@emits("img_pool3d", together=None)
def _img_pool3d(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {key: config.attrs[key] for key in _KEYS}
    value = emitter.unary("pool3d", source_volume(emitter, config), **attrs)
    return emitter.reshape(value, [-1, config.size])


@declares("input, name=None, num_channels=None, pool_type=None, pyramid_height=None, layer_attr=None")
def spp(
    input: LayerOutput,
    num_channels: int | None,
    pool_type: pooling.BasePoolingType | None,
    pyramid_height: int | None,
) -> Made:
    """Declare spatial pyramid pooling (He et al., 2014): 1, 4, 16, ... cells over the image in one row; Max by default.

    A row has channels * (4^pyramid_height - 1) / 3 numbers.
    """
    kind, _ = _pool_kind(pool_type, "spp")
    image = geometry(input, num_channels, "spp")
    if not pyramid_height or pyramid_height < 1:
        raise UsageError(f"spp: pyramid_height must be at least 1, got {pyramid_height!r}")
    for level in range(pyramid_height):
        if any(pad >= kernel for side in image[1:] for kernel, pad in [_cell(side, 2**level)]):
            raise UsageError(
                f"spp: {image.height}x{image.width} pixels cannot be divided into "
                f"{2**level}x{2**level} cells, because some would be outside the image. Give a "
                f"pyramid_height of at most {level}, or a larger image"
            )
    size = image.channels * (4**pyramid_height - 1) // 3
    return Made([input], size, {**image.attrs, "pooling_type": kind, "height": pyramid_height})


@emits("spp", together=None)
def _spp(emitter: Emitter, config: LayerConfig) -> Variable:
    image, attrs = source_image(emitter, config), config.attrs
    inside = [int(attrs[key]) for key in ("in_height", "in_width")]  # type: ignore[arg-type]
    parts = []
    for level in range(int(attrs["height"])):  # type: ignore[arg-type]
        cells = 2**level
        kernel, pads = zip(*(_cell(size, cells) for size in inside), strict=True)
        pooled = emitter.unary(
            "pool2d",
            image,
            pooling_type=attrs["pooling_type"],
            ksize=kernel,
            strides=kernel,
            paddings=pads,
            exclusive=True,
        )
        parts.append(emitter.reshape(pooled, [-1, int(attrs["channels"]) * cells**2]))  # type: ignore[arg-type]
    return emitter.op("concat", {"X": parts}, {"axis": 1})


@declares("input, rois, pooled_width, pooled_height, spatial_scale, num_channels=None, name=None")
def roi_pool(
    input: LayerOutput,
    rois: LayerOutput,
    pooled_width: int,
    pooled_height: int,
    spatial_scale: float,
    num_channels: int | None,
) -> Made:
    """Declare region-of-interest pooling: the maxima over a grid of cells in each region; one row per region.

    Args:
        input: images.
        rois: rows that start with the image's index in the batch and the inclusive left, top, right and bottom.
        pooled_width: the number of cells in a row of the grid.
        pooled_height: the number of cells in a column of the grid.
        spatial_scale: the number of pixels of `input` per unit of `rois`.
        num_channels: the number of channels of the images.
    """
    image = geometry(input, num_channels, "roi_pool")
    require_layer(rois, "roi_pool")
    if rois.size < 5:
        raise UsageError(f"roi_pool: rois need 5 columns, but layer {rois.name!r} has {rois.size}")
    width, height = pair((pooled_width, pooled_height), None, "roi_pool: pooled size", least=1)
    attrs: Attrs = {**image.attrs, "spatial_scale": float(spatial_scale)}
    return Made([input, rois], image.channels * height * width, attrs, image=(image.channels, height, width))


@emits("roi_pool")
def _roi_pool(emitter: Emitter, config: LayerConfig) -> Variable:
    rows = emitter.rows(config.inputs[1].layer)
    inputs = {
        "X": source_image(emitter, config),
        "ROIs": emitter.columns(rows, 1, 5),
        "Images": emitter.columns(rows, 0, 1),
    }
    attrs = {
        "spatial_scale": config.attrs["spatial_scale"],
        "pooled_height": config.height,
        "pooled_width": config.width,
    }
    return emitter.ops("roi_pool", inputs, attrs, ["Out", "Argmax"])[0]


def _cell(size: int, cells: int) -> tuple[int, int]:
    """Return the size of a cell in pixels, and by how many pixels the first one begins before the image."""
    kernel = -(-size // cells)
    return kernel, (kernel * cells - size + 1) // 2


def _along(x: int | Sequence[int], y: int | None, z: int | None) -> int | Sequence[int]:
    if isinstance(x, Sequence):
        return x
    return (x, x if y is None else y, x if z is None else z)


def _pooled(size: int, kernel: int, padding: int, stride: int, ceil_mode: bool) -> int:
    reach = size + 2 * padding - kernel
    return (-(-reach // stride) if ceil_mode else reach // stride) + 1


def _pool_kind(
    pool_type: pooling.BasePoolingType | None, who: str, exclude_mode: bool | None = None
) -> tuple[str, bool]:
    kind = pooling_of(pool_type, f"{who}: pool_type")
    if isinstance(kind, (pooling.Max, pooling.MaxWithMask, pooling.CudnnMax)):
        return "max", True
    if isinstance(kind, pooling.CudnnAvgInclPad):
        return "avg", False
    if isinstance(kind, pooling.CudnnAvg) or (isinstance(kind, pooling.Avg) and kind.strategy == "average"):
        return "avg", exclude_mode is not False
    raise UsageError(f"{who} takes Max, Avg or their Cudnn forms, got {pool_type!r}")
