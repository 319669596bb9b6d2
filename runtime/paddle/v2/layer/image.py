# SPDX-License-Identifier: Apache-2.0
"""Image layers: convolution, normalisation, maxout, padding, cropping. Images are (N, C, H, W)."""

from __future__ import annotations

import math
from typing import NamedTuple

from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import NotAvailableError, UsageError
from paddle.v2.layer.geometry import Geometry, geometry, pair
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    require_size,
    weight_attr,
)
from paddle.v2.model import Attrs, InputConfig, LayerConfig


def img_conv(
    input: LayerOutput,
    filter_size: int | tuple[int, int],
    num_filters: int,
    name: str | None = None,
    num_channels: int | None = None,
    act: activation.Base | None = None,
    groups: int = 1,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    shared_biases: bool = True,
    layer_attr: ExtraLayerAttribute | None = None,
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
    window = _Window(
        pair(filter_size, filter_size_y, "img_conv: filter_size", least=1),
        pair(stride, stride_y, "img_conv: stride", least=1),
        pair(padding, padding_y, "img_conv: padding", least=0),
        pair(dilation, dilation_y, "img_conv: dilation", least=1),
    )
    if groups < 1 or image.channels % groups or num_filters % groups:
        raise UsageError(
            f"img_conv: {image.channels} channels and {num_filters} filters do not split into {groups} groups"
        )
    places = window.places(image)
    name = model.current().auto_name("conv", name)
    attr = weight_attr(param_attr).or_normal(0.0, math.sqrt(2.0 / (window.filter[0] ** 2 * image.channels)))
    size = num_filters * image.channels // groups * math.prod(window.filter)
    weight = model.current().add_parameter(f"_{name}.w0", [], attr, size=size)
    biases = num_filters if shared_biases else num_filters * math.prod(places)
    act_name = activation_name(act, "relu")
    config = LayerConfig(
        name,
        "img_conv",
        num_filters * math.prod(places),
        (InputConfig(input.name, weight),),
        act_name,
        add_bias(name, [biases, 1], bias_attr, default=True),
        extras_of(layer_attr, act_name),
        num_filters,
        *places,
        attrs={**_source(image), **window.attrs(), "groups": groups},
    )
    return declare(config, [input])


class _Window(NamedTuple):
    """Where a filter lies on an image; sizes are (x, y), as users give them."""

    filter: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    def places(self, image: Geometry) -> tuple[int, int]:
        """Return the height and width of what comes out.

        Raises:
            UsageError: the filter does not fit.
        """
        (fx, fy), (sx, sy), (px, py), (dx, dy) = self
        height = (image.height + 2 * py - ((fy - 1) * dy + 1)) // sy + 1
        width = (image.width + 2 * px - ((fx - 1) * dx + 1)) // sx + 1
        if height < 1 or width < 1:
            raise UsageError(
                f"img_conv: a {fx}x{fy} filter does not fit an image of {image.height}x{image.width} pixels"
            )
        return height, width

    def attrs(self) -> Attrs:
        """Return the operator's attributes, whose sizes are (y, x)."""
        (fx, fy), (sx, sy), (px, py), (dx, dy) = self
        return {"filter": (fy, fx), "strides": (sy, sx), "paddings": (py, px), "dilations": (dy, dx)}


def img_cmrnorm(
    input: LayerOutput,
    size: int,
    scale: float = 0.0128,
    power: float = 0.75,
    name: str | None = None,
    num_channels: int | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare response normalisation across channels: x / (1 + scale / size * sum of squares)^power."""
    image = geometry(input, num_channels, "img_cmrnorm")
    attrs: Attrs = {**_source(image), "n": size, "alpha": scale / size, "beta": power}
    return _image_layer("img_cmrnorm", "crmnorm", input, image, attrs, name, layer_attr)


def maxout(
    input: LayerOutput,
    groups: int,
    num_channels: int | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the largest of every ``groups`` neighbouring channels."""
    image = geometry(input, num_channels, "maxout")
    if image.channels % groups:
        raise UsageError(f"maxout: {image.channels} channels do not split into groups of {groups}")
    result = Geometry(image.channels // groups, image.height, image.width)
    return _image_layer(
        "maxout", "maxout_layer", input, result, {**_source(image), "groups": groups}, name, layer_attr
    )


def pad(
    input: LayerOutput,
    pad_c: tuple[int, int] | None = None,
    pad_h: tuple[int, int] | None = None,
    pad_w: tuple[int, int] | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare zeros before and after the channels, rows and columns of an image."""
    image = geometry(input, None, "pad")
    c, h, w = (tuple(side or (0, 0)) for side in (pad_c, pad_h, pad_w))
    result = Geometry(image.channels + sum(c), image.height + sum(h), image.width + sum(w))
    attrs: Attrs = {**_source(image), "paddings": (0, 0, *c, *h, *w)}
    return _image_layer("pad", "pad", input, result, attrs, name, layer_attr)


def crop(
    input: LayerOutput,
    offset: tuple[int, ...] | list[int],
    axis: int = 2,
    shape: tuple[int, ...] | list[int] | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a cut-out of an image.

    Args:
        input: an image layer.
        offset: first index of each axis from ``axis`` on.
        axis: first axis that is cut, in (N, C, H, W).
        shape: size of the result as (N, C, H, W); N is not used.
        name: given by the user.
        layer_attr: dropout.
    """
    image = geometry(input, None, "crop")
    if shape is None or len(shape) != 4 or axis not in (1, 2, 3) or len(offset) != 4 - axis:
        raise UsageError(
            f"crop: shape must be (N, C, H, W) and offset have {4 - axis} numbers, got {shape} and {offset}"
        )
    starts = [0] * (axis - 1) + [int(value) for value in offset]
    sizes = [*image[: axis - 1], *(int(value) for value in shape[axis:])]
    if any(
        start < 0 or start + size > limit for start, size, limit in zip(starts, sizes, image, strict=True)
    ):
        raise UsageError(f"crop: {sizes} at {starts} does not lie within an image of {tuple(image)}")
    attrs: Attrs = {**_source(image), "starts": tuple(starts), "sizes": tuple(sizes)}
    return _image_layer("crop", "crop_layer", input, Geometry(*sizes), attrs, name, layer_attr)


def scale_sub_region(
    input: LayerOutput, indices: LayerOutput, value: float, name: str | None = None
) -> LayerOutput:
    """Declare images with a part of each times `value`.

    Args:
        input: an image layer.
        indices: of size 6: first and last channel, row and column of the part, counted from 1.
        value: of the factor.
        name: given by the user.
    """
    image = geometry(input, None, "scale_sub_region")
    require_size(indices, 6, "indices of scale_sub_region")
    config = LayerConfig(
        model.current().auto_name("scale_sub_region", name),
        "scale_sub_region",
        input.size,
        (InputConfig(input.name), InputConfig(indices.name)),
        num_filters=image.channels,
        height=image.height,
        width=image.width,
        attrs={**_source(image), "value": float(value)},
    )
    return declare(config, [input, indices])


def _image_layer(
    kind: str,
    prefix: str,
    source: LayerOutput,
    result: Geometry,
    attrs: Attrs,
    name: str | None,
    layer_attr: ExtraLayerAttribute | None,
) -> LayerOutput:
    config = LayerConfig(
        model.current().auto_name(prefix, name),
        kind,
        math.prod(result),
        (InputConfig(source.name),),
        extras=extras_of(layer_attr),
        num_filters=result.channels,
        height=result.height,
        width=result.width,
        attrs=attrs,
    )
    return declare(config, [source])


def _source(image: Geometry) -> dict[str, int]:
    return {"channels": image.channels, "in_height": image.height, "in_width": image.width}
