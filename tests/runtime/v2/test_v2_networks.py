# SPDX-License-Identifier: Apache-2.0
"""Groups of layers: names, sizes, and that they can be trained."""

from __future__ import annotations

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from paddle.v2.parameters import Parameters

layer, data_type, networks = paddle.layer, paddle.data_type, paddle.networks


def picture(channels: int, side: int) -> LayerOutput:
    return layer.data("picture", data_type.dense_vector(channels * side * side), height=side, width=side)


def count(parameters: Parameters) -> int:
    return sum(int(np.prod(parameters.get_shape(name))) for name in parameters)


def test_vgg_16_has_its_138_million_weights() -> None:
    out = networks.vgg_16_network(picture(3, 224), 3)
    parameters = paddle.parameters.create(out)
    assert (out.size, len(parameters), count(parameters)) == (1000, 32, 138_357_544)


def test_small_vgg_has_eleven_normalisations_and_learns() -> None:
    out = networks.small_vgg(picture(3, 32), 3, 10)
    cost = layer.classification_cost(out, layer.data("label", data_type.integer_value(10)))
    parameters = paddle.parameters.create(cost)
    # Weights of 10 convolutions, their biases, 4 numbers for each of their channels, then fc, norm, fc.
    assert count(parameters) == 7_632_576 + 2_688 + 4 * 2_688 + 262_656 + 2_048 + 5_130
    assert sum(name.endswith(".w2") for name in parameters) == 11
    before = parameters["___conv_0__.w0"]
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(learning_rate=1e-4))
    pixels = np.random.default_rng(0).normal(size=(2, 3072))
    trainer.train(lambda: iter([[(pixels[0], 1), (pixels[1], 2)]]))
    assert (parameters["___conv_0__.w0"] != before).mean() > 0.9


def test_img_conv_bn_pool_names_its_layers_and_activates_after_the_normalisation() -> None:
    out = networks.img_conv_bn_pool(
        picture(1, 4), 3, 2, 2, name="block", conv_padding=1, pool_stride=2, act=paddle.activation.Relu()
    )
    found = paddle.topology.Topology(out).proto().layers
    assert {name: config.activation for name, config in found.items()} == {
        "picture": "",
        "block_conv": "",
        "block_bn": "relu",
        "block_pool": "",
    }
    assert (out.num_filters, out.height, out.width) == (2, 2, 2)


def test_settings_of_a_group_go_to_one_convolution_each() -> None:
    out = networks.img_conv_group(
        picture(1, 8),
        [4, 6],
        2,
        num_channels=1,
        conv_filter_size=[3, 1],
        conv_padding=[1, 0],
        conv_with_batchnorm=[True, False],
        conv_batchnorm_drop_rate=[0.3, 0],
        pool_stride=2,
    )
    layers = paddle.topology.Topology(out).proto().layers
    assert [(config.type, config.activation, config.drop_rate) for config in layers.values()] == [
        ("data", "", 0.0),
        ("img_conv", "", 0.0),
        ("batch_norm", "relu", 0.3),
        ("img_conv", "relu", 0.0),
        ("img_pool", "", 0.0),
    ]
    assert (out.num_filters, out.height, out.width) == (6, 4, 4)
    with pytest.raises(ValueError, match="3 settings for 2 convolutions"):
        networks.img_conv_group(out, [4, 6], 2, conv_padding=[1, 1, 1])
