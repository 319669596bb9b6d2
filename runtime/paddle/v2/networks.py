# SPDX-License-Identifier: Apache-2.0
"""Functions that declare common groups of layers, such as a convolution followed by pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from paddle.signatures import renamed, takes
from paddle.v2 import activation, layer, model, pooling
from paddle.v2.attr import ExtraLayerAttribute
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput, WeightAttr, as_list, require_layer
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
    "img_conv_group", "inputs", "lstmemory_group", "lstmemory_unit", "multi_head_attention", "outputs",
    "sequence_conv_pool", "simple_attention", "simple_gru", "simple_gru2", "simple_img_conv_pool", "simple_lstm",
    "small_vgg", "text_conv_pool", "vgg_16_network",
]  # fmt: skip


_OF_CONV = (
    "input filter_size num_filters num_channels=num_channel groups stride=conv_stride padding=conv_padding"
)
_OF_POOL = "pool_size pool_type stride=pool_stride padding=pool_padding layer_attr=pool_layer_attr"


@takes(
    "input, filter_size, num_filters, pool_size, name=None, pool_type=None, act=None, groups=1, conv_stride=1, "
    "conv_padding=0, bias_attr=None, num_channel=None, param_attr=None, shared_bias=True, conv_layer_attr=None, "
    "pool_stride=1, pool_padding=0, pool_layer_attr=None"
)
def simple_img_conv_pool(given: dict[str, Any]) -> LayerOutput:
    """Declare a convolution ``<name>_conv`` of images, followed by a pooling ``<name>_pool``."""
    name = model.current().auto_name("conv_pool", given["name"])
    own = f"{_OF_CONV} act bias_attr param_attr shared_biases=shared_bias layer_attr=conv_layer_attr"
    conv = layer.img_conv(name=f"{name}_conv", **renamed(given, own))
    return layer.img_pool(conv, name=f"{name}_pool", **renamed(given, _OF_POOL))


@takes(
    "input, filter_size, num_filters, pool_size, name=None, pool_type=None, act=None, groups=1, conv_stride=1, "
    "conv_padding=0, conv_bias_attr=None, num_channel=None, conv_param_attr=None, shared_bias=True, "
    "conv_layer_attr=None, bn_param_attr=None, bn_bias_attr=None, bn_layer_attr=None, pool_stride=1, "
    "pool_padding=0, pool_layer_attr=None"
)
def img_conv_bn_pool(given: dict[str, Any]) -> LayerOutput:
    """Declare a linear convolution, batch normalization with the given activation, and a pooling."""
    name, linear = model.current().auto_name("conv_bn_pool", given["name"]), activation.Linear()
    own = f"{_OF_CONV} bias_attr=conv_bias_attr param_attr=conv_param_attr shared_biases=shared_bias"
    conv = layer.img_conv(
        act=linear, name=f"{name}_conv", **renamed(given, f"{own} layer_attr=conv_layer_attr")
    )
    of_norm = "act bias_attr=bn_bias_attr param_attr=bn_param_attr layer_attr=bn_layer_attr"
    normed = layer.batch_norm(conv, name=f"{name}_bn", **renamed(given, of_norm))
    return layer.img_pool(normed, name=f"{name}_pool", **renamed(given, _OF_POOL))


_EACH = [
    "conv_padding",
    "conv_filter_size",
    "conv_act",
    "conv_with_batchnorm",
    "conv_batchnorm_drop_rate",
    "param_attr",
]


@takes(
    "input, conv_num_filter, pool_size, num_channels=None, conv_padding=1, conv_filter_size=3, conv_act=None, "
    "conv_with_batchnorm=False, conv_batchnorm_drop_rate=0, pool_stride=1, pool_type=None, param_attr=None"
)
def img_conv_group(given: dict[str, Any]) -> LayerOutput:
    """Declare several convolutions followed by one pooling; a single setting applies to every convolution.

    With batch normalization, convolutions are linear; activation and dropout follow the normalization.
    """
    found, counts, channels = given["input"], given["conv_num_filter"], given["num_channels"]
    each = [_each(setting, given[setting], len(counts)) for setting in _EACH]
    for filters, padding, size, act, normed, rate, attr in zip(counts, *each, strict=True):
        conv_act = activation.Linear() if normed else act
        found = layer.img_conv(
            found, size, filters, num_channels=channels, act=conv_act, padding=padding, param_attr=attr
        )
        channels = None
        if normed:
            extra = ExtraLayerAttribute(drop_rate=rate) if rate else None
            found = layer.batch_norm(found, act, layer_attr=extra)
    return layer.img_pool(found, **renamed(given, "pool_size pool_type stride=pool_stride"))


def small_vgg(input_image: LayerOutput, num_channels: int, num_classes: int) -> LayerOutput:
    """Declare a small VGG network (Simonyan and Zisserman, 2014) with batch normalization, for 32x32 images."""

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
    """Declare VGG-16 (Simonyan and Zisserman, 2014): 13 convolutions and 3 fully connected layers."""
    found, relu = input_image, activation.Relu()
    for filters, times in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        channels = num_channels if found is input_image else None
        found = img_conv_group(
            found, [filters] * times, 2, channels, conv_act=relu, pool_stride=2, pool_type=pooling.Max()
        )
    for _ in range(2):
        found = layer.fc(found, 4096, activation.Relu(), layer_attr=ExtraLayerAttribute(drop_rate=0.5))
    return layer.fc(found, num_classes, activation.Softmax())


@takes(
    "input, context_len, hidden_size, name=None, context_start=None, pool_type=None, context_proj_layer_name=None, "
    "context_proj_param_attr=False, fc_layer_name=None, fc_param_attr=None, fc_bias_attr=None, fc_act=None, "
    "pool_bias_attr=None, fc_attr=None, context_attr=None, pool_attr=None"
)
def sequence_conv_pool(given: dict[str, Any]) -> LayerOutput:
    """Declare a convolution of sequences (``<name>_conv_proj``, fc ``<name>_conv_fc``) and a pooling ``<name>``."""
    name = model.current().auto_name("sequence_conv_pooling", given["name"])
    of_context = "input context_len context_start padding_attr=context_proj_param_attr"
    context = layer.mixed(
        given["input"].size * given["context_len"],
        layer.context_projection(**renamed(given, of_context)),
        name=given["context_proj_layer_name"] or f"{name}_conv_proj",
        layer_attr=given["context_attr"],
    )
    of_fc = "size=hidden_size act=fc_act param_attr=fc_param_attr bias_attr=fc_bias_attr layer_attr=fc_attr"
    hidden = layer.fc(context, name=given["fc_layer_name"] or f"{name}_conv_fc", **renamed(given, of_fc))
    of_pool = "pooling_type=pool_type bias_attr=pool_bias_attr layer_attr=pool_attr"
    return layer.pooling(hidden, name=name, **renamed(given, of_pool))


text_conv_pool = sequence_conv_pool


@takes(
    "encoded_sequence, encoded_proj, decoder_state, transform_param_attr=None, softmax_param_attr=None, "
    "weight_act=None, name=None"
)
def simple_attention(given: dict[str, Any]) -> LayerOutput:
    """Declare additive attention (Bahdanau et al., 2014): a sequence's mean, weighted by its rows and a decoder state.

    Args:
        encoded_sequence: the sequence to average.
        encoded_proj: a projection of its rows, which is compared with the state.
        decoder_state: the state, one row per sample.
        transform_param_attr: the parameter of the state's projection.
        softmax_param_attr: the parameter of the projection to the weights.
        weight_act: the activation of the comparison, Tanh by default.
        name: the prefix of all layers.
    """
    name, compared_with = model.current().auto_name("attention", given["name"]), given["encoded_proj"]
    size, sequence = compared_with.size, given["encoded_sequence"]
    state = layer.full_matrix_projection(given["decoder_state"], size, given["transform_param_attr"])
    spread = layer.expand(layer.mixed(size, state, name=f"{name}_transform"), sequence, name=f"{name}_expand")
    compared = layer.mixed(
        size,
        [layer.identity_projection(spread), layer.identity_projection(compared_with)],
        name=f"{name}_combine",
        act=given["weight_act"] or activation.Tanh(),
    )
    return _weighed(compared, sequence, given["softmax_param_attr"], name)


def dot_product_attention(
    encoded_sequence: LayerOutput,
    attended_sequence: LayerOutput,
    transformed_state: LayerOutput,
    softmax_param_attr: WeightAttr = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare dot-product attention: the mean of `attended_sequence`, weighted by `encoded_sequence` · state."""
    name = model.current().auto_name("dot_product_attention", name)
    spread = layer.expand(transformed_state, encoded_sequence, name=f"{name}_expand")
    products = layer.dot_prod(spread, encoded_sequence, name=f"{name}_dot-product")
    return _weighed(products, attended_sequence, softmax_param_attr, name)


def multi_head_attention(
    query: LayerOutput,
    key: LayerOutput,
    value: LayerOutput,
    key_proj_size: int,
    value_proj_size: int,
    head_num: int,
    attention_type: str,
    softmax_param_attr: WeightAttr = None,
    name: str | None = None,
) -> LayerOutput:
    """Declare multi-head attention (Vaswani et al., 2017): concatenated weighted means of a sequence, one row each.

    Args:
        query: one row per sample, which is compared with each row of `key`.
        key: a sequence.
        value: a sequence of the same lengths, whose projections are averaged.
        key_proj_size: the width of a head's projections of query and key.
        value_proj_size: the width of a head's projection of value.
        head_num: the number of attention heads.
        attention_type: "dot-product attention", scaled by 1 / √key_proj_size, or "additive attention".
        softmax_param_attr: the parameter of the projections to the weights.
        name: the prefix of all layers.
    """
    if attention_type not in ("dot-product attention", "additive attention"):
        raise UsageError(
            f"multi_head_attention: attention_type must be 'dot-product attention' or 'additive attention', got "
            f"{attention_type!r}"
        )
    name = model.current().auto_name("multi_head_attention", name)
    sizes = {"query": key_proj_size, "key": key_proj_size, "value": value_proj_size}
    given = {"query": query, "key": key, "value": value}
    projected: dict[str, LayerOutput] = {
        what: layer.mixed(
            size * head_num, layer.full_matrix_projection(given[what]), name=f"{name}_{what}_proj"
        )
        for what, size in sizes.items()
    }
    projected["query"] = layer.expand(projected["query"], key)
    heads = []
    for head in range(head_num):
        parts = {
            what: layer.mixed(size, layer.identity_projection(projected[what], size * head, size))
            for what, size in sizes.items()
        }
        if attention_type == "dot-product attention":
            product = layer.linear_comb(parts["query"], parts["key"], name=f"{name}_dot-product_{head}")
            fit = layer.slope_intercept(
                product, slope=math.sqrt(1.0 / key_proj_size), name=f"{name}_dot-product_scaling_{head}"
            )
        else:
            both = [layer.identity_projection(parts[what]) for what in ("query", "key")]
            fit = layer.mixed(key_proj_size, both, f"{name}_combine_{head}", activation.Tanh())
        heads.append(_weighed(fit, parts["value"], softmax_param_attr, name, f"_{head}"))
    return layer.concat(heads)


def inputs(layers: LayerOutput | Sequence[LayerOutput], *args: LayerOutput) -> None:
    """Check that the arguments are data layers. This has no other effect: in v2, ``feeding`` orders the columns."""
    for each in [*as_list(layers, "inputs"), *args]:
        require_layer(each, "inputs")
        if each.data_type is None:
            raise UsageError(f"inputs: expected data layers, got {each!r}")


def outputs(layers: LayerOutput | Sequence[LayerOutput], *args: LayerOutput) -> None:
    """Check that the arguments are layers. This has no other effect: in v2, ``SGD`` and ``infer`` take the outputs."""
    for each in [*as_list(layers, "outputs"), *args]:
        require_layer(each, "outputs")


def _weighed(
    scores: LayerOutput, sequence: LayerOutput, attr: WeightAttr, name: str, number: str = ""
) -> LayerOutput:
    softmax = activation.SequenceSoftmax()
    weights = layer.fc(scores, 1, softmax, name=f"{name}_softmax{number}", param_attr=attr, bias_attr=False)
    scaled = layer.scaling(sequence, weights, name=f"{name}_scaling{number}")
    return layer.pooling(scaled, pooling.Sum(), name=f"{name}_pooling{number}")


def _each(setting: str, value: Any, count: int) -> list[Any]:
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise UsageError(
                f"img_conv_group: {setting}: expected one value, or one for each of the {count} convolutions, "
                f"got {value!r}"
            )
        return list(value)
    return [value] * count
