# SPDX-License-Identifier: Apache-2.0
"""Operators behind the layers of ``image`` and ``image_pool``."""

from __future__ import annotations

from paddle.graph import Variable
from paddle.v2.layer.emitter import Emitter, emits
from paddle.v2.model import LayerConfig


def _input_image(emitter: Emitter, config: LayerConfig) -> Variable:
    channels, height, width = (int(config.attrs[key]) for key in ("channels", "in_height", "in_width"))  # type: ignore[arg-type]
    return emitter.image(config.inputs[0].layer, channels, height, width)


@emits("img_conv")
def _emit_conv(emitter: Emitter, config: LayerConfig) -> None:
    attrs = config.attrs
    channels, groups = int(attrs["channels"]), int(attrs["groups"])  # type: ignore[arg-type]
    shape = [config.num_filters, channels // groups, *attrs["filter"]]  # type: ignore[misc]
    value = emitter.op(
        "conv2d",
        {
            "Input": _input_image(emitter, config),
            "Filter": emitter.shaped_parameter(config.inputs[0].parameter, shape),
        },
        {key: attrs[key] for key in ("strides", "paddings", "dilations", "groups")},
        out="Output",
    )
    if config.bias:
        shared = emitter.parameters[config.bias].size == config.num_filters
        shape = [config.num_filters] if shared else [config.num_filters, config.height, config.width]
        bias = emitter.shaped_parameter(config.bias, shape)
        value = emitter.op("elementwise_add", {"X": value, "Y": bias}, {"axis": 1})
    emitter.finish(config, value)


@emits("img_pool")
def _emit_pool(emitter: Emitter, config: LayerConfig) -> None:
    keys = ("pooling_type", "ksize", "strides", "paddings", "ceil_mode", "exclusive")
    attrs = {key: config.attrs[key] for key in keys}
    emitter.finish(config, emitter.op("pool2d", {"X": _input_image(emitter, config)}, attrs))


@emits("block_expand")
def _emit_block_expand(emitter: Emitter, config: LayerConfig) -> None:
    attrs = {key: config.attrs[key] for key in ("kernels", "strides", "paddings")}
    emitter.finish(config, emitter.op("im2sequence", {"X": _input_image(emitter, config)}, attrs))


@emits("scale_sub_region")
def _emit_scale_sub_region(emitter: Emitter, config: LayerConfig) -> None:
    inputs = {"X": _input_image(emitter, config), "Indices": emitter.rows(config.inputs[1].layer)}
    emitter.finish(config, emitter.op("scale_sub_region", inputs, {"value": config.attrs["value"]}))


@emits("img_cmrnorm")
def _emit_cmrnorm(emitter: Emitter, config: LayerConfig) -> None:
    attrs = {"k": 1.0, **{key: config.attrs[key] for key in ("n", "alpha", "beta")}}
    emitter.finish(
        config, emitter.ops("lrn", {"X": _input_image(emitter, config)}, attrs, ["Out", "MidOut"])[0]
    )


@emits("maxout")
def _emit_maxout(emitter: Emitter, config: LayerConfig) -> None:
    attrs = {"groups": config.attrs["groups"]}
    emitter.finish(config, emitter.op("maxout", {"X": _input_image(emitter, config)}, attrs))


@emits("pad")
def _emit_pad(emitter: Emitter, config: LayerConfig) -> None:
    attrs = {"paddings": config.attrs["paddings"], "pad_value": 0.0}
    emitter.finish(config, emitter.op("pad", {"X": _input_image(emitter, config)}, attrs))


@emits("crop")
def _emit_crop(emitter: Emitter, config: LayerConfig) -> None:
    starts, sizes = config.attrs["starts"], config.attrs["sizes"]
    assert isinstance(starts, tuple)
    assert isinstance(sizes, tuple)
    ends = [start + size for start, size in zip(starts, sizes, strict=True)]
    attrs = {"axes": [1, 2, 3], "starts": list(starts), "ends": ends}
    emitter.finish(config, emitter.op("slice", {"Input": _input_image(emitter, config)}, attrs))
