# SPDX-License-Identifier: Apache-2.0
"""Convolutions over images (N, C, H, W) and volumes (N, C, D, H, W), and their transposes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from paddle.graph import Variable
from paddle.v2.data_type import whole_number
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import geometry, pair, source_image
from paddle.v2.layer.output import LayerOutput, Weight, WeightAttr, require_layer, weight_attr
from paddle.v2.model import LayerConfig
from paddle_node.contract.classes import NamedTuple

__all__ = ["img_conv", "img_conv3d"]

_TRANSPOSED = ("exconvt", "cudnn_convt", "deconv3d")

Sizes = tuple[int, ...]
"""A number for each side: (vertical, horizontal) or (depth, vertical, horizontal)."""


class Window(NamedTuple):
    """The size, stride, padding and dilation of a filter: one number per dimension, outermost dimension first."""

    filter: Sizes
    strides: Sizes
    paddings: Sizes
    dilations: Sizes

    def places(self, sizes: Sizes, trans: bool) -> Sizes:
        """Return the output size of a convolution, or of its transpose, for images of the given sizes."""
        reaches = [
            (size - 1) * dilation + 1 for size, dilation in zip(self.filter, self.dilations, strict=True)
        ]
        sides = zip(sizes, reaches, self.strides, self.paddings, strict=True)
        if trans:
            return tuple((size - 1) * stride + reach - 2 * pad for size, reach, stride, pad in sides)
        return tuple((size + 2 * pad - reach) // stride + 1 for size, reach, stride, pad in sides)


class Convolved(NamedTuple):
    """The description of a convolution: filters, number of weights, initial values and output sizes."""

    attrs: dict[str, Any]
    weights: int
    attr: WeightAttr
    sizes: Sizes


def convolved(
    who: str,
    image: Sequence[int],
    window: Window,
    num_filters: int,
    groups: int,
    trans: bool,
    param_attr: WeightAttr,
) -> Convolved:
    """Check the arguments of a convolution of images or volumes (channels, *sizes), and describe it.

    A weight without ``initial_*`` starts as N(0, sqrt(2 / (filter_size^2 * channels))).
    """
    channels, *inside = image
    if groups < 1 or channels % groups or num_filters < 1 or num_filters % groups:
        raise UsageError(
            f"{who}: {channels} channels and {num_filters} filters cannot be split into {groups} groups"
        )
    sizes = window.places(tuple(inside), trans)
    if min(sizes) < 1:
        filters, pixels = ("x".join(map(str, each)) for each in (window.filter, inside))
        raise UsageError(
            f"{who}: expected a filter that fits an image of {pixels} pixels with its padding, got {filters}"
        )
    attr = weight_attr(param_attr).or_normal(0.0, math.sqrt(2.0 / (window.filter[-1] ** 2 * channels)))
    weights = num_filters * channels // groups * math.prod(window.filter)
    return Convolved({**window._asdict(), "groups": groups, "trans": trans}, weights, attr, sizes)


def filters_shape(config_attrs: Mapping[str, Any], channels: int, filters: int) -> list[int]:
    """Return the shape of a convolution's weights: (F, C / groups, *filter), transposed (C, F / groups, *filter)."""
    outer, inner = (channels, filters) if config_attrs.get("trans") else (filters, channels)
    return [outer, inner // config_attrs["groups"], *config_attrs["filter"]]


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
    """Declare a convolution (cross-correlation) of images (N, C, H, W), or its transpose; default activation: Relu.

    A weight without ``initial_*`` starts as N(0, sqrt(2 / (filter_size^2 * channels))). Sizes are (x, y) pairs or one
    number. Unlike the original, ``param_attr`` is never changed, so it can be given to several layers.
    """
    image = geometry(input, num_channels, "img_conv")
    window = image_window(
        "img_conv",
        (filter_size, filter_size_y),
        (stride, stride_y),
        (padding, padding_y),
        (dilation, dilation_y),
    )
    trans = bool(trans) or layer_type in _TRANSPOSED
    made = convolved("img_conv", image, window, num_filters, groups, trans, param_attr)
    height, width = made.sizes
    return Made(
        [input],
        num_filters * height * width,
        {**image.attrs, **made.attrs},
        [Weight([], made.attr, made.weights)],
        [num_filters if shared_biases else num_filters * height * width, 1],
        (num_filters, height, width),
    )


@declares(
    "input, filter_size, num_filters, name=None, num_channels=None, act=None, groups=1, stride=1, padding=0, "
    "bias_attr=None, param_attr=None, shared_biases=True, layer_attr=None, trans=False, layer_type=None",
    "img_conv",
    prefix="conv3d",
    default_act="relu",
    has_bias=True,
)
def img_conv3d(
    input: LayerOutput,
    filter_size: int | tuple[int, int, int],
    num_filters: int,
    num_channels: int | None,
    groups: int,
    stride: int | tuple[int, int, int],
    padding: int | tuple[int, int, int],
    param_attr: WeightAttr,
    shared_biases: bool,
    trans: bool,
    layer_type: str | None,
) -> Made:
    """Declare a convolution of volumes (N, C, D, H, W), or its transpose; default activation: Relu.

    Sizes are (x, y, z) triples or one number. The data layer needs depth, height and width.
    """
    channels, *inside = volume = volume_of(input, num_channels, "img_conv3d")
    window = Window(
        triple(filter_size, "img_conv3d: filter_size", least=1),
        triple(stride, "img_conv3d: stride", least=1),
        triple(padding, "img_conv3d: padding", least=0),
        (1, 1, 1),
    )
    trans = bool(trans) or layer_type in _TRANSPOSED
    made = convolved("img_conv3d", volume, window, num_filters, groups, trans, param_attr)
    size = num_filters * math.prod(made.sizes)
    depth, height, width = made.sizes
    return Made(
        [input],
        size,
        {**made.attrs, "channels": channels, "sizes": tuple(inside), "depth": depth},
        [Weight([], made.attr, made.weights)],
        [num_filters if shared_biases else size, 1],
        (num_filters, height, width),
    )


@emits("img_conv", together=None)
def _img_conv(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs: Mapping[str, Any] = config.attrs
    filters = config.num_filters
    shape = filters_shape(attrs, attrs["channels"], filters)
    weight = emitter.shaped_parameter(config.inputs[0].parameter, shape)
    is_volume = "sizes" in attrs
    source = source_volume(emitter, config) if is_volume else source_image(emitter, config)
    settings = {key: attrs[key] for key in ("strides", "paddings", "dilations", "groups")}
    kind = f"conv{3 if is_volume else 2}d{'_transpose' if attrs.get('trans') else ''}"
    value = emitter.op(kind, {"Input": source, "Filter": weight}, settings, "Output")
    if config.bias:
        inside = [config.height, config.width]
        inside = [attrs["depth"], *inside] if is_volume else inside
        shape = [filters] if emitter.parameters[config.bias].size == filters else [filters, *inside]
        value = emitter.binary("elementwise_add", value, emitter.shaped_parameter(config.bias, shape), axis=1)
    return emitter.reshape(value, [-1, config.size]) if is_volume else value


def image_window(who: str, *sizes: tuple[int | tuple[int, int], int | None]) -> Window:
    """Return the window that an image layer's arguments define: filter_size, stride, padding and maybe dilation."""
    names = ("filter_size", 1), ("stride", 1), ("padding", 0), ("dilation", 1)
    sizes = (*sizes, (1, None)) if len(sizes) == 3 else sizes
    found = [
        pair(x, y, f"{who}: {name}", least=least)[::-1]
        for (x, y), (name, least) in zip(sizes, names, strict=True)
    ]
    return Window(*found)


def volume_of(layer: LayerOutput, channels: int | None, who: str) -> tuple[int, int, int, int]:
    """Return the number of channels, depth, height and width of a layer's volume.

    Raises:
        UsageError: the sizes do not match the layer's.
    """
    require_layer(layer, who)
    found = (channels or layer.num_filters, layer.depth, layer.height, layer.width)
    if math.prod(found) != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is not a volume of {found[0]} channels and "
            f"{'x'.join(map(str, found[1:]))} cells; set depth, height and width in its data layer, or set num_channels"
        )
    return found


def source_volume(emitter: Emitter, config: LayerConfig) -> Variable:
    """Return the first input as volumes (N, C, D, H, W), with the sizes stored in the layer."""
    attrs: Mapping[str, Any] = config.attrs
    return emitter.reshape(emitter.first(config), [-1, attrs["channels"], *attrs["sizes"]])


def triple(given: int | Sequence[int], what: str, *, least: int) -> Sizes:
    """Convert a size, a number or a triple (x, y, z), to (depth, vertical, horizontal).

    Raises:
        UsageError: a number is not an integer or is below `least`, or there are not three; the message begins with
            `what`.
    """
    sizes = tuple(given) if isinstance(given, Sequence) else (given,) * 3
    if len(sizes) != 3:
        raise UsageError(f"{what}: expected one number or (x, y, z), got {sizes!r}")
    found = tuple(whole_number(size, what) for size in sizes)
    if min(found) < least:
        raise UsageError(f"{what} must be at least {least}, got {found}")
    return found[::-1]
