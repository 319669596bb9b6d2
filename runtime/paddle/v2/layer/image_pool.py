# SPDX-License-Identifier: Apache-2.0
"""Pooling of images (N, C, H, W), and their windows as rows of sequences."""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2 import pooling
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import geometry, pair, source_image
from paddle.v2.layer.output import LayerAttr, LayerOutput, build
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["block_expand", "img_pool"]


def img_pool(
    input: LayerOutput,
    pool_size: int,
    name: str | None = None,
    num_channels: int | None = None,
    pool_type: pooling.BasePool | None = None,
    stride: int = 1,
    padding: int = 0,
    layer_attr: LayerAttr = None,
    pool_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    ceil_mode: bool = True,
    exclude_mode: bool | None = None,
) -> LayerOutput:
    """Declare pooling, Max by default; the output size is rounded up, averages leave padding out."""
    kind, exclusive = _pool_kind(pool_type, exclude_mode)
    image = geometry(input, num_channels, "img_pool")
    kernel = pair(pool_size, pool_size_y, "img_pool: pool_size", least=1)
    steps = pair(stride, stride_y, "img_pool: stride", least=1)
    pads = pair(padding, padding_y, "img_pool: padding", least=0)
    width = _pooled(image.width, kernel[0], pads[0], steps[0], ceil_mode)
    height = _pooled(image.height, kernel[1], pads[1], steps[1], ceil_mode)
    if height < 1 or width < 1:
        raise UsageError(
            f"img_pool: a {kernel[0]}x{kernel[1]} window does not fit {image.height}x{image.width} pixels"
        )
    attrs: Attrs = {
        **image.attrs,
        "pooling_type": kind,
        "ksize": kernel[::-1],
        "strides": steps[::-1],
        "paddings": pads[::-1],
        "ceil_mode": ceil_mode,
        "exclusive": exclusive,
    }
    result = (image.channels, height, width)
    size = image.channels * height * width
    return build(
        "img_pool", [input], size, name, prefix="pool", layer_attr=layer_attr, image=result, attrs=attrs
    )


@emits("img_pool", together=None)
def _img_pool(emitter: Emitter, config: LayerConfig) -> Variable:
    keys = ("pooling_type", "ksize", "strides", "paddings", "ceil_mode", "exclusive")
    return emitter.unary("pool2d", source_image(emitter, config), **{key: config.attrs[key] for key in keys})


def block_expand(
    input: LayerOutput,
    block_x: int = 0,
    block_y: int = 0,
    stride_x: int = 0,
    stride_y: int = 0,
    padding_x: int = 0,
    padding_y: int = 0,
    num_channels: int | None = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the windows of each image as the rows of a sequence, from left to right and from top to bottom.

    A row has the window's numbers as (channels, block_y, block_x).
    """
    channels = num_channels or input.num_filters
    if not channels:
        raise UsageError(f"block_expand: input {input.name!r} is not an image: give num_channels")
    block = pair((block_x, block_y), None, "block_expand: block", least=1)
    steps = pair((stride_x, stride_y), None, "block_expand: stride", least=1)
    pads = pair((padding_x, padding_y), None, "block_expand: padding", least=0)
    image = geometry(input, channels, "block_expand")
    attrs: Attrs = {**image.attrs, "kernels": block[::-1], "strides": steps[::-1], "paddings": pads[::-1] * 2}
    size, prefix = image.channels * block[0] * block[1], "block_expand_layer"
    return build("block_expand", [input], size, name, prefix=prefix, layer_attr=layer_attr, attrs=attrs)


@emits("block_expand")
def _block_expand(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {key: config.attrs[key] for key in ("kernels", "strides", "paddings")}
    return emitter.unary("im2sequence", source_image(emitter, config), **attrs)


def _pooled(size: int, kernel: int, padding: int, stride: int, ceil_mode: bool) -> int:
    reach = size + 2 * padding - kernel
    return (-(-reach // stride) if ceil_mode else reach // stride) + 1


def _pool_kind(pool_type: pooling.BasePool | None, exclude_mode: bool | None) -> tuple[str, bool]:
    kind = pooling.Max() if pool_type is None else pool_type
    if isinstance(kind, (pooling.Max, pooling.CudnnMax)):
        return "max", True
    if isinstance(kind, pooling.CudnnAvgInclPad):
        return "avg", False
    if isinstance(kind, pooling.CudnnAvg) or (isinstance(kind, pooling.Avg) and kind.strategy == "average"):
        return "avg", exclude_mode is not False
    raise UsageError(f"img_pool takes Max, Avg or their Cudnn forms, got {pool_type!r}")
