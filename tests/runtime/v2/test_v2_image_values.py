# SPDX-License-Identifier: Apache-2.0
"""Values of convolution, pooling and what else works on images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layer_cases import act, data_type, layer, values

IMAGE = np.random.default_rng(3).normal(size=(2, 3, 5, 4)).astype(np.float32)


def image_layer() -> LayerOutput:
    return layer.data("image", data_type.dense_vector(60), height=5, width=4)


def test_convolution_is_cross_correlation_over_channels() -> None:
    out = layer.img_conv(image_layer(), 3, 2, name="c", stride=2, padding=1, act=act.Linear())
    w = np.random.default_rng(4).normal(size=(2, 3, 3, 3)).astype(np.float32)
    b = np.array([[0.5], [-1.0]], np.float32)
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 2, 3, 2), np.float32)
    for i in range(3):
        for j in range(2):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            want[:, :, i, j] = np.einsum("ncij,fcij->nf", window, w) + b.T
    found = values(out, IMAGE, parameters={"_c.w0": w.reshape(1, -1), "_c.wbias": b})
    np.testing.assert_allclose(found, want.reshape(2, -1), rtol=1e-4, atol=1e-5)


def test_convolution_in_groups_with_a_bias_per_pixel() -> None:
    image = layer.data("image", data_type.dense_vector(4 * 9), height=3, width=3)
    out = layer.img_conv(image, 1, 4, name="c", groups=2, act=act.Linear(), shared_biases=False)
    w = np.arange(8, dtype=np.float32).reshape(4, 2)
    b = np.arange(36, dtype=np.float32).reshape(36, 1)
    x = np.random.default_rng(5).normal(size=(2, 4, 9)).astype(np.float32)
    halves = [np.einsum("fc,ncp->nfp", w[2 * g : 2 * g + 2], x[:, 2 * g : 2 * g + 2]) for g in (0, 1)]
    want = np.concatenate(halves, axis=1).reshape(2, 36) + b.T
    found = values(out, x.reshape(2, -1), parameters={"_c.w0": w.reshape(1, 8), "_c.wbias": b})
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("pool", "reduce"), [(paddle.pooling.Max(), np.max), (paddle.pooling.Avg(), np.mean), (None, np.max)]
)
def test_pooling_rounds_up_and_averages_what_is_there(
    pool: paddle.pooling.BasePool | None, reduce: Callable[..., np.ndarray]
) -> None:
    found = values(layer.img_pool(image_layer(), 2, stride=2, pool_type=pool), IMAGE)
    want = np.empty((2, 3, 3, 2), np.float32)
    for i in range(3):
        for j in range(2):
            want[:, :, i, j] = reduce(IMAGE[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2], axis=(2, 3))
    np.testing.assert_allclose(found, want.reshape(2, -1), rtol=1e-5)


def test_response_normalisation_divides_the_scale_by_the_size() -> None:
    found = values(layer.img_cmrnorm(image_layer(), 3, scale=0.3, power=0.5), IMAGE)
    squares = np.pad(IMAGE**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :3] + squares[:, 1:4] + squares[:, 2:]
    np.testing.assert_allclose(found, (IMAGE / (1 + 0.1 * total) ** 0.5).reshape(2, -1), rtol=1e-5)


def test_maxout_pad_and_crop_keep_the_image() -> None:
    image = layer.data("image", data_type.dense_vector(4 * 6), height=3, width=2)
    x = np.random.default_rng(6).normal(size=(2, 4, 3, 2)).astype(np.float32)
    want = x.reshape(2, 2, 2, 3, 2).max(axis=2)
    out = layer.maxout(image, 2)
    np.testing.assert_allclose(values(out, x), want.reshape(2, -1))
    padded = layer.pad(out, pad_c=(1, 0), pad_w=(0, 2))
    full = np.pad(want, ((0, 0), (1, 0), (0, 0), (0, 2)))
    np.testing.assert_allclose(values(padded, x), full.reshape(2, -1))
    cut = layer.crop(padded, [1, 1], axis=2, shape=[0, 3, 2, 2])
    np.testing.assert_allclose(values(cut, x), full[:, :, 1:3, 1:3].reshape(2, -1))
    assert (cut.num_filters, cut.height, cut.width) == (3, 2, 2)


def test_batch_norm_trains_on_the_batch_and_tests_on_moving_statistics() -> None:
    out = layer.batch_norm(image_layer(), act.Linear(), name="bn", moving_average_fraction=0.75)
    cost = layer.sum_cost(layer.fc(out, 1, act.Linear(), name="f"))
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0))
    flat = [(image.reshape(-1),) for image in IMAGE]
    mean, var = IMAGE.mean(axis=(0, 2, 3)), IMAGE.var(axis=(0, 2, 3))
    seen: list[np.ndarray] = []

    def look(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            value = event.gm.getLayerOutputs("bn")["bn"]["value"]
            assert value is not None
            seen.append(value)

    trainer.train(lambda: iter([flat]), num_passes=1, event_handler=look)
    want = (IMAGE - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
    np.testing.assert_allclose(seen[0], want.reshape(2, -1), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(parameters["_bn.w1"][0], 0.25 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(parameters["_bn.w2"][0], 0.25 * var, rtol=1e-4)
    tested = paddle.infer(out, parameters, flat)
    moved = (IMAGE - 0.25 * mean[:, None, None]) / np.sqrt(0.25 * var + 1e-5)[:, None, None]
    np.testing.assert_allclose(tested, moved.reshape(2, -1), rtol=1e-3, atol=1e-4)
