# SPDX-License-Identifier: Apache-2.0
"""Common groups of layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paddle.v2 import activation, layer, model, pooling
from paddle.v2.attr import ExtraLayerAttribute, ParameterAttribute
from paddle.v2.errors import MissingNameError, UsageError
from paddle.v2.layer.output import Act, BiasAttr, LayerAttr, LayerOutput, WeightAttr
from paddle.v2.recurrent_networks import (
    bidirectional_gru,
    bidirectional_lstm,
    gru_group,
    gru_unit,
    lstmemory_group,
    lstmemory_unit,
    simple_gru,
    simple_gru2,
    simple_lstm,
)

__all__ = [
    "bidirectional_gru", "bidirectional_lstm", "dot_product_attention", "gru_group", "gru_unit", "img_conv_bn_pool",
    "img_conv_group", "lstmemory_group", "lstmemory_unit", "sequence_conv_pool", "simple_attention", "simple_gru",
    "simple_gru2", "simple_img_conv_pool", "simple_lstm", "small_vgg", "text_conv_pool", "vgg_16_network",
]  # fmt: skip


def simple_img_conv_pool(
    input: LayerOutput,
    filter_size: int,
    num_filters: int,
    pool_size: int,
    name: str | None = None,
    pool_type: pooling.BasePool | None = None,
    act: Act = None,
    groups: int = 1,
    conv_stride: int = 1,
    conv_padding: int = 0,
    bias_attr: BiasAttr = None,
    num_channel: int | None = None,
    param_attr: WeightAttr = None,
    shared_bias: bool = True,
    conv_layer_attr: LayerAttr = None,
    pool_stride: int = 1,
    pool_padding: int = 0,
    pool_layer_attr: LayerAttr = None,
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
    return _pool(conv, pool_size, name, pool_type, pool_stride, pool_padding, pool_layer_attr)


def img_conv_bn_pool(
    input: LayerOutput,
    filter_size: int,
    num_filters: int,
    pool_size: int,
    name: str | None = None,
    pool_type: pooling.BasePool | None = None,
    act: Act = None,
    groups: int = 1,
    conv_stride: int = 1,
    conv_padding: int = 0,
    conv_bias_attr: BiasAttr = None,
    num_channel: int | None = None,
    conv_param_attr: WeightAttr = None,
    shared_bias: bool = True,
    conv_layer_attr: LayerAttr = None,
    bn_param_attr: WeightAttr = None,
    bn_bias_attr: BiasAttr = None,
    bn_layer_attr: LayerAttr = None,
    pool_stride: int = 1,
    pool_padding: int = 0,
    pool_layer_attr: LayerAttr = None,
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
    return _pool(normed, pool_size, name, pool_type, pool_stride, pool_padding, pool_layer_attr)


def _pool(
    input: LayerOutput,
    size: int,
    name: str,
    kind: pooling.BasePool | None,
    stride: int,
    padding: int,
    attr: LayerAttr,
) -> LayerOutput:
    return layer.img_pool(
        input, size, f"{name}_pool", pool_type=kind, stride=stride, padding=padding, layer_attr=attr
    )


def img_conv_group(
    input: LayerOutput,
    conv_num_filter: Sequence[int],
    pool_size: int,
    num_channels: int | None = None,
    conv_padding: int | Sequence[int] = 1,
    conv_filter_size: int | Sequence[int] = 3,
    conv_act: activation.Base | Sequence[Act] | None = None,
    conv_with_batchnorm: bool | Sequence[bool] = False,
    conv_batchnorm_drop_rate: float | Sequence[float] = 0,
    pool_stride: int = 1,
    pool_type: pooling.BasePool | None = None,
    param_attr: WeightAttr | Sequence[WeightAttr] = None,
) -> LayerOutput:
    """Declare several convolutions and one pooling; a single setting holds for every convolution.

    With batch normalisation a convolution is linear, the activation (and dropout) follow the normalisation.
    """
    given = (
        conv_padding,
        conv_filter_size,
        conv_act,
        conv_with_batchnorm,
        conv_batchnorm_drop_rate,
        param_attr,
    )
    each = [_each(setting, len(conv_num_filter)) for setting in given]
    found = input
    for filters, padding, size, act, normed, rate, attr in zip(conv_num_filter, *each, strict=True):
        channels = num_channels if found is input else None
        conv_act = activation.Linear() if normed else act
        found = layer.img_conv(
            found, size, filters, num_channels=channels, act=conv_act, padding=padding, param_attr=attr
        )
        if normed:
            extra = ExtraLayerAttribute(drop_rate=rate) if rate else None
            found = layer.batch_norm(found, act, layer_attr=extra)
    return layer.img_pool(found, pool_size, pool_type=pool_type, stride=pool_stride)


def small_vgg(input_image: LayerOutput, num_channels: int, num_classes: int) -> LayerOutput:
    """Declare a small VGG network with batch normalisation for 32x32 images."""

    found = input_image
    for filters, rates in ((64, [0.3, 0]), (128, [0.4, 0]), (256, [0.4, 0.4, 0]), (512, [0.4, 0.4, 0])):
        found = img_conv_group(
            found,
            [filters] * len(rates),
            2,
            num_channels if found is input_image else None,
            conv_act=activation.Relu(),
            conv_with_batchnorm=True,
            conv_batchnorm_drop_rate=rates,
            pool_stride=2,
            pool_type=pooling.Max(),
        )
    found = layer.img_pool(found, 2, stride=2, pool_type=pooling.Max())
    found = layer.dropout(found, 0.5)
    found = layer.fc(found, 512, activation.Linear(), layer_attr=ExtraLayerAttribute(drop_rate=0.5))
    found = layer.batch_norm(found, activation.Relu())
    return layer.fc(found, num_classes, activation.Softmax())


def vgg_16_network(input_image: LayerOutput, num_channels: int, num_classes: int = 1000) -> LayerOutput:
    """Declare VGG with 13 convolutions and 3 fully connected layers."""
    found, relu = input_image, activation.Relu()
    for filters, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        channels = num_channels if found is input_image else None
        found = img_conv_group(
            found, [filters] * times, 2, channels, conv_act=relu, pool_stride=2, pool_type=pooling.Max()
        )
    for _ in range(2):
        found = layer.fc(found, 4096, activation.Relu(), layer_attr=ExtraLayerAttribute(drop_rate=0.5))
    return layer.fc(found, num_classes, activation.Softmax())


def sequence_conv_pool(
    input: LayerOutput,
    context_len: int,
    hidden_size: int,
    name: str | None = None,
    context_start: int | None = None,
    pool_type: pooling.BasePool | None = None,
    context_proj_layer_name: str | None = None,
    context_proj_param_attr: ParameterAttribute | bool = False,
    fc_layer_name: str | None = None,
    fc_param_attr: WeightAttr = None,
    fc_bias_attr: BiasAttr = None,
    fc_act: Act = None,
    pool_bias_attr: BiasAttr = None,
    fc_attr: LayerAttr = None,
    context_attr: LayerAttr = None,
    pool_attr: LayerAttr = None,
) -> LayerOutput:
    """Declare rows beside their neighbours ``<name>_conv_proj``, an fc ``<name>_conv_fc`` and a pooling ``<name>``."""
    name = model.current().auto_name("sequence_conv_pooling", name)
    context = layer.mixed(
        input.size * context_len,
        layer.context_projection(input, context_len, context_start, context_proj_param_attr),
        name=context_proj_layer_name or f"{name}_conv_proj",
        layer_attr=context_attr,
    )
    hidden = layer.fc(
        context,
        hidden_size,
        fc_act,
        name=fc_layer_name or f"{name}_conv_fc",
        param_attr=fc_param_attr,
        bias_attr=fc_bias_attr,
        layer_attr=fc_attr,
    )
    return layer.pooling(hidden, pool_type, name=name, bias_attr=pool_bias_attr, layer_attr=pool_attr)


text_conv_pool = sequence_conv_pool


def simple_attention(
    encoded_sequence: LayerOutput,
    encoded_proj: LayerOutput,
    decoder_state: LayerOutput,
    transform_param_attr: WeightAttr = None,
    softmax_param_attr: WeightAttr = None,
    weight_act: Act = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare the mean of a sequence, weighed by how well its rows fit a state.

    Args:
        encoded_sequence: what is weighed.
        encoded_proj: the same rows as they are compared.
        decoder_state: one row a sample.
        transform_param_attr: of the state's projection.
        softmax_param_attr: of the weights' projection.
        weight_act: of the comparison, Tanh by default.
        name: prefix of all layers.
    """
    name = model.current().auto_name("attention", name)
    size = encoded_proj.size
    state = layer.mixed(
        size,
        layer.full_matrix_projection(decoder_state, size, transform_param_attr),
        name=f"{name}_transform",
    )
    spread = layer.expand(state, encoded_sequence, name=f"{name}_expand")
    compared = layer.mixed(
        size,
        [layer.identity_projection(spread), layer.identity_projection(encoded_proj)],
        name=f"{name}_combine",
        act=weight_act or activation.Tanh(),
    )
    return _weighed(compared, encoded_sequence, softmax_param_attr, name)


def dot_product_attention(
    encoded_sequence: LayerOutput,
    attended_sequence: LayerOutput,
    transformed_state: LayerOutput,
    softmax_param_attr: WeightAttr = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare the mean of `attended_sequence`, weighed by the products of `encoded_sequence`'s rows with a state."""
    name = model.current().auto_name("dot_product_attention", name)
    spread = layer.expand(transformed_state, encoded_sequence, name=f"{name}_expand")
    products = layer.dot_prod(spread, encoded_sequence, name=f"{name}_dot-product")
    return _weighed(products, attended_sequence, softmax_param_attr, name)


def _weighed(scores: LayerOutput, sequence: LayerOutput, attr: WeightAttr, name: str) -> LayerOutput:
    softmax = activation.SequenceSoftmax()
    weights = layer.fc(scores, 1, softmax, name=f"{name}_softmax", param_attr=attr, bias_attr=False)
    scaled = layer.scaling(sequence, weights, name=f"{name}_scaling")
    return layer.pooling(scaled, pooling.Sum(), name=f"{name}_pooling")


def _each(value: Any, count: int) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(f"img_conv_group: {len(value)} settings for {count} convolutions: {value!r}")
        return list(value)
    return [value] * count


def __getattr__(name: str) -> object:
    if name == "multi_head_attention":
        raise MissingNameError(f"paddle.networks.{name} is not available yet")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
