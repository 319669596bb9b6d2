# SPDX-License-Identifier: Apache-2.0
"""batch_norm: the batch normalization layer.

Training uses the batch's mean and biased variance and moves the static parameters .w1 (mean) and .w2 (variance),
which start at 0; testing reads these two. They are saved, but never sent to parameter servers.
"""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2 import model
from paddle.v2.attr import ParameterAttribute
from paddle.v2.layer.convolution import volume_of
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import Geometry, geometry, source_image
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    WeightAttr,
    build,
    or_zeros,
    require_layer,
    weight_attr,
)
from paddle.v2.model import InputConfig, LayerConfig

__all__ = ["batch_norm"]


def batch_norm(
    input: LayerOutput,
    act: Act = None,
    name: str | None = None,
    img3D: bool = False,
    num_channels: int | None = None,
    bias_attr: BiasAttr = None,
    param_attr: WeightAttr = None,
    layer_attr: LayerAttr = None,
    batch_norm_type: str | None = None,
    epsilon: float = 1e-5,
    moving_average_fraction: float = 0.9,
    use_global_stats: bool | None = None,
    mean_var_names: tuple[str, str] | None = None,
) -> LayerOutput:
    """Declare batch normalization (Ioffe and Szegedy, 2015) per channel, or per column for non-images; Relu by default.

    With ``img3D``, the input is a volume. ``batch_norm_type`` has no effect; in the original, it selects an
    implementation.
    """
    require_layer(input, "batch_norm")
    name = model.current().auto_name("batch_norm", name)
    seen = Geometry(input.size, 1, 1)
    if img3D:
        channels, depth, height, width = volume_of(input, num_channels, f"batch_norm {name!r}")
        seen = Geometry(channels, depth * height, width)
    elif num_channels or input.num_filters:
        seen = geometry(input, num_channels, f"batch_norm {name!r}")
    space = model.current()
    scale = space.add_parameter(f"_{name}.w0", [], weight_attr(param_attr).or_normal(1.0, 0.0), size=seen[0])
    static = ParameterAttribute(is_static=True, initial_mean=0.0, initial_std=0.0)
    moving = mean_var_names or (f"_{name}.w1", f"_{name}.w2")
    statistics = [space.add_parameter(each, [1, seen.channels], static) for each in moving]
    return build(
        "batch_norm",
        [input],
        input.size,
        name,
        links=[InputConfig(input.name, parameter) for parameter in (scale, *statistics)],
        act=act,
        default_act="relu",
        bias=or_zeros(bias_attr),
        bias_dims=[1, seen.channels],
        layer_attr=layer_attr,
        image=input.image,
        attrs={
            **seen.attrs,
            **input.volume,
            "epsilon": epsilon,
            "momentum": moving_average_fraction,
            "test_with_batch": use_global_stats is False,
        },
    )


@emits("batch_norm", together=None)
def _batch_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    attrs, channels = config.attrs, int(config.attrs["channels"])  # type: ignore[arg-type]
    is_flat = (attrs["in_height"], attrs["in_width"]) == (1, 1)
    value = emitter.first(config) if is_flat else source_image(emitter, config)
    scale, mean, variance = (emitter.shaped_parameter(link.parameter, [channels]) for link in config.inputs)
    if config.bias:
        bias = emitter.shaped_parameter(config.bias, [channels])
    else:
        bias = emitter.op("fill_constant", {}, {"shape": [channels], "value": 0.0})
    reads_moving = emitter.is_test and not attrs["test_with_batch"]
    return emitter.ops(
        "batch_norm",
        {"X": value, "Scale": scale, "Bias": bias, "Mean": mean, "Variance": variance},
        {"momentum": attrs["momentum"], "epsilon": attrs["epsilon"], "is_test": reads_moving},
        ["Y", "MeanOut", "VarianceOut", "SavedMean", "SavedVariance"],
        {"MeanOut": mean, "VarianceOut": variance} if emitter.moves_statistics else {},
    )[0]
