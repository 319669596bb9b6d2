# SPDX-License-Identifier: Apache-2.0
"""Declares layers of images, volumes and detection from the original's messages; see `model_config`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from paddle.utils.model_terms import CONV, fields_of, pool_type_of, sides_of
from paddle.v2.attr import Param
from paddle.v2.errors import ModelFileError
from paddle.v2.layer.output import LayerOutput


class Reader(Protocol):
    """The interface of `model_config`'s reader, with which this module declares a layer."""

    def named(self, names: Sequence[str], config: Any) -> dict[str, Any]:
        """Return the input layers of a layer by the names of the function's arguments."""

    def input(self, name: str) -> LayerOutput:
        """Return an input layer, which was declared before."""

    def call(self, name: str, config: Any, given: Mapping[str, Any], fields: str = "") -> LayerOutput:
        """Call a function of `paddle.v2.layer` to declare a layer."""


def _conv(reader: Reader, config: Any) -> LayerOutput:
    conv = config.inputs[0].conv_conf
    given = {
        "num_filters": config.num_filters,
        "shared_biases": config.shared_biases,
        "trans": config.type.endswith("t"),
    }
    return reader.call(
        "img_conv", config, {**reader.named(["input"], config), **given, **fields_of(conv, CONV)}
    )


def _conv3d(reader: Reader, config: Any) -> LayerOutput:
    conv = config.inputs[0].conv_conf
    given = {each: sides_of(conv, each) for each in ("filter_size", "stride", "padding")} | {
        "num_filters": config.num_filters,
        "shared_biases": config.shared_biases,
        "trans": config.type == "deconv3d",
    }
    shared = fields_of(conv, "num_channels=channels groups")
    return reader.call("img_conv3d", config, {**reader.named(["input"], config), **given, **shared})


def _pool3d(reader: Reader, config: Any) -> LayerOutput:
    pool = config.inputs[0].pool_conf
    outs = ("img_size", "padding", "size", "stride", "output")
    sides = zip(*(sides_of(pool, each) for each in outs), strict=True)
    given = {
        "pool_size": sides_of(pool, "size"), "stride": sides_of(pool, "stride"),
        "padding": sides_of(pool, "padding"), "ceil_mode": _is_rounded_up(sides),
        **fields_of(pool, "num_channels=channels pool_type"),
    }  # fmt: skip
    return reader.call("img_pool3d", config, {**reader.named(["input"], config), **given})


def _pool(reader: Reader, config: Any) -> LayerOutput:
    pool = config.inputs[0].pool_conf
    sides = [
        (pool.img_size, pool.padding, pool.size_x, pool.stride, pool.output_x),
        (
            pool.img_size_y or pool.img_size,
            pool.padding_y if pool.HasField("padding_y") else pool.padding,
            pool.size_y or pool.size_x,
            pool.stride_y or pool.stride,
            pool.output_y or pool.output_x,
        ),
    ]
    (_, padding, size, stride, _), (_, padding_y, size_y, stride_y, _) = sides
    given = {
        "pool_size": size, "pool_size_y": size_y, "stride": stride, "stride_y": stride_y, "padding": padding,
        "padding_y": padding_y, "num_channels": pool.channels, "pool_type": pool_type_of(pool.pool_type),
        "exclude_mode": pool.exclude_mode if pool.HasField("exclude_mode") else None,
        "ceil_mode": _is_rounded_up(sides),
    }  # fmt: skip
    return reader.call("img_pool", config, {**reader.named(["input"], config), **given})


def _batch_norm(reader: Reader, config: Any) -> LayerOutput:
    weight, *moving = (each.input_parameter_name for each in config.inputs)
    given = {
        "input": reader.input(config.inputs[0].input_layer_name),
        "param_attr": Param(name=weight),
        "mean_var_names": tuple(moving),
        "num_channels": config.inputs[0].image_conf.channels,
        "use_global_stats": config.use_global_stats if config.HasField("use_global_stats") else None,
    }
    return reader.call("batch_norm", config, given, "epsilon moving_average_fraction")


def _norm(reader: Reader, config: Any) -> LayerOutput:
    norm, given = config.inputs[0].norm_conf, reader.named(["input"], config)
    if norm.norm_type == "cross-channel-norm":
        return reader.call("cross_channel_norm", config, given)
    if norm.norm_type != "cmrnorm-projection":
        raise ModelFileError(f"norm_type {norm.norm_type!r} is not supported")
    given |= {
        "size": norm.size,
        "scale": norm.scale * norm.size,
        "power": norm.pow,
        "num_channels": norm.channels,
    }
    return reader.call("img_cmrnorm", config, given)


def _roi_pool(reader: Reader, config: Any) -> LayerOutput:
    roi = config.inputs[0].roi_pool_conf
    given = fields_of(roi, "pooled_width pooled_height spatial_scale")
    channels = config.size // (roi.pooled_width * roi.pooled_height)
    given |= {**reader.named(["input", "rois"], config), "num_channels": channels}
    return reader.call("roi_pool", config, given)


def _detector(reader: Reader, config: Any) -> LayerOutput:
    names = ["priorbox", "label"] if config.type == "multibox_loss" else ["priorbox"]
    found = reader.named([*names, "*maps"], config)
    maps, settings = found.pop("maps"), getattr(config.inputs[0], f"{config.type}_conf")
    given = {
        each: getattr(settings, each)
        for each in settings.FIELDS
        if each not in ("input_num", "height", "width")
    }
    count = settings.input_num
    return reader.call(
        config.type, config, {**found, **given, "input_loc": maps[:count], "input_conf": maps[count:]}
    )


def _is_rounded_up(sides: Iterable[tuple[int, ...]]) -> bool:
    """Return whether an output of pooling, after (image, padding, window, step) of a side, is rounded up."""
    return any((image + 2 * pad - window) // step + 1 != out for image, pad, window, step, out in sides)


IMAGES: Mapping[str, Callable[[Reader, Any], LayerOutput]] = {
    "conv3d": _conv3d,
    "deconv3d": _conv3d,
    "detection_output": _detector,
    "multibox_loss": _detector,
    "norm": _norm,
    "pool": _pool,
    "pool3d": _pool3d,
    "roi_pool": _roi_pool,
    **dict.fromkeys(("exconv", "cudnn_conv", "mkldnn_conv", "exconvt", "cudnn_convt"), _conv),
    **dict.fromkeys(("batch_norm", "cudnn_batch_norm", "mkldnn_batch_norm"), _batch_norm),
}
"""Type of a layer -> the function that declares it."""
