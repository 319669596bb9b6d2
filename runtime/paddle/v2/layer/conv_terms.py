# SPDX-License-Identifier: Apache-2.0
"""Convolutions as terms of ``mixed`` and ``concat``, with learned filters or with separate filters per sample."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paddle.graph import Variable
from paddle.v2.errors import UsageError
from paddle.v2.layer.convolution import Window, convolved, filters_shape, image_window
from paddle.v2.layer.emitter import Emitter
from paddle.v2.layer.image import geometry
from paddle.v2.layer.output import LayerOutput, WeightAttr, require_layer, require_size
from paddle.v2.layer.projection import PROJECTORS, Projection
from paddle.v2.model import InputConfig

__all__ = ["conv_operator", "conv_projection"]


def conv_projection(
    input: LayerOutput,
    filter_size: int | tuple[int, int],
    num_filters: int,
    num_channels: int | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    groups: int = 1,
    param_attr: WeightAttr = None,
    trans: bool = False,
) -> Projection:
    """Return a projection that convolves images, or applies a transposed convolution, with learned filters.

    See `img_conv`. The bias of the enclosing layer has one number per filter.
    """
    image = geometry(input, num_channels, "conv_projection")
    window = image_window(
        "conv_projection", (filter_size, filter_size_y), (stride, stride_y), (padding, padding_y)
    )
    made = convolved("conv_projection", image, window, num_filters, groups, bool(trans), param_attr)
    attrs = {**image.attrs, **made.attrs, "weights": made.weights, "image": (num_filters, *made.sizes)}
    return Projection("conv", (input,), num_filters * math.prod(made.sizes), made.attr, attrs)


def conv_operator(
    img: LayerOutput,
    filter: LayerOutput,
    filter_size: int | tuple[int, int],
    num_filters: int,
    num_channels: int | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    filter_size_y: int | None = None,
    stride_y: int | None = None,
    padding_y: int | None = None,
    trans: bool = False,
) -> Projection:
    """Return an operator that convolves each image (or its transpose) with filters of its own, from a row of a layer.

    Args:
        img: images.
        filter: rows of (num_filters, channels, filter_size_y, filter_size); transposed (channels, num_filters, ...).
        filter_size: width of a filter, and its height without `filter_size_y`.
        num_filters: the number of filters of each sample.
        num_channels: the number of channels of the images.
        stride: the stride of the filters.
        padding: the number of zeros on each side of an image.
        filter_size_y: the height of a filter.
        stride_y: the vertical stride.
        padding_y: the number of zeros above and below.
        trans: whether to transpose the convolution.
    """
    image = geometry(img, num_channels, "conv_operator")
    window = image_window(
        "conv_operator", (filter_size, filter_size_y), (stride, stride_y), (padding, padding_y)
    )
    made = convolved("conv_operator", image, window, num_filters, 1, bool(trans), None)
    require_layer(filter, "conv_operator")
    require_size(filter, made.weights, "conv_operator: filter")
    if trans and any(pad >= size for pad, size in zip(window.paddings, window.filter, strict=True)):
        raise UsageError(
            f"conv_operator(trans=True): padding {window.paddings[::-1]} must be smaller than the "
            f"filter size {window.filter[::-1]}"
        )
    attrs = {**image.attrs, **made.attrs, "image": (num_filters, *made.sizes)}
    return Projection("conv_operator", (img, filter), num_filters * math.prod(made.sizes), attrs=attrs)


def _source(emitter: Emitter, link: InputConfig) -> Variable:
    sizes = (int(link.attrs[key]) for key in ("channels", "in_height", "in_width"))  # type: ignore[arg-type]
    return emitter.image(link.layer, *sizes)


def _conv(emitter: Emitter, link: InputConfig) -> Variable:
    attrs: Mapping[str, Any] = link.attrs
    shape = filters_shape(attrs, attrs["channels"], attrs["image"][0])
    weight = emitter.shaped_parameter(link.parameter, shape)
    settings = {key: attrs[key] for key in ("strides", "paddings", "dilations", "groups")}
    inputs = {"Input": _source(emitter, link), "Filter": weight}
    value = emitter.op("conv2d_transpose" if attrs["trans"] else "conv2d", inputs, settings, "Output")
    return emitter.reshape(value, [-1, link.size])


def _conv_operator(emitter: Emitter, link: InputConfig) -> Variable:
    """Multiply each sample's filters by the windows of its image."""
    attrs: Mapping[str, Any] = link.attrs
    window = Window(*(attrs[key] for key in Window._fields))
    image, filters = _source(emitter, link), emitter.rows(str(attrs["other"]))
    count, inside = attrs["image"][0], attrs["channels"] * math.prod(window.filter)
    if attrs["trans"]:
        image, filters = _turned(emitter, image, filters, window, count)
        pads = [size - 1 - pad for size, pad in zip(window.filter, window.paddings, strict=True)]
        window = Window(window.filter, (1, 1), tuple(pads), (1, 1))
    settings = {"kernels": window.filter, "strides": window.strides, "paddings": window.paddings * 2}
    windows = emitter.unary("im2sequence", image, **settings)
    windows = emitter.reshape(windows, [-1, math.prod(attrs["image"][1:]), inside])
    matrix = emitter.reshape(filters, [-1, count, inside])
    product = emitter.binary("matmul", matrix, windows, transpose_X=False, transpose_Y=True)
    return emitter.reshape(product, [-1, link.size])


def _turned(
    emitter: Emitter, image: Variable, filters: Variable, window: Window, count: int
) -> tuple[Variable, Variable]:
    """Return images with zeros between their pixels, and filters rotated by 180 degrees, count first.

    A convolution of these at stride 1 is the transpose of one at the window's strides.
    """
    channels, height, width = image.shape[1:]
    down, right = window.strides
    if max(window.strides) > 1:
        spread = emitter.reshape(image, [-1, channels, height, 1, width, 1])
        paddings = [0, 0, 0, 0, 0, 0, 0, down - 1, 0, 0, 0, right - 1]
        spread = emitter.unary("pad", spread, paddings=paddings, pad_value=0.0)
        spread = emitter.reshape(spread, [-1, channels, height * down, width * right])
        ends = [(height - 1) * down + 1, (width - 1) * right + 1]
        image = emitter.op("slice", {"Input": spread}, {"axes": [2, 3], "starts": [0, 0], "ends": ends})
    cells = emitter.reshape(filters, [-1, channels, count, *window.filter])
    cells = emitter.unary("reverse", cells, axis=[3, 4])
    swapped = emitter.ops("transpose2", {"X": cells}, {"axis": [0, 2, 1, 3, 4]}, ["Out", "XShape"])[0]
    return image, swapped


PROJECTORS.update(conv=_conv, conv_operator=_conv_operator)
