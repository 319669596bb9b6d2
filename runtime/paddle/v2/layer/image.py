# SPDX-License-Identifier: Apache-2.0
"""Image layers: convolution, normalisation, maxout, padding, cropping. Images are (N, C, H, W)."""

from __future__ import annotations

import math
import operator
from typing import NamedTuple

from paddle.graph import Variable
from paddle.v2.data_type import whole_number
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    Weight,
    WeightAttr,
    build,
    or_zeros,
    require_layer,
    require_size,
    weight_attr,
)
from paddle.v2.model import Attrs, LayerConfig

__all__ = ["crop", "img_cmrnorm", "img_conv", "maxout", "pad", "scale_sub_region"]


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
        raise UsageError(f"{who}: give num_channels, input {layer.name!r} is no image")
    cells = layer.size // count
    side = math.isqrt(cells)
    if not (layer.height or layer.width) and count * side * side != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is no square image of {count} channels; give its data "
            "layer height and width"
        )
    height = layer.height or side
    width = layer.width or (cells // height if height else 0)
    if count * height * width != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is no image of {count} channels and "
            f"{height}x{width} pixels"
        )
    return Geometry(count, height, width)


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


def img_conv(
    input: LayerOutput,
    filter_size: int | tuple[int, int],
    num_filters: int,
    name: str | None = None,
    num_channels: int | None = None,
    act: Act = None,
    groups: int = 1,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    bias_attr: BiasAttr = None,
    param_attr: WeightAttr = None,
    shared_biases: bool = True,
    layer_attr: LayerAttr = None,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    dilation_y: int | None = None,
    trans: bool = False,
    layer_type: str | None = None,
) -> LayerOutput:
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
    return build(
        "img_conv",
        [input],
        num_filters * height * width,
        name,
        prefix="conv",
        weights=[Weight([], attr, num_filters * image.channels // groups * fx * fy)],
        act=act,
        default_act="relu",
        bias=or_zeros(bias_attr),
        bias_dims=[num_filters if shared_biases else num_filters * height * width, 1],
        layer_attr=layer_attr,
        image=(num_filters, height, width),
        attrs={**image.attrs, **window, "groups": groups},
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


def img_cmrnorm(
    input: LayerOutput,
    size: int,
    scale: float = 0.0128,
    power: float = 0.75,
    name: str | None = None,
    num_channels: int | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare response normalisation across channels: x / (1 + scale / size * sum of squares)^power."""
    image = geometry(input, num_channels, "img_cmrnorm")
    attrs: Attrs = {**image.attrs, "n": size, "alpha": scale / size, "beta": power}
    return _image_layer("img_cmrnorm", "crmnorm", input, image, attrs, name, layer_attr)


@emits("img_cmrnorm", together=None)
def _img_cmrnorm(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {"k": 1.0, **{key: config.attrs[key] for key in ("n", "alpha", "beta")}}
    return emitter.ops("lrn", {"X": source_image(emitter, config)}, attrs, ["Out", "MidOut"])[0]


def maxout(
    input: LayerOutput,
    groups: int,
    num_channels: int | None = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the largest of every ``groups`` neighbouring channels."""
    image = geometry(input, num_channels, "maxout")
    if image.channels % groups:
        raise UsageError(f"maxout: {image.channels} channels do not split into groups of {groups}")
    result = image._replace(channels=image.channels // groups)
    attrs = {**image.attrs, "groups": groups}
    return _image_layer("maxout", "maxout_layer", input, result, attrs, name, layer_attr)


@emits("maxout", together=None)
def _maxout(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.unary("maxout", source_image(emitter, config), groups=config.attrs["groups"])


def pad(
    input: LayerOutput,
    pad_c: tuple[int, int] | None = None,
    pad_h: tuple[int, int] | None = None,
    pad_w: tuple[int, int] | None = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare zeros before and after the channels, rows and columns of an image."""
    image = geometry(input, None, "pad")
    c, h, w = (tuple(side or (0, 0)) for side in (pad_c, pad_h, pad_w))
    result = Geometry(image.channels + sum(c), image.height + sum(h), image.width + sum(w))
    attrs: Attrs = {**image.attrs, "paddings": (0, 0, *c, *h, *w)}
    return _image_layer("pad", "pad", input, result, attrs, name, layer_attr)


@emits("pad")
def _pad(emitter: Emitter, config: LayerConfig) -> Variable:
    image, paddings = source_image(emitter, config), config.attrs["paddings"]
    return emitter.unary("pad", image, paddings=paddings, pad_value=0.0)


def crop(
    input: LayerOutput,
    offset: tuple[int, ...] | list[int],
    axis: int = 2,
    shape: tuple[int, ...] | list[int] | None = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
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
    attrs: Attrs = {**image.attrs, "starts": tuple(starts), "sizes": tuple(sizes)}
    return _image_layer("crop", "crop_layer", input, Geometry(*sizes), attrs, name, layer_attr)


@emits("crop")
def _crop(emitter: Emitter, config: LayerConfig) -> Variable:
    starts, sizes = config.attrs["starts"], config.attrs["sizes"]
    assert isinstance(starts, tuple)
    assert isinstance(sizes, tuple)
    attrs = {"axes": [1, 2, 3], "starts": [*starts], "ends": [*map(operator.add, starts, sizes)]}
    return emitter.op("slice", {"Input": source_image(emitter, config)}, attrs)


def scale_sub_region(
    input: LayerOutput, indices: LayerOutput, value: float, name: str | None = None
) -> LayerOutput:
    """Declare images with a part of each times `value`.

    Args:
        indices: of size 6: first and last channel, row and column of the part, counted from 1.
        value: of the factor.
    """
    image = geometry(input, None, "scale_sub_region")
    require_size(indices, 6, "indices of scale_sub_region")
    attrs = {**image.attrs, "value": float(value)}
    return build("scale_sub_region", [input, indices], input.size, name, image=image, attrs=attrs)


@emits("scale_sub_region")
def _scale_sub_region(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {"X": source_image(emitter, config), "Indices": emitter.rows(config.inputs[1].layer)}
    return emitter.op("scale_sub_region", inputs, {"value": config.attrs["value"]})


def _image_layer(
    kind: str,
    prefix: str,
    source: LayerOutput,
    result: Geometry,
    attrs: Attrs,
    name: str | None,
    layer_attr: LayerAttr,
) -> LayerOutput:
    size = math.prod(result)
    return build(kind, [source], size, name, prefix=prefix, layer_attr=layer_attr, image=result, attrs=attrs)
