# SPDX-License-Identifier: Apache-2.0
"""Layers that rearrange, normalise or choose rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.graph import Variable
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    Act,
    LayerAttr,
    LayerOutput,
    as_list,
    build,
    require_layer,
    require_same_size,
    require_size,
)
from paddle.v2.model import LayerConfig

__all__ = [
    "clip", "convex_comb", "linear_comb", "max_id", "multiplex", "repeat", "resize", "row_l2_norm", "sampling_id",
    "sum_to_one_norm", "trans",
]  # fmt: skip


def clip(input: LayerOutput, min: float, max: float, name: str | None = None) -> LayerOutput:
    """Declare values cut to [min, max]."""
    require_layer(input, "clip")
    if not min < max:
        raise UsageError(f"clip: min {min} must be below max {max}")
    attrs = {"min": float(min), "max": float(max)}
    return build("clip", [input], input.size, name, image=input.image, attrs=attrs)


@emits("clip", together=None)
def _clip(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.op("clip", {"X": emitter.first(config)}, config.attrs)


def sum_to_one_norm(input: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None) -> LayerOutput:
    """Declare rows divided by their sums."""
    return _same_size("sum_to_one_norm", input, name, layer_attr)


@emits("sum_to_one_norm", together=None)
def _sum_to_one_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.binary("elementwise_div", value, emitter.row_sum(value), axis=0)


def row_l2_norm(input: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None) -> LayerOutput:
    """Declare rows divided by their Euclidean lengths."""
    return _same_size("row_l2_norm", input, name, layer_attr)


@emits("row_l2_norm", together=None)
def _row_l2_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    lengths = emitter.unary("sqrt", emitter.row_sum(emitter.unary("square", value)))
    return emitter.binary("elementwise_div", value, lengths, axis=0)


def trans(input: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None) -> LayerOutput:
    """Declare the transpose of the batch's matrix (N, size)."""
    return _same_size("trans", input, name, layer_attr)


@emits("trans")
def _trans(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.ops("transpose2", {"X": value}, {"axis": [1, 0]}, ["Out", "XShape"])[0]


def resize(input: LayerOutput, size: int, name: str | None = None) -> LayerOutput:
    """Declare the batch's numbers cut into rows of ``size``."""
    require_layer(input, "resize")
    return build("resize", [input], size, name)


@emits("resize")
def _resize(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.reshape(emitter.first(config), [-1, config.size])


def repeat(
    input: LayerOutput,
    num_repeats: int,
    as_row_vector: bool = True,
    act: Act = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare each row repeated: [x1 x2 x1 x2] as a row vector, [x1 x1 x2 x2] otherwise."""
    require_layer(input, "repeat")
    if act is not None and act.name:
        raise UsageError("repeat: put the activation on another layer")
    attrs, size = {"times": num_repeats, "as_row_vector": as_row_vector}, input.size * num_repeats
    return build("repeat", [input], size, name, prefix="repeat_layer", layer_attr=layer_attr, attrs=attrs)


@emits("repeat", together=None)
def _repeat(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    times = int(config.attrs["times"])  # type: ignore[arg-type]
    if config.attrs["as_row_vector"]:
        result = emitter.unary("expand", value, expand_times=[1, times])
    else:
        column = emitter.reshape(value, [-1, value.shape[1], 1])
        result = emitter.unary("expand", column, expand_times=[1, 1, times])
    return emitter.reshape(result, [-1, config.size])


def linear_comb(
    weights: LayerOutput,
    vectors: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the sum of M vectors of ``size``, weighted by M numbers."""
    inputs = as_list([weights, vectors], "linear_comb")
    size = vectors.size // weights.size if size is None else size
    require_size(vectors, weights.size * size, "linear_comb")
    return build("linear_comb", inputs, size, name, prefix="linear_comb_layer", layer_attr=layer_attr)


convex_comb = linear_comb


@emits("linear_comb", together=None)
def _linear_comb(emitter: Emitter, config: LayerConfig) -> Variable:
    weights, vectors = emitter.inputs(config)
    return _sum_of(emitter, config, weights, emitter.reshape(vectors, [-1, weights.shape[1], config.size]))


def _sum_of(emitter: Emitter, config: LayerConfig, weights: Variable, vectors: Variable) -> Variable:
    """The sum of vectors (N, M, size), weighted by (N, M)."""
    row = emitter.reshape(weights, [-1, 1, weights.shape[1]])
    return emitter.reshape(emitter.binary("matmul", row, vectors), [-1, config.size])


def multiplex(
    input: Sequence[LayerOutput], name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare rows chosen by the first input: its integer k takes the row of input k + 1."""
    inputs = as_list(input, "multiplex")
    if len(inputs) < 3:
        raise UsageError(f"multiplex takes an index and at least two layers, got {len(inputs)} inputs")
    size = require_same_size(inputs[1:], "multiplex")
    return build("multiplex", inputs, size, name, prefix="multiplex_layer", layer_attr=layer_attr)


@emits("multiplex", together=None)
def _multiplex(emitter: Emitter, config: LayerConfig) -> Variable:
    index, *choices = (link.layer for link in config.inputs)
    chosen = emitter.unary("one_hot", emitter.label(index), depth=len(choices))
    stacked = emitter.op("stack", {"X": [*map(emitter.rows, choices)]}, {"axis": 1}, "Y")
    return _sum_of(emitter, config, chosen, stacked)


@emits("ids")
def _ids(emitter: Emitter, config: LayerConfig) -> None:
    emitter.ids[config.name] = emitter.label(config.inputs[0].layer)


def sampling_id(input: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None) -> LayerOutput:
    """Declare an id for each row, drawn by the chances that the row has for all of them."""
    return _same_size("sampling_id", input, name, layer_attr)


@emits("sampling_id")
def _sampling_id(emitter: Emitter, config: LayerConfig) -> None:
    drawn = emitter.unary("sampling_id", emitter.first(config))
    emitter.ids[config.name] = emitter.reshape(drawn, [-1, 1])


def max_id(input: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None) -> LayerOutput:
    """Declare the column of each row's largest value, an id below the input's size; infer reads it with field='id'."""
    return _same_size("max_id", input, name, layer_attr, "maxid_layer")


@emits("max_id", together=None)
def _max_id(emitter: Emitter, config: LayerConfig) -> None:
    value = emitter.readable(config.inputs[0].layer)
    largest, column = emitter.ops("top_k", {"X": value}, {"k": 1}, ["Out", "Indices"])
    emitter.ids[config.name] = column
    emitter.set_probabilities(config.name, largest)


def _same_size(
    kind: str, input: LayerOutput, name: str | None, layer_attr: LayerAttr, prefix: str = ""
) -> LayerOutput:
    require_layer(input, kind)
    return build(kind, [input], input.size, name, prefix=prefix or f"{kind}_layer", layer_attr=layer_attr)
