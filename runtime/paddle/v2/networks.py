# SPDX-License-Identifier: Apache-2.0
"""Common groups of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from paddle.v2 import activation, layer, model, pooling
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import MissingNameError, UsageError
from paddle.v2.layer.output import BiasAttr, LayerOutput
from paddle.v2.sequence_networks import (
    bidirectional_gru,
    bidirectional_lstm,
    dot_product_attention,
    sequence_conv_pool,
    simple_attention,
    simple_gru,
    simple_gru2,
    simple_lstm,
    text_conv_pool,
)
from paddle.v2.unit_networks import gru_group, gru_unit, lstmemory_group, lstmemory_unit

__all__ = [
    "bidirectional_gru",
    "bidirectional_lstm",
    "dot_product_attention",
    "gru_group",
    "gru_unit",
    "img_conv_bn_pool",
    "img_conv_group",
    "lstmemory_group",
    "lstmemory_unit",
    "sequence_conv_pool",
    "simple_attention",
    "simple_gru",
    "simple_gru2",
    "simple_img_conv_pool",
    "simple_lstm",
    "small_vgg",
    "text_conv_pool",
    "vgg_16_network",
]

_T = TypeVar("_T")


def simple_img_conv_pool(
    input: LayerOutput,
    filter_size: int,
    num_filters: int,
    pool_size: int,
    name: str | None = None,
    pool_type: pooling.BasePool | None = None,
    act: activation.Base | None = None,
    groups: int = 1,
    conv_stride: int = 1,
    conv_padding: int = 0,
    bias_attr: BiasAttr = None,
    num_channel: int | None = None,
    param_attr: ParameterAttribute | None = None,
    shared_bias: bool = True,
    conv_layer_attr: ExtraLayerAttribute | None = None,
    pool_stride: int = 1,
    pool_padding: int = 0,
    pool_layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a convolution ``<name>_conv`` and a pooling ``<name>_pool``."""
    name = model.current().auto_name("conv_pool", name)
    conv = layer.img_conv(
        input,
        filter_size,
        num_filters,
        f"{name}_conv",
        num_channel,
        act,
        groups,
        conv_stride,
        conv_padding,
        bias_attr=bias_attr,
        param_attr=param_attr,
        shared_biases=shared_bias,
        layer_attr=conv_layer_attr,
    )
    return layer.img_pool(
        conv,
        pool_size,
        f"{name}_pool",
        pool_type=pool_type,
        stride=pool_stride,
        padding=pool_padding,
        layer_attr=pool_layer_attr,
    )


def img_conv_bn_pool(
    input: LayerOutput,
    filter_size: int,
    num_filters: int,
    pool_size: int,
    name: str | None = None,
    pool_type: pooling.BasePool | None = None,
    act: activation.Base | None = None,
    groups: int = 1,
    conv_stride: int = 1,
    conv_padding: int = 0,
    conv_bias_attr: BiasAttr = None,
    num_channel: int | None = None,
    conv_param_attr: ParameterAttribute | None = None,
    shared_bias: bool = True,
    conv_layer_attr: ExtraLayerAttribute | None = None,
    bn_param_attr: ParameterAttribute | None = None,
    bn_bias_attr: BiasAttr = None,
    bn_layer_attr: ExtraLayerAttribute | None = None,
    pool_stride: int = 1,
    pool_padding: int = 0,
    pool_layer_attr: ExtraLayerAttribute | None = None,
) -> LayerOutput:
    """Declare a linear convolution, batch normalisation with the activation, and a pooling."""
    name = model.current().auto_name("conv_bn_pool", name)
    conv = layer.img_conv(
        input,
        filter_size,
        num_filters,
        f"{name}_conv",
        num_channel,
        activation.Linear(),
        groups,
        conv_stride,
        conv_padding,
        bias_attr=conv_bias_attr,
        param_attr=conv_param_attr,
        shared_biases=shared_bias,
        layer_attr=conv_layer_attr,
    )
    normed = layer.batch_norm(
        conv, act, f"{name}_bn", bias_attr=bn_bias_attr, param_attr=bn_param_attr, layer_attr=bn_layer_attr
    )
    return layer.img_pool(
        normed,
        pool_size,
        f"{name}_pool",
        pool_type=pool_type,
        stride=pool_stride,
        padding=pool_padding,
        layer_attr=pool_layer_attr,
    )


def img_conv_group(
    input: LayerOutput,
    conv_num_filter: Sequence[int],
    pool_size: int,
    num_channels: int | None = None,
    conv_padding: int | Sequence[int] = 1,
    conv_filter_size: int | Sequence[int] = 3,
    conv_act: activation.Base | Sequence[activation.Base | None] | None = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0,
    pool_stride: int = 1,
    pool_type: pooling.BasePool | None = None,
    param_attr: ParameterAttribute | Sequence[ParameterAttribute | None] | None = None,
) -> LayerOutput:
    """Declare several convolutions and one pooling; a single setting holds for every convolution.

    With batch normalisation a convolution is linear, the activation (and dropout) follow the normalisation.
    """
    count = len(conv_num_filter)
    paddings, sizes = _each(conv_padding, count), _each(conv_filter_size, count)
    acts, norms = _each(conv_act, count), _each(conv_with_batchnorm, count)
    rates, attrs = _each(conv_batchnorm_drop_rate, count), _each(param_attr, count)
    found = input
    for index, filters in enumerate(conv_num_filter):
        found = layer.img_conv(
            found,
            sizes[index],
            filters,
            num_channels=num_channels if index == 0 else None,
            act=activation.Linear() if norms[index] else acts[index],
            padding=paddings[index],
            param_attr=attrs[index],
        )
        if norms[index]:
            extra = ExtraLayerAttribute(drop_rate=rates[index]) if rates[index] else None
            found = layer.batch_norm(found, acts[index], layer_attr=extra)
    return layer.img_pool(found, pool_size, pool_type=pool_type, stride=pool_stride)


def small_vgg(input_image: LayerOutput, num_channels: int, num_classes: int) -> LayerOutput:
    """Declare a small VGG network with batch normalisation for 32x32 images."""

    def block(
        source: LayerOutput, filters: int, times: int, rates: list[float], channels: int | None
    ) -> LayerOutput:
        return img_conv_group(
            source,
            [filters] * times,
            2,
            channels,
            conv_act=activation.Relu(),
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=rates,
            pool_stride=2,
            pool_type=pooling.Max(),
        )

    found = block(input_image, 64, 2, [0.3, 0], num_channels)
    found = block(found, 128, 2, [0.4, 0], None)
    found = block(found, 256, 3, [0.4, 0.4, 0], None)
    found = block(found, 512, 3, [0.4, 0.4, 0], None)
    found = layer.img_pool(found, 2, stride=2, pool_type=pooling.Max())
    found = layer.dropout(found, 0.5)
    found = layer.fc(found, 512, activation.Linear(), layer_attr=ExtraLayerAttribute(drop_rate=0.5))
    found = layer.batch_norm(found, activation.Relu())
    return layer.fc(found, num_classes, activation.Softmax())


def vgg_16_network(input_image: LayerOutput, num_channels: int, num_classes: int = 1000) -> LayerOutput:
    """Declare VGG with 13 convolutions and 3 fully connected layers."""
    found = input_image
    for index, (filters, times) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        channels = num_channels if index == 0 else None
        found = img_conv_group(
            found,
            [filters] * times,
            2,
            channels,
            conv_act=activation.Relu(),
            pool_stride=2,
            pool_type=pooling.Max(),
        )
    for _ in range(2):
        found = layer.fc(found, 4096, activation.Relu(), layer_attr=ExtraLayerAttribute(drop_rate=0.5))
    return layer.fc(found, num_classes, activation.Softmax())


def _each(value: _T | Sequence[_T], count: int) -> list[_T]:
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(f"img_conv_group: {len(value)} settings for {count} convolutions: {value!r}")
        return list(value)
    return [value] * count  # type: ignore[list-item]


def __getattr__(name: str) -> object:
    if name == "multi_head_attention":
        raise MissingNameError(f"paddle.networks.{name} is not available yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
