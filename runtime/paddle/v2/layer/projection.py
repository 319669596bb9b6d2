# SPDX-License-Identifier: Apache-2.0
"""Projections and operators: the terms that ``mixed`` sums and ``concat`` concatenates.

Convolutions have learned filters (projections) or separate filters per sample (operators).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from paddle.graph import Variable
from paddle.v2 import model
from paddle.v2.data_type import DataType
from paddle.v2.errors import UsageError
from paddle.v2.layer.convolution import Window, convolved, filters_shape, image_window
from paddle.v2.layer.emitter import Emitter
from paddle.v2.layer.image import geometry
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    WeightAttr,
    require_layer,
    require_same_size,
    require_size,
    weight_attr,
)
from paddle.v2.model import ZEROS, Attrs, InputConfig
from paddle_node.contract.classes import dataclass, field

__all__ = [
    "context_projection", "conv_operator", "conv_projection", "dotmul_operator", "dotmul_projection",
    "full_matrix_projection", "identity_projection", "scaling_projection", "slice_projection", "table_projection",
    "trans_full_matrix_projection",
]  # fmt: skip


@dataclass(frozen=True)
class Projection:
    """A term of ``mixed`` or ``concat`` that is not yet part of a layer; size 0 stands for the layer's size."""

    kind: str
    layers: tuple[LayerOutput, ...]
    size: int = 0
    attribute: WeightAttr = None
    attrs: Attrs = field(default_factory=dict)

    def bind(self, layer_name: str, index: int, size: int) -> InputConfig:
        """Register the term's parameter, if it has one, and return the layer's input configuration."""
        size = self.size or size
        dims = _DIMS[self.kind](self.layers[0].size, size) if self.kind in _DIMS else None
        if self.kind == "padded_context":
            dims = (int(self.attrs["padding"]), self.layers[0].size)  # type: ignore[arg-type]
        parameter = ""
        weights: Any = self.attrs.get("weights")
        if dims is not None or weights is not None:
            parameter = model.current().add_parameter(
                f"_{layer_name}.w{index}", dims or (), weight_attr(self.attribute), size=weights
            )
        other = {"other": self.layers[1].name} if len(self.layers) > 1 else {}
        return InputConfig(self.layers[0].name, parameter, self.kind, size, {**self.attrs, **other})


_DIMS: Mapping[str, Callable[[int, int], Sequence[int]]] = {
    "full_matrix": lambda width, size: (width, size),
    "trans_full_matrix": lambda width, size: (size, width),
    "table": lambda width, size: (width, size),
    "dotmul": lambda width, size: (1, size),
    "scaling": lambda width, size: (1, 1),
}


def full_matrix_projection(input: LayerOutput, size: int = 0, param_attr: WeightAttr = None) -> Projection:
    """Return the projection X W, with a learned W of shape [input size, size]."""
    require_layer(input, "full_matrix_projection")
    return Projection("full_matrix", (input,), size, param_attr)


def trans_full_matrix_projection(
    input: LayerOutput, size: int = 0, param_attr: WeightAttr = None
) -> Projection:
    """Return the projection X Wᵀ, with a learned W of shape [size, input size]."""
    require_layer(input, "trans_full_matrix_projection")
    return Projection("trans_full_matrix", (input,), size, param_attr)


def table_projection(input: LayerOutput, size: int = 0, param_attr: WeightAttr = None) -> Projection:
    """Return the projection of an id to its row of a learned table W [range of the input, size]."""
    require_layer(input, "table_projection")
    if input.data_type is not None and input.data_type.type != DataType.Index:
        raise UsageError(
            "tables (embedding, table_projection) look up integer ids, but data layer "
            f"{input.name!r} is {input.data_type}; declare it as integer_value or "
            "integer_value_sequence"
        )
    return Projection("table", (input,), size, param_attr)


def identity_projection(input: LayerOutput, offset: int | None = None, size: int | None = None) -> Projection:
    """Return a projection without weights: the input itself, or `size` columns of it starting at `offset`."""
    require_layer(input, "identity_projection")
    if offset is None:
        if size not in (None, input.size):
            raise UsageError(
                f"identity_projection: layer {input.name!r} has {input.size} columns; to select {size}, give offset"
            )
        return Projection("identity", (input,), input.size)
    size = input.size - offset if size is None else size
    _check_range(input, offset, offset + size)
    return Projection("slice", (input,), size, attrs={"starts": (offset,), "ends": (offset + size,)})


def slice_projection(input: LayerOutput, slices: Sequence[tuple[int, int]]) -> Projection:
    """Return a projection without weights: the column ranges [start, end) of the input, concatenated."""
    require_layer(input, "slice_projection")
    for start, end in slices:
        _check_range(input, start, end)
    starts, ends = tuple(start for start, _ in slices), tuple(end for _, end in slices)
    return Projection("slice", (input,), sum(ends) - sum(starts), attrs={"starts": starts, "ends": ends})


def scaling_projection(input: LayerOutput, param_attr: WeightAttr = None) -> Projection:
    """Return the projection w X, with one learned number w."""
    require_layer(input, "scaling_projection")
    return Projection("scaling", (input,), input.size, param_attr)


def dotmul_projection(input: LayerOutput, param_attr: WeightAttr = None) -> Projection:
    """Return the projection w ⊙ X: the elementwise product of each row and a learned vector."""
    require_layer(input, "dotmul_projection")
    return Projection("dotmul", (input,), input.size, param_attr)


def context_projection(
    input: LayerOutput,
    context_len: int,
    context_start: int | None = None,
    padding_attr: BiasAttr = False,
) -> Projection:
    """Return a projection that concatenates `context_len` rows of the sequence, starting at row t + context_start.

    Args:
        context_len: the number of concatenated rows.
        context_start: offset of the first row; if None, -(context_len - 1) / 2, rounded down.
        padding_attr: False to pad with zeros; an attribute for learned rows, or True for rows that start at 0.
    """
    require_layer(input, "context_projection")
    if context_len < 1:
        raise UsageError(f"context_projection: context_len must be at least 1, got {context_len}")
    start = -(context_len - 1) // 2 if context_start is None else context_start
    attrs = {"start": start, "length": context_len}
    before, behind = max(0, -start), max(0, start + context_len - 1)
    if padding_attr is not False and before + behind:
        attrs["padding"] = before + behind
        given = ZEROS if padding_attr is True or padding_attr is None else padding_attr
        rows = weight_attr(given, "padding_attr")
        return Projection("padded_context", (input,), input.size * context_len, rows, attrs)
    return Projection("context", (input,), input.size * context_len, attrs=attrs)


def dotmul_operator(a: LayerOutput, b: LayerOutput, scale: float = 1.0) -> Projection:
    """Return the operator scale · a ⊙ b, the elementwise product of two layers."""
    require_layer(a, "dotmul_operator")
    require_layer(b, "dotmul_operator")
    size = require_same_size([a, b], "dotmul_operator")
    return Projection("dotmul_operator", (a, b), size, attrs={"scale": float(scale)})


def project(emitter: Emitter, link: InputConfig) -> Variable:
    """Emit the operators of one term; return its value (N, link.size)."""
    return PROJECTORS[link.projection](emitter, link)


def _check_range(layer: LayerOutput, start: int, end: int) -> None:
    if not 0 <= start < end <= layer.size:
        raise UsageError(
            f"expected columns within layer {layer.name!r} of size {layer.size}, got [{start}, {end})"
        )


def _trans(emitter: Emitter, link: InputConfig) -> Variable:
    weight = emitter.parameter(link.parameter)
    return emitter.binary("matmul", emitter.rows(link.layer), weight, transpose_X=False, transpose_Y=True)


def _table(emitter: Emitter, link: InputConfig) -> Variable:
    return emitter.lookup(emitter.label(link.layer), link.parameter)


def _identity(emitter: Emitter, link: InputConfig) -> Variable:
    return emitter.rows(link.layer)


def _slice(emitter: Emitter, link: InputConfig) -> Variable:
    value, attrs = emitter.rows(link.layer), link.attrs
    ranges: Iterable[tuple[int, int]] = zip(attrs["starts"], attrs["ends"], strict=True)  # type: ignore[arg-type]
    parts = [emitter.columns(value, start, end) for start, end in ranges]
    return parts[0] if len(parts) == 1 else emitter.op("concat", {"X": parts}, {"axis": 1})


def _times_learnt(emitter: Emitter, link: InputConfig) -> Variable:
    factor = emitter.shaped_parameter(link.parameter, [1 if link.projection == "scaling" else link.size])
    return emitter.binary("elementwise_mul", emitter.rows(link.layer), factor, axis=1)


def _context(emitter: Emitter, link: InputConfig) -> Variable:
    value = emitter.rows(link.layer)
    inputs = {"X": emitter.joined(value)}
    if link.parameter:
        inputs["PaddingData"] = emitter.parameter(link.parameter)
    attrs = {"contextStart": link.attrs["start"], "contextLength": link.attrs["length"]}
    return emitter.levelled(emitter.op("sequence_context", inputs, attrs), value)


def _dotmul_operator(emitter: Emitter, link: InputConfig) -> Variable:
    sides = emitter.rows(link.layer), emitter.rows(str(link.attrs["other"]))
    product, scale = emitter.binary("elementwise_mul", *sides), link.attrs["scale"]
    return product if scale == 1.0 else emitter.unary("scale", product, scale=scale)


PROJECTORS: dict[str, Callable[[Emitter, InputConfig], Variable]] = {
    "full_matrix": Emitter.product,
    "trans_full_matrix": _trans,
    "table": _table,
    "identity": _identity,
    "slice": _slice,
    "scaling": _times_learnt,
    "dotmul": _times_learnt,
    "context": _context,
    "padded_context": _context,
    "dotmul_operator": _dotmul_operator,
}
"""Kind of a term -> the operators that it appends; modules of further terms enter theirs."""


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
