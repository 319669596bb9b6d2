# SPDX-License-Identifier: Apache-2.0
"""Layers that combine or transform rows without or with few weights."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.fc import fc
from paddle.v2.layer.mixed import mixed
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    affine,
    as_list,
    declare,
    extras_of,
    require_layer,
    require_same_size,
    require_size,
    simple,
    weight_attr,
)
from paddle.v2.layer.projection import dotmul_operator
from paddle.v2.model import InputConfig, LayerConfig


def addto(
    input: LayerOutput | Sequence[LayerOutput],
    act: activation.Base | None = None,
    name: str | None = None,
    bias_attr: BiasAttr = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the elementwise sum of layers of one size; no bias unless given."""
    inputs = as_list(input, "addto")
    size = require_same_size(inputs, "addto")
    name = model.current().auto_name("addto", name)
    act_name = activation_name(act, "")
    first = inputs[0]
    config = LayerConfig(
        name,
        "addto",
        size,
        tuple(InputConfig(layer.name) for layer in inputs),
        act_name,
        add_bias(name, [1, size], bias_attr, default=False),
        extras_of(layer_attr, act_name),
        first.num_filters,
        first.height,
        first.width,
    )
    return declare(config, inputs)


def dropout(input: LayerOutput, dropout_rate: float, name: str | None = None) -> LayerOutput:
    """Declare dropout of a layer's values: masked without rescaling in training, times (1 - rate) in testing."""
    name = model.current().auto_name("dropout", name)
    return addto([input], name=name, layer_attr=ExtraLayerAttribute(drop_rate=dropout_rate))


def cos_sim(
    a: LayerOutput,
    b: LayerOutput,
    scale: float = 1,
    size: int = 1,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare scale * cosine of two rows; with size > 1, of ``a`` and each of ``size`` parts of ``b``."""
    require_layer(a, "cos_sim")
    require_layer(b, "cos_sim")
    require_size(b, a.size * size, "cos_sim")
    attrs = {"scale": float(scale)}
    return simple("cos_sim", "cos_sim", [a, b], size, name=name, attrs=attrs, layer_attr=layer_attr)


def l2_distance(
    x: LayerOutput, y: LayerOutput, name: str | None = None, layer_attr: ExtraLayerAttribute | None = None
) -> LayerOutput:
    """Declare the Euclidean distance of two rows."""
    require_same_size([x, y], "l2_distance")
    return simple("l2_distance", "l2_distance", [x, y], 1, name=name, layer_attr=layer_attr)


def dot_prod(
    input1: LayerOutput,
    input2: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the inner product of two rows."""
    require_same_size([input1, input2], "dot_prod")
    return simple("dot_prod", "dot_prod_layer", [input1, input2], 1, name=name, layer_attr=layer_attr)


def out_prod(
    input1: LayerOutput,
    input2: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare the outer product of two rows, row-major."""
    inputs = as_list([input1, input2], "out_prod")
    size = input1.size * input2.size
    return simple("out_prod", "out_prod_layer", inputs, size, name=name, layer_attr=layer_attr)


def scaling(
    input: LayerOutput,
    weight: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows scaled by a layer of size 1."""
    require_size(weight, 1, "scaling")
    return simple(
        "scaling", "scaling_layer", [weight, input], input.size, name=name, layer_attr=layer_attr, like=input
    )


def power(
    input: LayerOutput,
    weight: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare rows raised to a layer of size 1."""
    require_size(weight, 1, "power")
    return simple("power", "power_layer", [weight, input], input.size, name=name, layer_attr=layer_attr)


def interpolation(
    input: Sequence[LayerOutput],
    weight: LayerOutput,
    name: str | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare w * x + (1 - w) * y for two inputs and a weight of size 1."""
    inputs = as_list(input, "interpolation")
    if len(inputs) != 2:
        raise UsageError(f"interpolation takes two inputs, got {len(inputs)}")
    size = require_same_size(inputs, "interpolation")
    require_size(weight, 1, "interpolation")
    return simple(
        "interpolation", "interpolation_layer", [weight, *inputs], size, name=name, layer_attr=layer_attr
    )


def slope_intercept(
    input: LayerOutput,
    name: str | None = None,
    slope: float = 1.0,
    intercept: float = 0.0,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare slope * x + intercept."""
    require_layer(input, "slope_intercept")
    return affine(input, slope, intercept, name, layer_attr)


def scale_shift(
    input: LayerOutput,
    name: str | None = None,
    param_attr: ParameterAttribute | None = None,
    bias_attr: BiasAttr = None,
) -> LayerOutput:
    """Declare w * x + b with one learned w and one learned b."""
    require_layer(input, "scale_shift")
    name = model.current().auto_name("scale_shift", name)
    weight = model.current().add_parameter(f"_{name}.w0", [1, 1], weight_attr(param_attr))
    bias = add_bias(name, [1, 1], bias_attr, default=True)
    return declare(
        LayerConfig(name, "scale_shift", input.size, (InputConfig(input.name, weight),), bias=bias), [input]
    )


def prelu(
    input: LayerOutput,
    name: str | None = None,
    partial_sum: int = 1,
    channel_shared: bool | None = None,
    num_channels: int | None = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare x where positive, w * x elsewhere; ``partial_sum`` neighbouring columns share one w (0.25 at first)."""
    require_layer(input, "prelu")
    if channel_shared is not None:
        channels = num_channels or input.num_filters
        if not channels:
            raise UsageError(f"prelu: give num_channels, input {input.name!r} is no image")
        partial_sum = input.size if channel_shared else input.size // channels
    if partial_sum < 1 or input.size % partial_sum:
        raise UsageError(f"prelu: partial_sum {partial_sum} does not divide the size {input.size}")
    name = model.current().auto_name("prelu_layer", name)
    attr = weight_attr(param_attr).or_normal(0.25, 0.0)
    weight = model.current().add_parameter(f"_{name}.w0", [1, input.size // partial_sum], attr)
    config = LayerConfig(
        name,
        "prelu",
        input.size,
        (InputConfig(input.name, weight),),
        extras=extras_of(layer_attr),
        num_filters=input.num_filters,
        height=input.height,
        width=input.width,
        attrs={"partial_sum": partial_sum},
    )
    return declare(config, [input])


def factorization_machine(
    input: LayerOutput,
    factor_size: int,
    act: activation.Base | None = None,
    name: str | None = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare second-order feature interactions: sum over factors of ((x V)^2 - x^2 V^2) / 2."""
    require_layer(input, "factorization_machine")
    name = model.current().auto_name("factorization_machine", name)
    weight = model.current().add_parameter(f"_{name}.w0", [input.size, factor_size], weight_attr(param_attr))
    act_name = activation_name(act, "")
    link = InputConfig(input.name, weight, size=factor_size)
    extras = extras_of(layer_attr, act_name)
    return declare(LayerConfig(name, "factorization_machine", 1, (link,), act_name, extras=extras), [input])


def gated_unit(
    input: LayerOutput,
    size: int,
    act: activation.Base | None = None,
    name: str | None = None,
    gate_attr: ExtraLayerAttribute | None = None,
    gate_param_attr: ParameterAttribute | None = None,
    gate_bias_attr: BiasAttr = True,
    inproj_attr: ExtraLayerAttribute | None = None,
    inproj_param_attr: ParameterAttribute | None = None,
    inproj_bias_attr: BiasAttr = True,
    layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a fully connected layer times a sigmoid gate on the same input."""
    name = model.current().auto_name("gated_unit_layer", name)
    linear = activation.Linear() if act is None else act
    value = fc(input, size, linear, f"{name}_input_proj", inproj_param_attr, inproj_bias_attr, inproj_attr)
    gate = fc(input, size, activation.Sigmoid(), f"{name}_gate", gate_param_attr, gate_bias_attr, gate_attr)
    return mixed(size, [dotmul_operator(value, gate)], name=f"{name}_gated_act", layer_attr=layer_attr)
