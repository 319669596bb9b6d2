# SPDX-License-Identifier: Apache-2.0
"""The fully connected layer: act(sum of x_i W_i + b)."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    as_list,
    declare,
    extras_of,
    weight_attr,
)
from paddle.v2.layer.sparse_input import matrix_product
from paddle.v2.model import InputConfig, LayerConfig


def fc(
    input: LayerOutput | Sequence[LayerOutput],
    size: int,
    act: activation.Base | None = None,
    name: str | None = None,
    param_attr: ParameterAttribute | Sequence[ParameterAttribute] | None = None,
    bias_attr: BiasAttr = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a fully connected layer; the default activation is Tanh.

    Args:
        input: one layer or several, each with its own weight [input size, size].
        size: width of the output.
        act: activation, Tanh by default.
        name: given by the user.
        param_attr: one for all weights, or one for each input.
        bias_attr: True or None for zeros, False for none, or a Param.
        layer_attr: dropout.
    """
    inputs = as_list(input, "fc")
    name = model.current().auto_name("fc_layer", name)
    attrs = weight_attrs(param_attr, len(inputs), name)
    act_name = activation_name(act, "tanh")
    links = tuple(
        InputConfig(
            layer.name,
            model.current().add_parameter(f"_{name}.w{index}", [layer.size, size], attr),
            "full_matrix",
            size,
        )
        for index, (layer, attr) in enumerate(zip(inputs, attrs, strict=True))
    )
    config = LayerConfig(
        name,
        "fc",
        size,
        links,
        act_name,
        add_bias(name, [1, size], bias_attr, default=True),
        extras_of(layer_attr, act_name),
    )
    return declare(config, inputs)


def weight_attrs(
    param_attr: ParameterAttribute | Sequence[ParameterAttribute] | None, count: int, layer: str
) -> list[ParameterAttribute]:
    """One attribute for each of a layer's ``count`` weights."""
    if isinstance(param_attr, Sequence):
        if len(param_attr) != count:
            raise UsageError(f"layer {layer!r} has {count} inputs and {len(param_attr)} param_attr")
        return [weight_attr(attr) for attr in param_attr]
    attr = weight_attr(param_attr)
    if attr.name and count > 1:
        raise UsageError(
            f"layer {layer!r}: one parameter name, {attr.name!r}, for {count} inputs; give a list of param_attr"
        )
    return [attr] * count


@emits("fc")
def _emit_fc(emitter: Emitter, config: LayerConfig) -> None:
    terms = [matrix_product(emitter, link) for link in config.inputs]
    emitter.finish(config, emitter.add_bias(emitter.add_all(terms), config.bias))
