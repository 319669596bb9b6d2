# SPDX-License-Identifier: Apache-2.0
"""Image layers: normalization, maxout, padding, cropping, resizing, rotation, windows. Images are (N, C, H, W)."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from paddle.graph import Variable
from paddle.v2.data_type import whole_number
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import LayerOutput, Weight, WeightAttr, require_layer, require_size
from paddle.v2.model import Attrs, LayerConfig
from paddle_node.contract.classes import NamedTuple

__all__ = [
    "bilinear_interp", "block_expand", "crop", "cross_channel_norm", "img_cmrnorm", "maxout", "pad", "rotate",
    "scale_sub_region", "switch_order",
]  # fmt: skip


class Geometry(NamedTuple):
    """The numbers of channels, rows (height) and columns (width) of an image."""

    channels: int
    height: int
    width: int

    @property
    def attrs(self) -> dict[str, int]:
        """The attributes that a layer with this input stores for `source_image`."""
        return {"channels": self.channels, "in_height": self.height, "in_width": self.width}


def geometry(layer: LayerOutput, channels: int | None, who: str) -> Geometry:
    """Return the geometry of a layer as an image, which must be square if height and width are not set."""
    require_layer(layer, who)
    count = channels or layer.num_filters
    if not count:
        fits = _other_channels(layer.size)
        hint = f"; {fits}" if "=" in fits else ""
        raise UsageError(f"{who}: give num_channels, because input {layer.name!r} is not an image{hint}")
    cells = layer.size // count
    side = math.isqrt(cells)
    if not (layer.height or layer.width) and count * side * side != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is not a square image of {count} channels; "
            + (_other_channels(layer.size) if layer.size % count else "give its data layer height and width")
        )
    height = layer.height or side
    width = layer.width or (cells // height if height else 0)
    if count * height * width != layer.size:
        raise UsageError(
            f"{who}: input {layer.name!r} of size {layer.size} is not an image of {count} channels and "
            f"{height}x{width} pixels; {_other_channels(layer.size)}"
        )
    return Geometry(count, height, width)


def _other_channels(size: int) -> str:
    """Return advice with the numbers of channels of gray and color images that fit a size."""
    sides = {count: math.isqrt(size // count) for count in (1, 3)}
    fits = [
        f"{size} = {n} x {side} x {side}: num_channels={n} (in networks, num_channel)?"
        for n, side in sides.items()
        if n * side**2 == size
    ]
    return " or ".join(fits) or f"num_channels must divide {size}"


def made_of_image(input: LayerOutput, image: Geometry, result: Geometry, attrs: Attrs) -> Made:
    """Describe a layer that maps images to images, given both geometries and the operator's attributes."""
    return Made([input], math.prod(result), {**image.attrs, **attrs}, image=result)


def source_image(emitter: Emitter, config: LayerConfig) -> Variable:
    """Return the first input as an image, with the sizes that `Geometry.attrs` stored in the layer."""
    sizes = (int(config.attrs[key]) for key in ("channels", "in_height", "in_width"))  # type: ignore[arg-type]
    return emitter.image(config.inputs[0].layer, *sizes)


def pair(x: int | tuple[int, int], y: int | None, what: str, *, least: int) -> tuple[int, int]:
    """Return the sizes along x and y; `x` may be a pair, and `y` defaults to `x`.

    Raises:
        UsageError: a size is not an integer or is below `least`; the message begins with `what`.
    """
    sizes = x if isinstance(x, (tuple, list)) else (x, x if y is None else y)
    if len(sizes) != 2:
        raise UsageError(f"{what}: expected one number or an (x, y) pair, got {sizes!r}")
    found = whole_number(sizes[0], what), whole_number(sizes[1], what)
    if min(found) < least:
        raise UsageError(f"{what} must be at least {least}, got {found}")
    return found


@declares(
    "input, size, scale=0.0128, power=0.75, name=None, num_channels=None, layer_attr=None", prefix="crmnorm"
)
def img_cmrnorm(input: LayerOutput, size: int, scale: float, power: float, num_channels: int | None) -> Made:
    """Declare local response normalization across channels: x / (1 + scale / size * sum of squares)^power."""
    image = geometry(input, num_channels, "img_cmrnorm")
    return made_of_image(input, image, image, {"n": size, "alpha": scale / size, "beta": power})


@emits("img_cmrnorm", together=None)
def _img_cmrnorm(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {"k": 1.0, **{key: config.attrs[key] for key in ("n", "alpha", "beta")}}
    return emitter.ops("lrn", {"X": source_image(emitter, config)}, attrs, ["Out", "MidOut"])[0]


@declares("input, name=None, param_attr=None")
def cross_channel_norm(input: LayerOutput, param_attr: WeightAttr) -> Made:
    """Declare L2 normalization across channels: each pixel's channels are divided by their norm, and scaled.

    Each channel has a learned scale. The norm is the square root of 1e-6 plus the sum of squares.
    """
    image = geometry(input, None, "cross_channel_norm")
    weight = Weight([image.channels, 1], param_attr)
    return made_of_image(input, image, image, {})._replace(weights=[weight])


@emits("cross_channel_norm", together=None)
def _cross_channel_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    value, channels = source_image(emitter, config), config.num_filters
    squares = emitter.unary("reduce_sum", emitter.unary("square", value), dim=[1], keep_dim=False)
    lengths = emitter.unary("sqrt", emitter.unary("scale", squares, scale=1.0, bias=1e-6))
    # Rows of (N H W, C) divide by a column: an operand is only stretched along its last dimensions.
    by_pixel = emitter.ops("transpose2", {"X": value}, {"axis": [0, 2, 3, 1]}, ["Out", "XShape"])[0]
    rows = emitter.reshape(by_pixel, [-1, channels])
    normed = emitter.binary("elementwise_div", rows, emitter.reshape(lengths, [-1, 1]), axis=0)
    scale = emitter.shaped_parameter(config.inputs[0].parameter, [channels])
    scaled = emitter.binary("elementwise_mul", normed, scale, axis=1)
    image = emitter.reshape(scaled, [-1, config.height, config.width, channels])
    return emitter.ops("transpose2", {"X": image}, {"axis": [0, 3, 1, 2]}, ["Out", "XShape"])[0]


@declares(
    "input, out_size_x=None, out_size_y=None, name=None, layer_attr=None", prefix="bilinear_interp_layer"
)
def bilinear_interp(input: LayerOutput, out_size_x: int | None, out_size_y: int | None) -> Made:
    """Declare a layer that resizes images by bilinear interpolation with aligned corners."""
    image = geometry(input, None, "bilinear_interp")
    width, height = pair((out_size_x or 0, out_size_y or 0), None, "bilinear_interp: out_size", least=1)
    return made_of_image(input, image, Geometry(image.channels, height, width), {})


@emits("bilinear_interp", together=None)
def _bilinear_interp(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {"out_h": config.height, "out_w": config.width, "align_corners": True}
    return emitter.unary("bilinear_interp", source_image(emitter, config), **attrs)


@declares("input, height, width, name=None, layer_attr=None", prefix="rotate_layer")
def rotate(input: LayerOutput, height: int, width: int) -> Made:
    """Declare a layer that rotates `height` x `width` images by 90 degrees clockwise: y(j, i) = x(height-1-i, j)."""
    height, width = pair((height, width), None, "rotate: height and width", least=1)
    require_layer(input, "rotate")
    image = Geometry(input.size // (height * width), height, width)
    return Made([input], input.size, image.attrs, image=Geometry(image.channels, width, height))


@emits("rotate", together=None)
def _rotate(emitter: Emitter, config: LayerConfig) -> Variable:
    height, width = config.width, config.height
    if config.size % (height * width):
        raise UsageError(
            f"rotate: expected layer {config.inputs[0].layer!r} to have a multiple of {height}x{width} values, got "
            f"size {config.size}"
        )
    upside_down = emitter.unary("reverse", source_image(emitter, config), axis=[2])
    return emitter.ops("transpose2", {"X": upside_down}, {"axis": [0, 1, 3, 2]}, ["Out", "XShape"])[0]


@declares("input, name=None, reshape_axis=None, act=None, layer_attr=None")
def switch_order(input: LayerOutput, reshape_axis: int | None) -> Made:
    """Declare a layer that transposes images to (N, H, W, C); the dimensions before `reshape_axis` become rows."""
    image = geometry(input, None, "switch_order")
    if reshape_axis not in (1, 2, 3):
        raise UsageError(f"switch_order: reshape_axis must be 1, 2 or 3, got {reshape_axis!r}")
    size = math.prod((image.height, image.width, image.channels)[reshape_axis - 1 :])
    return Made([input], size, {**image.attrs, "reshape_axis": reshape_axis})


@emits("switch_order")
def _switch_order(emitter: Emitter, config: LayerConfig) -> Variable:
    image = {"X": source_image(emitter, config)}
    switched = emitter.ops("transpose2", image, {"axis": [0, 2, 3, 1]}, ["Out", "XShape"])[0]
    return emitter.reshape(switched, [-1, config.size])


@declares("input, groups, num_channels=None, name=None, layer_attr=None", prefix="maxout_layer")
def maxout(input: LayerOutput, groups: int, num_channels: int | None) -> Made:
    """Declare a maxout layer: the maximum over every ``groups`` neighboring channels (Goodfellow et al., 2013)."""
    image = geometry(input, num_channels, "maxout")
    if image.channels % groups:
        raise UsageError(f"maxout: {image.channels} channels cannot be split into groups of {groups}")
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
    """Declare a layer that adds zeros before and after the channels, rows and columns of images."""
    image = geometry(input, None, "pad")
    c, h, w = (tuple(side or (0, 0)) for side in (pad_c, pad_h, pad_w))
    result = Geometry(image.channels + sum(c), image.height + sum(h), image.width + sum(w))
    return made_of_image(input, image, result, {"paddings": (0, 0, *c, *h, *w)})


@emits("pad")
def _pad(emitter: Emitter, config: LayerConfig) -> Variable:
    image, paddings = source_image(emitter, config), config.attrs["paddings"]
    return emitter.unary("pad", image, paddings=paddings, pad_value=0.0)


@declares("input, offset, axis=2, shape=None, name=None, layer_attr=None", prefix="crop_layer", many=True)
def crop(input: Sequence[LayerOutput], offset: Sequence[int], axis: int, shape: Sequence[int] | None) -> Made:
    """Declare a layer that crops each image.

    Args:
        input: the images, or a list of the images and a layer whose shape the result has.
        offset: the offset along each cropped axis, starting with ``axis``.
        axis: the first axis to crop, in (N, C, H, W).
        shape: the shape of the result as (N, C, H, W); N is not used.
        layer_attr: dropout.
    """
    image = geometry(input[0], None, "crop")
    if len(input) == 2 and shape is None:
        shape = (1, *geometry(input[1], input[1].num_filters or image.channels, "crop"))
    if len(input) > 2 or shape is None or len(shape) != 4 or axis not in (1, 2, 3) or len(offset) != 4 - axis:
        raise UsageError(
            f"crop: expected one or two inputs, a shape (N, C, H, W) and {4 - axis} offsets; got {len(input)} inputs, "
            f"{shape} and {offset}"
        )
    starts = [0] * (axis - 1) + [int(value) for value in offset]
    sizes = [*image[: axis - 1], *(int(value) for value in shape[axis:])]
    if any(start < 0 or start + size > end for start, size, end in zip(starts, sizes, image, strict=True)):
        raise UsageError(
            f"crop: expected a region inside an image of {tuple(image)}, got {sizes} at {starts}"
        )
    return made_of_image(input[0], image, Geometry(*sizes), {"starts": tuple(starts), "sizes": tuple(sizes)})


@emits("crop")
def _crop(emitter: Emitter, config: LayerConfig) -> Variable:
    starts, sizes = config.attrs["starts"], config.attrs["sizes"]
    assert isinstance(starts, tuple)
    assert isinstance(sizes, tuple)
    attrs = {"axes": [1, 2, 3], "starts": [*starts], "ends": [*map(operator.add, starts, sizes)]}
    return emitter.op("slice", {"Input": source_image(emitter, config)}, attrs)


@declares("input, indices, value, name=None")
def scale_sub_region(input: LayerOutput, indices: LayerOutput, value: float) -> Made:
    """Declare a layer that multiplies a region of each image by `value`.

    Args:
        indices: a layer of size 6: first and last channel, row and column of the part, counted from 1.
        value: the factor.
    """
    image = geometry(input, None, "scale_sub_region")
    require_size(indices, 6, "indices of scale_sub_region")
    return Made([input, indices], input.size, {**image.attrs, "value": float(value)}, image=image)


@emits("scale_sub_region")
def _scale_sub_region(emitter: Emitter, config: LayerConfig) -> Variable:
    inputs = {"X": source_image(emitter, config), "Indices": emitter.rows(config.inputs[1].layer)}
    return emitter.op("scale_sub_region", inputs, {"value": config.attrs["value"]})


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
    """Declare a layer that splits images into windows, the rows of a sequence, from left to right and top to bottom.

    A row contains the window's values in the order (channels, block_y, block_x).
    """
    channels = num_channels or input.num_filters
    if not channels:
        raise UsageError(f"block_expand: input {input.name!r} is not an image; give num_channels")
    block = pair((block_x, block_y), None, "block_expand: block", least=0)
    steps = pair((stride_x, stride_y), None, "block_expand: stride", least=0)
    pads = pair((padding_x, padding_y), None, "block_expand: padding", least=0)
    image = geometry(input, channels, "block_expand")
    attrs: Attrs = {**image.attrs, "kernels": block[::-1], "strides": steps[::-1], "paddings": pads[::-1] * 2}
    return Made([input], image.channels * block[0] * block[1], attrs)


@emits("block_expand")
def _block_expand(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs = {key: config.attrs[key] for key in ("kernels", "strides", "paddings")}
    for key, what in (("kernels", "block"), ("strides", "stride")):
        pair(attrs[key], None, f"block_expand: (y, x) {what} of {config.name!r}", least=1)  # type: ignore[arg-type]
    return emitter.unary("im2sequence", source_image(emitter, config), **attrs)
