# SPDX-License-Identifier: Apache-2.0
"""Layers that rearrange, normalise or choose rows and columns."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.v2 import activation
from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import (
    LayerOutput,
    as_list,
    require_layer,
    require_same_size,
    require_size,
    simple,
)


def clip(input: LayerOutput, min: float, max: float, name: str | None = None) -> LayerOutput:
    """Declare values cut to [min, max]."""
    require_layer(input, "clip")
    if not min < max:
        raise UsageError(f"clip: min {min} must be below max {max}")
    return simple(
        "clip",
        "clip",
        [input],
        input.size,
        name=name,
        attrs={"min": float(min), "max": float(max)},
        like=input,
    )


def sum_to_one_norm(
    input: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows divided by their sums."""
    require_layer(input, "sum_to_one_norm")
    return simple(
        "sum_to_one_norm", "sum_to_one_norm_layer", [input], input.size, name=name, layer_attr=layer_attr
    )


def row_l2_norm(
    input: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows divided by their Euclidean lengths."""
    require_layer(input, "row_l2_norm")
    return simple("row_l2_norm", "row_l2_norm_layer", [input], input.size, name=name, layer_attr=layer_attr)


def trans(
    input: LayerOutput, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare the transpose of the batch's matrix (N, size)."""
    require_layer(input, "trans")
    return simple("trans", "trans_layer", [input], input.size, name=name, layer_attr=layer_attr)


def resize(input: LayerOutput, size: int, name: str | None = None) -> LayerOutput:
    """Declare the batch's numbers cut into rows of ``size``."""
    require_layer(input, "resize")
    return simple("resize", "resize", [input], size, name=name)


def repeat(
    input: LayerOutput,
    num_repeats: int,
    as_row_vector: bool = True,
    act: activation.Base | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare each row repeated: [x1 x2 x1 x2] as a row vector, [x1 x1 x2 x2] otherwise."""
    require_layer(input, "repeat")
    if act is not None and act.name:
        raise UsageError("repeat: put the activation on another layer")
    attrs = {"times": num_repeats, "as_row_vector": as_row_vector}
    size = input.size * num_repeats
    return simple("repeat", "repeat_layer", [input], size, name=name, attrs=attrs, layer_attr=layer_attr)


def linear_comb(
    weights: LayerOutput,
    vectors: LayerOutput,
    size: int | None = None,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the sum of M vectors of ``size``, weighted by M numbers."""
    inputs = as_list([weights, vectors], "linear_comb")
    size = vectors.size // weights.size if size is None else size
    require_size(vectors, weights.size * size, "linear_comb")
    return simple("linear_comb", "linear_comb_layer", inputs, size, name=name, layer_attr=layer_attr)


convex_comb = linear_comb


def multiplex(
    input: Sequence[LayerOutput],
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows chosen by the first input: its integer k takes the row of input k + 1."""
    inputs = as_list(input, "multiplex")
    if len(inputs) < 3:
        raise UsageError(f"multiplex takes an index and at least two layers, got {len(inputs)} inputs")
    size = require_same_size(inputs[1:], "multiplex")
    return simple("multiplex", "multiplex_layer", inputs, size, name=name, layer_attr=layer_attr)


def max_id(
    input: LayerOutput, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare the column of each row's largest value, an id below the input's size; infer reads it with field='id'."""
    require_layer(input, "max_id")
    return simple("max_id", "maxid_layer", [input], input.size, name=name, layer_attr=layer_attr)


def sampling_id(
    input: LayerOutput, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare an id for each row, drawn by the chances that the row has for all of them."""
    require_layer(input, "sampling_id")
    return simple("sampling_id", "sampling_id_layer", [input], input.size, name=name, layer_attr=layer_attr)
