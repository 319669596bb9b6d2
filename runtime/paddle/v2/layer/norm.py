# SPDX-License-Identifier: Apache-2.0
"""Batch normalisation.

Training uses the batch's mean and biased variance and moves the static parameters .w1 (mean) and .w2 (variance),
which start at 0; testing reads these two. They are never sent to parameter servers, but saved.
"""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2 import activation, model
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import NotAvailableError
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.geometry import geometry
from paddle.v2.layer.output import (
    BiasAttr,
    LayerOutput,
    activation_name,
    add_bias,
    declare,
    extras_of,
    require_layer,
    weight_attr,
)
from paddle.v2.model import ZEROS, Attrs, InputConfig, LayerConfig


def batch_norm(
    input: LayerOutput,
    act: activation.Base | None = None,
    name: str | None = None,
    img3D: bool = False,
    num_channels: int | None = None,
    bias_attr: BiasAttr = None,
    param_attr: ParameterAttribute | None = None,
    layer_attr: ExtraLayerAttribute | None = None,
    batch_norm_type: str | None = None,
    epsilon: float = 1e-5,
    moving_average_fraction: float = 0.9,
    use_global_stats: bool | None = None,
    mean_var_names: tuple[str, str] | None = None,
) -> LayerOutput:
    """Declare batch normalisation per channel (per column for a layer that is no image); default activation Relu.

    ``batch_norm_type`` chooses an implementation in the original and has no effect here.
    """
    require_layer(input, "batch_norm")
    if img3D:
        raise NotAvailableError("batch_norm(img3D=True) is not available")
    name = model.current().auto_name("batch_norm", name)
    channels, height, width = input.size, 1, 1
    if num_channels or input.num_filters:
        channels, height, width = geometry(input, num_channels, f"batch_norm {name!r}")
    space = model.current()
    scale = weight_attr(param_attr).or_normal(1.0, 0.0)
    mean_name, var_name = mean_var_names or (f"_{name}.w1", f"_{name}.w2")
    static = ParameterAttribute(is_static=True, initial_mean=0.0, initial_std=0.0)
    inputs = (
        InputConfig(input.name, space.add_parameter(f"_{name}.w0", [], scale, size=channels)),
        InputConfig(input.name, space.add_parameter(mean_name, [1, channels], static)),
        InputConfig(input.name, space.add_parameter(var_name, [1, channels], static)),
    )
    attrs: Attrs = {
        "channels": channels,
        "in_height": height,
        "in_width": width,
        "epsilon": epsilon,
        "momentum": moving_average_fraction,
        "test_with_batch": use_global_stats is False,
    }
    act_name = activation_name(act, "relu")
    config = LayerConfig(
        name,
        "batch_norm",
        input.size,
        inputs,
        act_name,
        add_bias(name, [1, channels], ZEROS if bias_attr is None else bias_attr, default=True),
        extras_of(layer_attr, act_name),
        input.num_filters,
        input.height,
        input.width,
        attrs=attrs,
    )
    return declare(config, [input])


@emits("batch_norm")
def _emit_batch_norm(emitter: Emitter, config: LayerConfig) -> None:
    attrs, name = config.attrs, config.inputs[0].layer
    channels, height, width = (int(attrs[key]) for key in ("channels", "in_height", "in_width"))  # type: ignore[arg-type]
    value = emitter.rows(name) if height * width == 1 else emitter.image(name, channels, height, width)
    scale, mean, variance = (emitter.shaped_parameter(link.parameter, [channels]) for link in config.inputs)
    bias = emitter.shaped_parameter(config.bias, [channels]) if config.bias else _zeros(emitter, channels)
    reads_moving = emitter.is_test and not attrs["test_with_batch"]
    result, *_ = emitter.ops(
        "batch_norm",
        {"X": value, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance},
        {"momentum": attrs["momentum"], "epsilon": attrs["epsilon"], "is_test": reads_moving},
        ["Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"],
        {"MeanOut": mean, "VarianceOut": variance} if emitter.moves_statistics else {},
    )
    emitter.finish(config, result)


def _zeros(emitter: Emitter, channels: int) -> Variable:
    return emitter.op("fill_constant", {}, {"shape": [channels], "value": 0.0})
