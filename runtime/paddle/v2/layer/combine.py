# SPDX-License-Identifier: Apache-2.0
"""Layers that combine or transform rows elementwise or by products, with few weights or none."""

from __future__ import annotations

from typing import Any

from paddle.graph import Variable
from paddle.signatures import takes
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.mixed import fc, mixed
from paddle.v2.layer.output import (
    LayerOutput,
    Weight,
    WeightAttr,
    affine,
    as_list,
    require_layer,
    require_same_size,
    require_size,
    weight_attr,
)
from paddle.v2.layer.projection import dotmul_operator
from paddle.v2.model import LayerConfig

__all__ = [
    "addto", "conv_shift", "cos_sim", "dot_prod", "dropout", "factorization_machine", "gated_unit", "interpolation",
    "l2_distance", "out_prod", "power", "prelu", "scale_shift", "scaling", "slope_intercept", "tensor",
]  # fmt: skip

_OF_FC = ("param_attr", "bias_attr", "attr")


@declares("input, act=None, name=None, bias_attr=None, layer_attr=None", many=True)
def addto(input: list[LayerOutput]) -> Made:
    """Declare the elementwise sum of layers of the same size; by default, it has no bias."""
    return Made(input, require_same_size(input, "addto"), input[0].volume, image=input[0].image)


@emits("addto", together=None)
def _addto(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.add_bias(emitter.add_all(emitter.inputs(config)), config.bias)


def dropout(input: LayerOutput, dropout_rate: float, name: str | None = None) -> LayerOutput:
    """Declare a dropout layer (Srivastava et al., 2014).

    In training, it masks values without rescaling; in testing, it scales them by (1 - rate).
    """
    name = model.current().auto_name("dropout", name)
    return addto([input], name=name, layer_attr=ExtraLayerAttribute(drop_rate=dropout_rate))


@declares("a, b, scale=1, size=1, name=None, layer_attr=None")
def cos_sim(a: LayerOutput, b: LayerOutput, scale: float, size: int) -> Made:
    """Declare `scale` times the cosine similarity of two rows, or of ``a`` and each of `size` parts of ``b``."""
    require_layer(a, "cos_sim")
    require_layer(b, "cos_sim")
    require_size(b, a.size * size, "cos_sim")
    return Made([a, b], size, {"scale": float(scale)})


@emits("cos_sim")
def _cos_sim(emitter: Emitter, config: LayerConfig) -> Variable:
    a, b = emitter.inputs(config)
    width = a.shape[1]
    if config.size > 1:
        a = emitter.unary("expand", a, expand_times=[1, config.size])
    sides = {"X": emitter.reshape(a, [-1, width]), "Y": emitter.reshape(b, [-1, width])}
    cosine = emitter.ops("cos_sim", sides, None, ["Out", "XNorm", "YNorm"])[0]
    return emitter.reshape(emitter.unary("scale", cosine, scale=config.attrs["scale"]), [-1, config.size])


@declares("x, y, name=None, layer_attr=None")
def l2_distance(x: LayerOutput, y: LayerOutput) -> Made:
    """Declare the Euclidean distance of two rows, a layer of size 1."""
    require_same_size([x, y], "l2_distance")
    return Made([x, y], 1)


@emits("l2_distance", together=None)
def _l2_distance(emitter: Emitter, config: LayerConfig) -> Variable:
    difference = emitter.binary("elementwise_sub", *emitter.inputs(config))
    return emitter.unary("sqrt", emitter.row_sum(emitter.unary("square", difference)))


@declares("input1, input2, name=None, layer_attr=None", prefix="dot_prod_layer")
def dot_prod(input1: LayerOutput, input2: LayerOutput) -> Made:
    """Declare the inner product of two rows, a layer of size 1."""
    require_same_size([input1, input2], "dot_prod")
    return Made([input1, input2], 1)


@emits("dot_prod", together=None)
def _dot_prod(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.row_sum(emitter.binary("elementwise_mul", *emitter.inputs(config)))


@declares("input1, input2, name=None, layer_attr=None", prefix="out_prod_layer")
def out_prod(input1: LayerOutput, input2: LayerOutput) -> Made:
    """Declare the outer product of two rows, as one row in row-major order."""
    return Made(as_list([input1, input2], "out_prod"), input1.size * input2.size)


@emits("out_prod", together=None)
def _out_prod(emitter: Emitter, config: LayerConfig) -> Variable:
    x, y = emitter.inputs(config)
    columns, rows = emitter.reshape(x, [-1, x.shape[1], 1]), emitter.reshape(y, [-1, 1, y.shape[1]])
    return emitter.reshape(emitter.binary("matmul", columns, rows), [-1, config.size])


@declares("a, b, name=None, layer_attr=None", prefix="conv_shift_layer")
def conv_shift(a: LayerOutput, b: LayerOutput) -> Made:
    """Declare the circular convolution of rows: c_i = sum_j a_(i + j) b_j, where j is in ±(n - 1) / 2.

    n is the size of `b`, an odd number; column indexes of `a` wrap around.
    """
    inputs = as_list([a, b], "conv_shift")
    if b.size % 2 == 0 or b.size > a.size:
        raise UsageError(f"conv_shift: b must have an odd size of at most {a.size}, got {b.size}")
    return Made(inputs, a.size)


@emits("conv_shift", together=None)
def _conv_shift(emitter: Emitter, config: LayerConfig) -> Variable:
    a, b = emitter.inputs(config)
    size, reach = config.size, (b.shape[1] - 1) // 2
    ring = a
    if reach:
        ends = emitter.columns(a, size - reach, size), a, emitter.columns(a, 0, reach)
        ring = emitter.op("concat", {"X": list(ends)}, {"axis": 1})
    shifted = [emitter.columns(ring, at, at + size) for at in range(b.shape[1])]
    factors = [emitter.columns(b, at, at + 1) for at in range(b.shape[1])]
    return emitter.add_all(
        [emitter.binary("elementwise_mul", *each, axis=0) for each in zip(shifted, factors, strict=True)]
    )


@declares(
    "a, b, size, act=None, name=None, param_attr=None, bias_attr=None, layer_attr=None",
    prefix="tensor_layer",
    has_bias=True,
)
def tensor(a: LayerOutput, b: LayerOutput, size: int, param_attr: WeightAttr) -> Made:
    """Declare a bilinear tensor layer, y_k = a W_k bᵀ, with `size` learned matrices W_k."""
    inputs = as_list([a, b], "tensor")
    return Made(inputs, size, weights=[Weight([a.size, b.size, size], param_attr)])


@emits("tensor", together=None)
def _tensor(emitter: Emitter, config: LayerConfig) -> Variable:
    a, b = emitter.inputs(config)
    # As in the original, the parameter holds one matrix after the other, regardless of the order of its dims.
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [config.size, a.shape[1], b.shape[1]])
    value = emitter.op("bilinear_tensor_product", {"X": a, "Y": b, "Weight": weight})
    return emitter.add_bias(value, config.bias)


@declares("input, weight, name=None, layer_attr=None", prefix="scaling_layer")
def scaling(input: LayerOutput, weight: LayerOutput) -> Made:
    """Declare a layer that multiplies each row by the number in the same row of a layer of size 1."""
    require_size(weight, 1, "scaling")
    return Made([weight, input], input.size, image=input.image)


@emits("scaling", together=None)
def _scaling(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, value = emitter.inputs(config)
    return emitter.binary("elementwise_mul", value, weight, axis=0)


@declares("input, weight, name=None, layer_attr=None", prefix="power_layer")
def power(input: LayerOutput, weight: LayerOutput) -> Made:
    """Declare a layer that raises each row to the power in the same row of a layer of size 1."""
    require_size(weight, 1, "power")
    return Made([weight, input], input.size)


@emits("power", together=None)
def _power(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, value = emitter.inputs(config)
    return emitter.binary("elementwise_pow", value, weight, axis=0)


@declares("input, weight, name=None, layer_attr=None", prefix="interpolation_layer", many=True)
def interpolation(input: list[LayerOutput], weight: LayerOutput) -> Made:
    """Declare the linear interpolation w * x + (1 - w) * y of two inputs, with a weight layer of size 1."""
    if len(input) != 2:
        raise UsageError(f"interpolation takes two inputs, got {len(input)}")
    require_size(weight, 1, "interpolation")
    return Made([weight, *input], require_same_size(input, "interpolation"))


@emits("interpolation", together=None)
def _interpolation(emitter: Emitter, config: LayerConfig) -> Variable:
    weight, x, y = emitter.inputs(config)
    pairs = (x, weight), (y, emitter.unary("scale", weight, scale=-1.0, bias=1.0))
    return emitter.add_all([emitter.binary("elementwise_mul", *pair, axis=0) for pair in pairs])


@takes("input, name=None, slope=1.0, intercept=0.0, layer_attr=None")
def slope_intercept(given: dict[str, Any]) -> LayerOutput:
    """Declare the affine function slope * x + intercept of each element, with two constants."""
    require_layer(given["input"], "slope_intercept")
    return affine(given.pop("input"), **given)


@emits("slope_intercept", together=None)
def _slope_intercept(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.unary("scale", value, scale=config.attrs["slope"], bias=config.attrs["intercept"])


@declares("input, name=None, param_attr=None, bias_attr=None", has_bias=True)
def scale_shift(input: LayerOutput, param_attr: WeightAttr) -> Made:
    """Declare the affine function w * x + b of each element, with one learned w and one learned b."""
    return Made([input], input.size, weights=[Weight([1, 1], param_attr)], bias_dims=[1, 1])


@emits("scale_shift", together=None)
def _scale_shift(emitter: Emitter, config: LayerConfig) -> Variable:
    weight = emitter.shaped_parameter(config.inputs[0].parameter, [1])
    value = emitter.binary("elementwise_mul", emitter.first(config), weight, axis=1)
    return emitter.add_bias(value, config.bias)


@declares(
    "input, name=None, partial_sum=1, channel_shared=None, num_channels=None, param_attr=None, layer_attr=None",
    prefix="prelu_layer",
)
def prelu(
    input: LayerOutput,
    partial_sum: int,
    channel_shared: bool | None,
    num_channels: int | None,
    param_attr: WeightAttr,
) -> Made:
    """Declare a parametric ReLU (He et al., 2015): x where x > 0, otherwise w * x.

    Each group of ``partial_sum`` columns shares a learned w, initially 0.25.
    """
    if channel_shared is not None:
        channels = num_channels or input.num_filters
        if not channels:
            raise UsageError(f"prelu: give num_channels, because input {input.name!r} is not an image")
        partial_sum = input.size if channel_shared else input.size // channels
    if partial_sum < 1 or input.size % partial_sum:
        raise UsageError(f"prelu: expected partial_sum to divide the size {input.size}, got {partial_sum}")
    weight = Weight([1, input.size // partial_sum], weight_attr(param_attr).or_normal(0.25, 0.0))
    return Made([input], input.size, {"partial_sum": partial_sum}, [weight], image=input.image)


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


@declares("input, factor_size, act=None, name=None, param_attr=None, layer_attr=None")
def factorization_machine(input: LayerOutput, factor_size: int, param_attr: WeightAttr) -> Made:
    """Declare second-order feature interactions (factorization machine): sum over factors of ((x V)^2 - x^2 V^2) / 2.

    Source: Rendle, 2010.
    """
    return Made([input], 1, weights=[Weight([input.size, factor_size], param_attr)])


@emits("factorization_machine", together=None)
def _factorization_machine(emitter: Emitter, config: LayerConfig) -> Variable:
    x, v = emitter.factors(config.inputs[0])
    of_squares = emitter.binary("mul", emitter.unary("square", x), emitter.unary("square", v))
    of_sum = emitter.unary("square", emitter.binary("mul", x, v))
    difference = emitter.binary("elementwise_sub", of_sum, of_squares)
    return emitter.unary("scale", emitter.row_sum(difference), scale=0.5)


@takes(
    "input, size, act=None, name=None, gate_attr=None, gate_param_attr=None, gate_bias_attr=True, "
    "inproj_attr=None, inproj_param_attr=None, inproj_bias_attr=True, layer_attr=None"
)
def gated_unit(given: dict[str, Any]) -> LayerOutput:
    """Declare a gated linear unit (Dauphin et al., 2017): a fully connected layer times a sigmoid gate on its input."""
    name, size = model.current().auto_name("gated_unit_layer", given["name"]), given["size"]
    value, gate = (
        fc(given["input"], size, act, f"{name}_{what}", *(given[f"{short}_{each}"] for each in _OF_FC))
        for what, short, act in (
            ("input_proj", "inproj", given["act"] or activation.Linear()),
            ("gate", "gate", activation.Sigmoid()),
        )
    )
    return mixed(
        size, [dotmul_operator(value, gate)], name=f"{name}_gated_act", layer_attr=given["layer_attr"]
    )
