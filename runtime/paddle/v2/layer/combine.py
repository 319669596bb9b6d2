# SPDX-License-Identifier: Apache-2.0
"""Layers that combine or transform rows without or with few weights."""

from __future__ import annotations

from collections.abc import Sequence

from paddle.graph import Variable
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.mixed import fc, mixed
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    Weight,
    WeightAttr,
    affine,
    as_list,
    build,
    or_zeros,
    require_layer,
    require_same_size,
    require_size,
    weight_attr,
)
from paddle.v2.layer.projection import dotmul_operator
from paddle.v2.model import LayerConfig

__all__ = [
    "addto", "cos_sim", "dot_prod", "dropout", "factorization_machine", "gated_unit", "interpolation", "l2_distance",
    "out_prod", "power", "prelu", "scale_shift", "scaling", "slope_intercept",
]  # fmt: skip


def addto(
    input: LayerOutput | Sequence[LayerOutput],
    act: Act = None,
    name: str | None = None,
    bias_attr: BiasAttr = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare the elementwise sum of layers of one size; no bias unless given."""
    inputs = as_list(input, "addto")
    size, image = require_same_size(inputs, "addto"), inputs[0].image
    return build("addto", inputs, size, name, act=act, bias=bias_attr, layer_attr=layer_attr, image=image)


@emits("addto", together=None)
def _addto(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.add_bias(emitter.add_all(emitter.inputs(config)), config.bias)


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
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare scale * cosine of two rows; with size > 1, of ``a`` and each of ``size`` parts of ``b``."""
    require_layer(a, "cos_sim")
    require_layer(b, "cos_sim")
    require_size(b, a.size * size, "cos_sim")
    return build("cos_sim", [a, b], size, name, layer_attr=layer_attr, attrs={"scale": float(scale)})


@emits("cos_sim")
def _cos_sim(emitter: Emitter, config: LayerConfig) -> Variable:
    a, b = emitter.inputs(config)
    width = a.shape[1]
    if config.size > 1:
        a = emitter.unary("expand", a, expand_times=[1, config.size])
    sides = {"X": emitter.reshape(a, [-1, width]), "Y": emitter.reshape(b, [-1, width])}
    cosine = emitter.ops("cos_sim", sides, None, ["Out", "XNorm", "YNorm"])[0]
    return emitter.reshape(emitter.unary("scale", cosine, scale=config.attrs["scale"]), [-1, config.size])


def l2_distance(
    x: LayerOutput, y: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare the Euclidean distance of two rows."""
    require_same_size([x, y], "l2_distance")
    return build("l2_distance", [x, y], 1, name, layer_attr=layer_attr)


@emits("l2_distance", together=None)
def _l2_distance(emitter: Emitter, config: LayerConfig) -> Variable:
    difference = emitter.binary("elementwise_sub", *emitter.inputs(config))
    return emitter.unary("sqrt", emitter.row_sum(emitter.unary("square", difference)))


def dot_prod(
    input1: LayerOutput, input2: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare the inner product of two rows."""
    require_same_size([input1, input2], "dot_prod")
    return build("dot_prod", [input1, input2], 1, name, prefix="dot_prod_layer", layer_attr=layer_attr)


@emits("dot_prod", together=None)
def _dot_prod(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.row_sum(emitter.binary("elementwise_mul", *emitter.inputs(config)))


def out_prod(
    input1: LayerOutput, input2: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare the outer product of two rows, row-major."""
    inputs = as_list([input1, input2], "out_prod")
    size = input1.size * input2.size
    return build("out_prod", inputs, size, name, prefix="out_prod_layer", layer_attr=layer_attr)


@emits("out_prod", together=None)
def _out_prod(emitter: Emitter, config: LayerConfig) -> Variable:
    x, y = emitter.inputs(config)
    columns, rows = emitter.reshape(x, [-1, x.shape[1], 1]), emitter.reshape(y, [-1, 1, y.shape[1]])
    return emitter.reshape(emitter.binary("matmul", columns, rows), [-1, config.size])


def scaling(
    input: LayerOutput, weight: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare rows scaled by a layer of size 1."""
    require_size(weight, 1, "scaling")
    inputs, prefix = [weight, input], "scaling_layer"
    return build("scaling", inputs, input.size, name, prefix=prefix, layer_attr=layer_attr, image=input.image)


@emits("scaling", together=None)
def _scaling(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, value = emitter.inputs(config)
    return emitter.binary("elementwise_mul", value, weight, axis=0)


def power(
    input: LayerOutput, weight: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare rows raised to a layer of size 1."""
    require_size(weight, 1, "power")
    return build("power", [weight, input], input.size, name, prefix="power_layer", layer_attr=layer_attr)


@emits("power", together=None)
def _power(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, value = emitter.inputs(config)
    return emitter.binary("elementwise_pow", value, weight, axis=0)


def interpolation(
    input: Sequence[LayerOutput], weight: LayerOutput, name: str | None = None, layer_attr: LayerAttr = None
) -> LayerOutput:
    """Declare w * x + (1 - w) * y for two inputs and a weight of size 1."""
    inputs = as_list(input, "interpolation")
    if len(inputs) != 2:
        raise UsageError(f"interpolation takes two inputs, got {len(inputs)}")
    size = require_same_size(inputs, "interpolation")
    require_size(weight, 1, "interpolation")
    prefix = "interpolation_layer"
    return build("interpolation", [weight, *inputs], size, name, prefix=prefix, layer_attr=layer_attr)


@emits("interpolation", together=None)
def _interpolation(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, x, y = emitter.inputs(config)
    pairs = (x, weight), (y, emitter.unary("scale", weight, scale=-1.0, bias=1.0))
    return emitter.add_all([emitter.binary("elementwise_mul", *pair, axis=0) for pair in pairs])


def slope_intercept(
    input: LayerOutput,
    name: str | None = None,
    slope: float = 1.0,
    intercept: float = 0.0,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare slope * x + intercept."""
    require_layer(input, "slope_intercept")
    return affine(input, slope, intercept, name, layer_attr)


@emits("slope_intercept", together=None)
def _slope_intercept(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.unary("scale", value, scale=config.attrs["slope"], bias=config.attrs["intercept"])


def scale_shift(
    input: LayerOutput, name: str | None = None, param_attr: WeightAttr = None, bias_attr: BiasAttr = None
) -> LayerOutput:
    """Declare w * x + b with one learned w and one learned b."""
    require_layer(input, "scale_shift")
    weights, bias = [Weight([1, 1], param_attr)], or_zeros(bias_attr)
    return build("scale_shift", [input], input.size, name, weights=weights, bias=bias, bias_dims=[1, 1])


@emits("scale_shift", together=None)
def _scale_shift(emitter: Emitter, config: LayerConfig) -> Variable:
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [1])
    value = emitter.binary("elementwise_mul", emitter.first(config), weight, axis=1)
    return emitter.add_bias(value, config.bias)


def prelu(
    input: LayerOutput,
    name: str | None = None,
    partial_sum: int = 1,
    channel_shared: bool | None = None,
    num_channels: int | None = None,
    param_attr: WeightAttr = None,
    layer_attr: LayerAttr = None,
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
    return build(
        "prelu",
        [input],
        input.size,
        name,
        prefix="prelu_layer",
        weights=[Weight([1, input.size // partial_sum], weight_attr(param_attr).or_normal(0.25, 0.0))],
        layer_attr=layer_attr,
        image=input.image,
        attrs={"partial_sum": partial_sum},
    )


@emits("prelu", together=None)
def _prelu(emitter: Emitter, config: LayerConfig) -> Variable:
    partial = int(config.attrs["partial_sum"])  # type: ignore[arg-type]
    groups = config.size // partial
    value = emitter.reshape(emitter.first(config), [-1, groups, partial])
    negative = emitter.unary("relu", emitter.unary("scale", value, scale=-1.0))
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [groups])
    scaled = emitter.binary("elementwise_mul", negative, weight, axis=1)
    result = emitter.binary("elementwise_sub", emitter.unary("relu", value), scaled)
    return emitter.reshape(result, [-1, config.size])


def factorization_machine(
    input: LayerOutput,
    factor_size: int,
    act: Act = None,
    name: str | None = None,
    param_attr: WeightAttr = None,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare second-order feature interactions: sum over factors of ((x V)^2 - x^2 V^2) / 2."""
    require_layer(input, "factorization_machine")
    weights = [Weight([input.size, factor_size], param_attr)]
    return build("factorization_machine", [input], 1, name, weights=weights, act=act, layer_attr=layer_attr)


@emits("factorization_machine", together=None)
def _factorization_machine(emitter: Emitter, config: LayerConfig) -> Variable:
    x, v = emitter.factors(config.inputs[0])
    of_squares = emitter.binary("mul", emitter.unary("square", x), emitter.unary("square", v))
    of_sum = emitter.unary("square", emitter.binary("mul", x, v))
    difference = emitter.binary("elementwise_sub", of_sum, of_squares)
    return emitter.unary("scale", emitter.row_sum(difference), scale=0.5)


def gated_unit(
    input: LayerOutput,
    size: int,
    act: Act = None,
    name: str | None = None,
    gate_attr: LayerAttr = None,
    gate_param_attr: WeightAttr = None,
    gate_bias_attr: BiasAttr = True,
    inproj_attr: LayerAttr = None,
    inproj_param_attr: WeightAttr = None,
    inproj_bias_attr: BiasAttr = True,
    layer_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare a fully connected layer times a sigmoid gate on the same input."""
    name = model.current().auto_name("gated_unit_layer", name)
    linear = activation.Linear() if act is None else act
    value = fc(input, size, linear, f"{name}_input_proj", inproj_param_attr, inproj_bias_attr, inproj_attr)
    gate = fc(input, size, activation.Sigmoid(), f"{name}_gate", gate_param_attr, gate_bias_attr, gate_attr)
    return mixed(size, [dotmul_operator(value, gate)], name=f"{name}_gated_act", layer_attr=layer_attr)
