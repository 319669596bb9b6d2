# SPDX-License-Identifier: Apache-2.0
"""Image layers: convolution, pooling, normalisation, maxout, padding, cropping, windows. Images are (N, C, H, W)."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

from paddle.graph import Variable
from paddle.v2 import pooling
from paddle.v2.data_type import whole_number
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import LayerOutput, Weight, WeightAttr, require_layer, require_size, weight_attr
from paddle.v2.model import Attrs, LayerConfig

__all__ = [
    "block_expand", "crop", "img_cmrnorm", "img_conv", "img_pool", "maxout", "pad", "scale_sub_region",
]  # fmt: skip


class Geometry(NamedTuple):
    """Channels, height and width of an image."""

    channels: int
    height: int
    width: int

    @property
    def attrs(self) -> dict[str, int]:
        """What a layer over it stores, for `source_image`."""
        return {"channels": self.channels, "in_height": self.height, "in_width": self.width}


def geometry(layer: LayerOutput, channels: int | None, who: str) -> Geometry:
    """What a layer looks like as an image; one that says neither height nor width must be square."""
    require_layer(layer, who)
    count = channels or layer.num_filters
    if not count:
        raise UsageError(f"{who}: give num_channels, input {layer.name!r} is not an image")
    cells = layer.size // count
    side = math.isqrt(cells)
    if not (layer.height or layer.width) and count * side * side != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is not a square image of {count} channels; give its "
            "data layer height and width"
        )
    height = layer.height or side
    width = layer.width or (cells // height if height else 0)
    if count * height * width != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is not an image of {count} channels and "
            f"{height}x{width} pixels"
        )
    return Geometry(count, height, width)


def made_of_image(input: LayerOutput, image: Geometry, result: Geometry, attrs: Attrs) -> Made:
    """An image made of another one; both sizes and what the operator needs."""
    return Made([input], math.prod(result), {**image.attrs, **attrs}, image=result)


def source_image(emitter: Emitter, config: LayerConfig) -> Variable:
    """The first input as the image that its `Geometry.attrs` say."""
    sizes = (int(config.attrs[key]) for key in ("channels", "in_height", "in_width"))  # type: ignore[arg-type]
    return emitter.image(config.inputs[0].layer, *sizes)


def pair(x: int | tuple[int, int], y: int | None, what: str, *, least: int) -> tuple[int, int]:
    """A size along x and along y: two numbers in `x`, or `x` and `y`, or `x` for both.

    Raises:
        UsageError: one is no whole number or below `least`; the message begins with `what`.
    """
    sizes = x if isinstance(x, (tuple, list)) else (x, x if y is None else y)
    if len(sizes) != 2:
        raise UsageError(f"{what}: expected one number or an (x, y) pair, got {sizes!r}")
    found = whole_number(sizes[0], what), whole_number(sizes[1], what)
    if min(found) < least:
        raise UsageError(f"{what} must be at least {least}, got {found}")
    return found


@declares(
    "input, filter_size, num_filters, name=None, num_channels=None, act=None, groups=1, stride=1, padding=0, "
    "dilation=1, bias_attr=None, param_attr=None, shared_biases=True, layer_attr=None, filter_size_y=None, "
    "stride_y=None, padding_y=None, dilation_y=None, trans=False, layer_type=None",
    prefix="conv",
    default_act="relu",
    has_bias=True,
)
def img_conv(
    input: LayerOutput,
    filter_size: int | tuple[int, int],
    num_filters: int,
    num_channels: int | None,
    groups: int,
    stride: int | tuple[int, int],
    padding: int | tuple[int, int],
    dilation: int | tuple[int, int],
    param_attr: WeightAttr,
    shared_biases: bool,
    filter_size_y: int | None,
    stride_y: int | None,
    padding_y: int | None,
    dilation_y: int | None,
    trans: bool,
    layer_type: str | None,
) -> Made:
    """Declare a convolution (cross-correlation); the default activation is Relu.

    A weight without ``initial_*`` starts as N(0, sqrt(2 / (filter_size^2 * channels))). Sizes are (x, y) pairs or one
    number. Unlike the original, ``param_attr`` is never changed, so it can be given to several layers.
    """
    if trans or layer_type in ("exconvt", "cudnn_convt"):
        raise NotAvailableError("img_conv(trans=True) is not available yet")
    image = geometry(input, num_channels, "img_conv")
    fx, fy = pair(filter_size, filter_size_y, "img_conv: filter_size", least=1)
    sx, sy = pair(stride, stride_y, "img_conv: stride", least=1)
    px, py = pair(padding, padding_y, "img_conv: padding", least=0)
    dx, dy = pair(dilation, dilation_y, "img_conv: dilation", least=1)
    if groups < 1 or image.channels % groups or num_filters % groups:
        raise UsageError(
            f"img_conv: {image.channels} channels and {num_filters} filters do not split into {groups} groups"
        )
    height = (image.height + 2 * py - ((fy - 1) * dy + 1)) // sy + 1
    width = (image.width + 2 * px - ((fx - 1) * dx + 1)) // sx + 1
    if height < 1 or width < 1:
        raise UsageError(
            f"img_conv: a {fx}x{fy} filter does not fit an image of {image.height}x{image.width} pixels"
        )
    attr = weight_attr(param_attr).or_normal(0.0, math.sqrt(2.0 / (fx**2 * image.channels)))
    # The operator's sizes are (y, x).
    window = {"filter": (fy, fx), "strides": (sy, sx), "paddings": (py, px), "dilations": (dy, dx)}
    return Made(
        [input],
        num_filters * height * width,
        {**image.attrs, **window, "groups": groups},
        [Weight([], attr, num_filters * image.channels // groups * fx * fy)],
        [num_filters if shared_biases else num_filters * height * width, 1],
        (num_filters, height, width),
    )


@emits("img_conv", together=None)
def _img_conv(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs, filters = config.attrs, config.num_filters
    channels, groups = int(attrs["channels"]), int(attrs["groups"])  # type: ignore[arg-type]
    shape = [filters, channels // groups, *attrs["filter"]]  # type: ignore[misc]
    weight = emitter.shaped_parameter(config.inputs[0].parameter, shape)
    settings = {key: attrs[key] for key in ("strides", "paddings", "dilations", "groups")}
    inputs = {"Input": source_image(emitter, config), "Filter": weight}
    value = emitter.op("conv2d", inputs, settings, "Output")
    if not config.bias:
        return value
    shared = emitter.parameters[config.bias].size == filters
    shape = [filters] if shared else [filters, config.height, config.width]
    return emitter.binary("elementwise_add", value, emitter.shaped_parameter(config.bias, shape), axis=1)


@declares(
    "input, size, scale=0.0128, power=0.75, name=None, num_channels=None, layer_attr=None", prefix="crmnorm"
)
def img_cmrnorm(input: LayerOutput, size: int, scale: float, power: float, num_channels: int | None) -> Made:
    """Declare response normalisation across channels: x / (1 + scale / size * sum of squares)^power."""
    image = geometry(input, num_channels, "img_cmrnorm")
    return made_of_image(input, image, image, {"n": size, "alpha": scale / size, "beta": power})


@emits("img_cmrnorm", together=None)
def _img_cmrnorm(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {"k": 1.0, **{key: config.attrs[key] for key in ("n", "alpha", "beta")}}
    return emitter.ops("lrn", {"X": source_image(emitter, config)}, attrs, ["Out", "MidOut"])[0]


@declares("input, groups, num_channels=None, name=None, layer_attr=None", prefix="maxout_layer")
def maxout(input: LayerOutput, groups: int, num_channels: int | None) -> Made:
    """Declare the largest of every ``groups`` neighbouring channels."""
    image = geometry(input, num_channels, "maxout")
    if image.channels % groups:
        raise UsageError(f"maxout: {image.channels} channels do not split into groups of {groups}")
    return made_of_image(input, image, image._replace(channels=image.channels // groups), {"groups": groups})


@emits("maxout", together=None)
def _maxout(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.unary("maxout", source_image(emitter, config), groups=config.attrs["groups"])


@declares("input, pad_c=None, pad_h=None, pad_w=None, name=None, layer_attr=None")
def pad(
    input: LayerOutput,
    pad_c: tuple[int, int] | None,
    pad_h: tuple[int, int] | None,
    pad_w: tuple[int, int] | None,
) -> Made:
    """Declare zeros before and after the channels, rows and columns of an image."""
    image = geometry(input, None, "pad")
    c, h, w = (tuple(side or (0, 0)) for side in (pad_c, pad_h, pad_w))
    result = Geometry(image.channels + sum(c), image.height + sum(h), image.width + sum(w))
    return made_of_image(input, image, result, {"paddings": (0, 0, *c, *h, *w)})


@emits("pad")
def _pad(emitter: Emitter, config: LayerConfig) -> Variable:
    image, paddings = source_image(emitter, config), config.attrs["paddings"]
    return emitter.unary("pad", image, paddings=paddings, pad_value=0.0)


@declares("input, offset, axis=2, shape=None, name=None, layer_attr=None", prefix="crop_layer")
def crop(input: LayerOutput, offset: Sequence[int], axis: int, shape: Sequence[int] | None) -> Made:
    """Declare a cut-out of an image.

    Args:
        offset: first index of each axis from ``axis`` on.
        axis: first axis that is cut, in (N, C, H, W).
        shape: size of the result as (N, C, H, W); N is not used.
        layer_attr: dropout.
    """
    image = geometry(input, None, "crop")
    if shape is None or len(shape) != 4 or axis not in (1, 2, 3) or len(offset) != 4 - axis:
        raise UsageError(
            f"crop: shape must be (N, C, H, W) and offset have {4 - axis} numbers, got {shape} and {offset}"
        )
    starts = [0] * (axis - 1) + [int(value) for value in offset]
    sizes = [*image[: axis - 1], *(int(value) for value in shape[axis:])]
    if any(start < 0 or start + size > end for start, size, end in zip(starts, sizes, image, strict=True)):
        raise UsageError(f"crop: {sizes} at {starts} does not lie within an image of {tuple(image)}")
    return made_of_image(input, image, Geometry(*sizes), {"starts": tuple(starts), "sizes": tuple(sizes)})


@emits("crop")
def _crop(emitter: Emitter, config: LayerConfig) -> Variable:
    starts, sizes = config.attrs["starts"], config.attrs["sizes"]
    assert isinstance(starts, tuple)
    assert isinstance(sizes, tuple)
    attrs = {"axes": [1, 2, 3], "starts": [*starts], "ends": [*map(operator.add, starts, sizes)]}
    return emitter.op("slice", {"Input": source_image(emitter, config)}, attrs)


@declares("input, indices, value, name=None")
def scale_sub_region(input: LayerOutput, indices: LayerOutput, value: float) -> Made:
    """Declare images with a part of each times `value`.

    Args:
        indices: of size 6: first and last channel, row and column of the part, counted from 1.
        value: of the factor.
    """
    image = geometry(input, None, "scale_sub_region")
    require_size(indices, 6, "indices of scale_sub_region")
    return Made([input, indices], input.size, {**image.attrs, "value": float(value)}, image=image)


@emits("scale_sub_region")
def _scale_sub_region(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {"X": source_image(emitter, config), "Indices": emitter.rows(config.inputs[1].layer)}
    return emitter.op("scale_sub_region", inputs, {"value": config.attrs["value"]})


@declares(
    "input, pool_size, name=None, num_channels=None, pool_type=None, stride=1, padding=0, layer_attr=None, "
    "pool_size_y=None, stride_y=None, padding_y=None, ceil_mode=True, exclude_mode=None",
    prefix="pool",
)
def img_pool(
    input: LayerOutput,
    pool_size: int,
    num_channels: int | None,
    pool_type: pooling.BasePool | None,
    stride: int,
    padding: int,
    pool_size_y: int | None,
    stride_y: int | None,
    padding_y: int | None,
    ceil_mode: bool,
    exclude_mode: bool | None,
) -> Made:
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
    keys = ("pooling_type", "ksize", "strides", "paddings", "ceil_mode", "exclusive")
    return emitter.unary("pool2d", source_image(emitter, config), **{key: config.attrs[key] for key in keys})


@declares(
    "input, block_x=0, block_y=0, stride_x=0, stride_y=0, padding_x=0, padding_y=0, num_channels=None, name=None, "
    "layer_attr=None",
    prefix="block_expand_layer",
)
def block_expand(
    input: LayerOutput,
    block_x: int,
    block_y: int,
    stride_x: int,
    stride_y: int,
    padding_x: int,
    padding_y: int,
    num_channels: int | None,
) -> Made:
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
    return Made([input], image.channels * block[0] * block[1], attrs)


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
