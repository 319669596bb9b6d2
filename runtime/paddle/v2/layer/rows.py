# SPDX-License-Identifier: Apache-2.0
"""Layers that rearrange, normalize or select rows and columns; and batch_norm.

batch_norm: training uses the batch's mean and biased variance and moves the static parameters .w1 (mean) and .w2
(variance), which start at 0; testing reads these two. They are saved, but never sent to parameter servers.
"""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2 import model
from paddle.v2.attr import ParameterAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.convolution import volume_of
from paddle.v2.layer.declared import Made, declares
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.layer.image import Geometry, geometry, source_image
from paddle.v2.layer.output import (
    Act,
    BiasAttr,
    LayerAttr,
    LayerOutput,
    WeightAttr,
    as_list,
    build,
    or_zeros,
    require_layer,
    require_same_size,
    require_size,
    weight_attr,
)
from paddle.v2.model import InputConfig, LayerConfig

__all__ = [
    "batch_norm", "clip", "convex_comb", "eos", "linear_comb", "max_id", "multiplex", "printer", "repeat", "resize",
    "row_l2_norm", "sampling_id", "sum_to_one_norm", "trans",
]  # fmt: skip


@declares("input, min, max, name=None")
def clip(input: LayerOutput, min: float, max: float) -> Made:
    """Declare a layer that clips each element to [min, max]."""
    if not min < max:
        raise UsageError(f"clip: min {min} must be below max {max}")
    return Made([input], input.size, {"min": float(min), "max": float(max)}, image=input.image)


@emits("clip", together=None)
def _clip(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.op("clip", {"X": emitter.first(config)}, config.attrs)


@declares("input, name=None, layer_attr=None", prefix="sum_to_one_norm_layer")
def sum_to_one_norm(input: LayerOutput) -> Made:
    """Declare L1 normalization of rows: a layer that divides each row by its sum."""
    return Made([input], input.size)


@emits("sum_to_one_norm", together=None)
def _sum_to_one_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.binary("elementwise_div", value, emitter.row_sum(value), axis=0)


@declares("input, name=None, layer_attr=None", prefix="row_l2_norm_layer")
def row_l2_norm(input: LayerOutput) -> Made:
    """Declare L2 normalization of rows: a layer that divides each row by its L2 norm."""
    return Made([input], input.size)


@emits("row_l2_norm", together=None)
def _row_l2_norm(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    lengths = emitter.unary("sqrt", emitter.row_sum(emitter.unary("square", value)))
    return emitter.binary("elementwise_div", value, lengths, axis=0)


@declares("input, name=None, layer_attr=None", prefix="trans_layer")
def trans(input: LayerOutput) -> Made:
    """Declare the transpose of the batch's matrix (N, size): N becomes the size."""
    return Made([input], input.size)


@emits("trans")
def _trans(emitter: Emitter, config: LayerConfig) -> Variable:
    value = emitter.first(config)
    return emitter.ops("transpose2", {"X": value}, {"axis": [1, 0]}, ["Out", "XShape"])[0]


@declares("input, size, name=None")
def resize(input: LayerOutput, size: int) -> Made:
    """Declare a layer that reshapes the batch's values to rows of ``size``."""
    return Made([input], size)


@emits("resize")
def _resize(emitter: Emitter, config: LayerConfig) -> Variable:
    return emitter.reshape(emitter.first(config), [-1, config.size])


@declares(
    "input, num_repeats, as_row_vector=True, act=None, name=None, layer_attr=None", prefix="repeat_layer"
)
def repeat(input: LayerOutput, num_repeats: int, as_row_vector: bool) -> Made:
    """Declare a layer that repeats each row's columns: [x1 x2 x1 x2] if as_row_vector, otherwise [x1 x1 x2 x2]."""
    attrs = {"times": num_repeats, "as_row_vector": as_row_vector}
    return Made([input], input.size * num_repeats, attrs)


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


@declares("weights, vectors, size=None, name=None, layer_attr=None", prefix="linear_comb_layer")
def linear_comb(weights: LayerOutput, vectors: LayerOutput, size: int | None) -> Made:
    """Declare the linear combination of M vectors of ``size`` in each row, with M weights per row."""
    inputs = as_list([weights, vectors], "linear_comb")
    size = vectors.size // weights.size if size is None else size
    require_size(vectors, weights.size * size, "linear_comb")
    return Made(inputs, size)


convex_comb = linear_comb


@emits("linear_comb", together=None)
def _linear_comb(emitter: Emitter, config: LayerConfig) -> Variable:
    weights, vectors = emitter.inputs(config)
    return _sum_of(emitter, config, weights, emitter.reshape(vectors, [-1, weights.shape[1], config.size]))


def _sum_of(emitter: Emitter, config: LayerConfig, weights: Variable, vectors: Variable) -> Variable:
    """Return the sum of vectors (N, M, size), weighted by (N, M)."""
    row = emitter.reshape(weights, [-1, 1, weights.shape[1]])
    return emitter.reshape(emitter.binary("matmul", row, vectors), [-1, config.size])


@declares("input, name=None, layer_attr=None", prefix="multiplex_layer", many=True)
def multiplex(input: list[LayerOutput]) -> Made:
    """Declare a layer that selects rows by index: where the first input has the integer k, the row of input k + 1."""
    if len(input) < 3:
        raise UsageError(f"multiplex takes an index and at least two layers, got {len(input)} inputs")
    return Made(input, require_same_size(input[1:], "multiplex"))


@emits("multiplex", together=None)
def _multiplex(emitter: Emitter, config: LayerConfig) -> Variable:
    index, *choices = (link.layer for link in config.inputs)
    chosen = emitter.unary("one_hot", emitter.label(index), depth=len(choices))
    stacked = emitter.op("stack", {"X": [*map(emitter.rows, choices)]}, {"axis": 1}, "Y")
    return _sum_of(emitter, config, chosen, stacked)


@emits("ids")
def _ids(emitter: Emitter, config: LayerConfig) -> None:
    emitter.ids[config.name] = emitter.label(config.inputs[0].layer)


@declares("input, name=None, layer_attr=None", prefix="sampling_id_layer")
def sampling_id(input: LayerOutput) -> Made:
    """Declare a layer that samples an id for each row from the row's probabilities."""
    return Made([input], input.size)


@emits("sampling_id")
def _sampling_id(emitter: Emitter, config: LayerConfig) -> None:
    drawn = emitter.unary("sampling_id", emitter.first(config))
    emitter.ids[config.name] = emitter.reshape(drawn, [-1, 1])


@declares("input, eos_id, name=None, layer_attr=None", prefix="eos_layer")
def eos(input: LayerOutput, eos_id: int) -> Made:
    """Declare a layer of end marks: 1 where an id equals `eos_id`, otherwise 0.

    Read it with ``infer(..., field="id")``.
    """
    return Made([input], 1, {"eos_id": eos_id})


@emits("eos", together=None)
def _eos(emitter: Emitter, config: LayerConfig) -> None:
    ids = emitter.label(config.inputs[0].layer)
    end = emitter.op("fill_zeros_like", {"X": ids})
    end = emitter.unary("increment", end, step=float(config.attrs["eos_id"]))  # type: ignore[arg-type]
    same = emitter.binary("equal", ids, end)
    found = emitter.unary("cast", same, in_dtype="bool", out_dtype="int64")
    found.stop_gradient = True
    emitter.ids[config.name] = found


@declares("input, name=None, layer_attr=None", prefix="maxid_layer")
def max_id(input: LayerOutput) -> Made:
    """Declare the index of each row's largest value; read it with ``infer(..., field="id")``."""
    return Made([input], input.size)


@emits("max_id", together=None)
def _max_id(emitter: Emitter, config: LayerConfig) -> None:
    value = emitter.readable(config.inputs[0].layer)
    largest, column = emitter.ops("top_k", {"X": value}, {"k": 1}, ["Out", "Indices"])
    emitter.ids[config.name] = column
    emitter.set_probabilities(config.name, largest)


@declares("input, format=None, name=None", prefix="print", many=True)
def printer(input: list[LayerOutput], format: str | None) -> Made:
    """Declare a layer that prints the values of layers whenever the network runs; pass it as an extra layer.

    Args:
        input: one layer or several; the printer has the value of the first.
        format: the text before each value; %s stands for the layer's name. "layer=%s value" by default.
    """
    return Made(input, input[0].size, {"format": format or "layer=%s value"})


@emits("printer", called="printer")
def _printer(emitter: Emitter, config: LayerConfig) -> Variable:
    shown = []
    for link in config.inputs:
        value = emitter.readable(link.layer)
        value = emitter.dense(link.layer) if value is None else value
        message = str(config.attrs["format"]).replace("%s", link.layer)
        settings = {"message": message, "print_tensor_name": False, "print_tensor_type": False}
        shown.append(emitter.op("print", {"In": value}, {"summarize": -1, **settings}))
    return emitter.unary("scale", emitter.numbers(config.inputs[0].layer), scale=1.0)


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
