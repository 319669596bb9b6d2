# SPDX-License-Identifier: Apache-2.0
"""Layers of images and volumes: their values beside plain loops, their gradients beside differences."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.gradient_check import check_closely

layer, act, data_type = paddle.layer, paddle.activation, paddle.data_type
rng = np.random.default_rng(3)
IMAGES = rng.normal(size=(2, 2, 4, 5)).astype(np.float32)
VOLUMES = rng.normal(size=(2, 2, 3, 4, 3)).astype(np.float32)
LINEAR = act.Linear()


def image(name: str = "image") -> LayerOutput:
    return layer.data(name, data_type.dense_vector(40), height=4, width=5)


def volume() -> LayerOutput:
    return layer.data("volume", data_type.dense_vector(72), depth=3, height=4, width=3)


def run(out: LayerOutput, *columns: Any, weights: list[Any] | None = None) -> np.ndarray:
    parameters = paddle.parameters.create(out)
    for name, value in zip(parameters.names(), weights or [], strict=False):
        parameters[name] = np.asarray(value, np.float32).reshape(parameters.get_shape(name))
    samples = [tuple(row) for row in zip(*columns, strict=True)]
    found: np.ndarray = paddle.infer(out, parameters, samples)
    return found


def convolved(x: Any, w: Any, stride: int, pad: int) -> Any:
    """Cross-correlation of x (C, *sizes) with w (F, C, *kernel), by definition."""
    x = np.pad(x, [(0, 0)] + [(pad, pad)] * (x.ndim - 1))
    sizes = [(size - kernel) // stride + 1 for size, kernel in zip(x.shape[1:], w.shape[2:], strict=True)]
    out: Any = np.zeros((len(w), *sizes))
    for place in product(*map(range, sizes)):
        cut = tuple(
            slice(at * stride, at * stride + kernel) for at, kernel in zip(place, w.shape[2:], strict=True)
        )
        out[(slice(None), *place)] = (w * x[(slice(None), *cut)]).reshape(len(w), -1).sum(axis=1)
    return out


def transposed(x: Any, w: Any, stride: int, pad: int) -> Any:
    """Each number of x (C, *sizes) paints w (C, F, *kernel), `stride` apart; `pad` is cut off at each end."""
    sizes = [(size - 1) * stride + kernel for size, kernel in zip(x.shape[1:], w.shape[2:], strict=True)]
    out = np.zeros((w.shape[1], *sizes))
    for channel, *place in product(*map(range, x.shape)):
        cut = tuple(
            slice(at * stride, at * stride + kernel) for at, kernel in zip(place, w.shape[2:], strict=True)
        )
        out[(slice(None), *cut)] += w[channel] * x[(channel, *place)]
    inner = tuple(slice(pad, size - pad) for size in sizes)
    return out[(slice(None), *inner)]


W2, T2 = rng.normal(size=(3, 2, 3, 3)), rng.normal(size=(2, 3, 3, 3))
W3, T3 = rng.normal(size=(3, 2, 2, 2, 2)), rng.normal(size=(2, 3, 2, 2, 2))
BIAS = rng.normal(size=3)


@pytest.mark.parametrize(
    ("declare", "source", "reference", "weight"),
    [
        (lambda: layer.img_conv(image(), 3, 3, act=LINEAR, stride=2, padding=1), IMAGES, convolved, W2),
        (
            lambda: layer.img_conv(image(), 3, 3, act=LINEAR, stride=2, padding=1, trans=True),
            IMAGES,
            transposed,
            T2,
        ),
        (lambda: layer.img_conv3d(volume(), 2, 3, act=LINEAR, stride=2, padding=1), VOLUMES, convolved, W3),
        (
            lambda: layer.img_conv3d(volume(), 2, 3, act=LINEAR, stride=2, padding=1, layer_type="deconv3d"),
            VOLUMES,
            transposed,
            T3,
        ),
    ],
    ids=["conv", "transposed", "3d", "transposed 3d"],
)
def test_convolutions_are_what_loops_make(
    declare: Callable[[], LayerOutput], source: np.ndarray, reference: Any, weight: np.ndarray
) -> None:
    out = declare()
    bias = BIAS.reshape(-1, *[1] * (source.ndim - 2))
    expected = np.array([reference(x, weight, 2, 1) + bias for x in source])
    assert (out.num_filters, out.height, out.width) == (3, *expected.shape[-2:])
    assert out.depth == (1 if source.ndim == 4 else expected.shape[2])
    found = run(out, source, weights=[weight, BIAS])
    np.testing.assert_allclose(found, expected.reshape(2, -1), rtol=2e-5, atol=2e-5)


def test_a_convolution_is_a_term_of_mixed_and_concat_with_a_bias_for_each_filter() -> None:
    source = image()
    term = layer.conv_projection(source, 3, 3, stride=2, padding=1)
    shrunk = layer.conv_projection(source, 1, 1, stride=2)
    both = layer.concat([term, shrunk], bias_attr=True)
    thin = rng.normal(size=(1, 2, 1, 1))
    bias = rng.normal(size=4)
    expected = [
        np.concatenate([convolved(x, W2, 2, 1), convolved(x, thin, 2, 0)]) + bias[:, None, None]
        for x in IMAGES
    ]
    assert both.image == (4, 2, 3)
    found = run(both, IMAGES, weights=[W2, thin, bias])
    np.testing.assert_allclose(found, np.reshape(expected, (2, -1)), rtol=2e-5, atol=2e-5)
    term = layer.conv_projection(image("other"), 3, 3, stride=2, padding=1, trans=True)
    back = layer.mixed(input=term, bias_attr=True)
    painted = [transposed(x, T2, 2, 1) + BIAS[:, None, None] for x in IMAGES]
    assert back.image == (3, 7, 9)
    found = run(back, IMAGES, weights=[T2, BIAS])
    np.testing.assert_allclose(found, np.reshape(painted, (2, -1)), rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("trans", "stride"), [(False, 1), (False, 2), (True, 1), (True, 2)])
def test_each_sample_has_filters_of_its_own(trans: bool, stride: int) -> None:
    filters = rng.normal(size=(2, 54)).astype(np.float32)
    given = layer.data("filters", data_type.dense_vector(54))
    term = layer.conv_operator(image(), given, 3, 3, stride=stride, padding=1, trans=trans)
    shape, make = ((2, 3, 3, 3), transposed) if trans else ((3, 2, 3, 3), convolved)
    expected = [make(x, w.reshape(shape), stride, 1) for x, w in zip(IMAGES, filters, strict=True)]
    out = layer.mixed(input=term)
    by_name = {"image": IMAGES, "filters": filters}
    columns = [by_name[name] for name, _ in paddle.topology.Topology(out).data_type()]
    np.testing.assert_allclose(run(out, *columns), np.reshape(expected, (2, -1)), rtol=2e-5, atol=2e-5)


def pooled(x: Any, size: int, reduce: Any) -> Any:
    """Windows of `size` that follow one another over (C, *sizes); the last ones may be cut off."""
    counts = [-(-each // size) for each in x.shape[1:]]
    out: Any = np.zeros((len(x), *counts))
    for place in product(*map(range, counts)):
        cut = tuple(slice(at * size, (at + 1) * size) for at in place)
        out[(slice(None), *place)] = reduce(x[(slice(None), *cut)].reshape(len(x), -1), axis=1)
    return out


@pytest.mark.parametrize(
    ("kind", "reduce"), [(paddle.pooling.Max(), np.max), (paddle.pooling.Avg(), np.mean)]
)
def test_volumes_are_pooled_and_the_size_is_rounded_up(kind: Any, reduce: Any) -> None:
    out = layer.img_pool3d(volume(), 2, stride=2, pool_type=kind)
    expected = np.array([pooled(x, 2, reduce) for x in VOLUMES])
    assert (out.num_filters, out.depth, out.height, out.width) == expected.shape[1:]
    np.testing.assert_allclose(run(out, VOLUMES), expected.reshape(2, -1), rtol=1e-5)


@pytest.mark.parametrize(("kind", "reduce"), [(None, np.max), (paddle.pooling.Avg(), np.mean)])
def test_a_pyramid_has_1_4_and_16_cells(kind: Any, reduce: Any) -> None:
    pixels = rng.normal(size=(2, 3, 8, 8)).astype(np.float32)
    source = layer.data("pixels", data_type.dense_vector(192), height=8, width=8)
    out = layer.spp(source, pyramid_height=3, pool_type=kind)
    assert out.size == 3 * 21
    rows = [np.concatenate([pooled(x, size, reduce).ravel() for size in (8, 4, 2)]) for x in pixels]
    np.testing.assert_allclose(run(out, pixels), rows, rtol=1e-5, atol=1e-6)
    with pytest.raises(UsageError, match=r"8x8 pixels cannot be divided into 16x16 cells.*at most 4"):
        layer.spp(source, pyramid_height=5)


def test_parts_of_images_are_pooled_by_their_image_number() -> None:
    rois = np.array([[1, 0, 0, 3, 3], [0, 1, 1, 4, 2], [1, 2, 2, 2, 2]], np.float32)
    pixels = layer.data("pixels", data_type.dense_vector(40), height=4, width=5)
    boxes = layer.data("boxes", data_type.dense_vector_sequence(5))
    out = layer.roi_pool(pixels, boxes, 2, 1, 1.0)
    found = run(out, IMAGES, [rois[:2], rois[2:]])
    halves = [
        (1, 0, 4, 0, 2),
        (1, 0, 4, 2, 4),
        (0, 1, 3, 1, 3),
        (0, 1, 3, 3, 5),
        (1, 2, 3, 2, 3),
        (1, 2, 3, 2, 3),
    ]
    cells = [IMAGES[n, :, a:b, c:d].max(axis=(1, 2)) for n, a, b, c, d in halves]
    np.testing.assert_array_equal(found.reshape(3, 2, 2).swapaxes(1, 2).reshape(6, 2), cells)


def test_images_are_resized_turned_and_put_channels_last() -> None:
    source = image()
    wide = run(layer.bilinear_interp(source, 9, 4), IMAGES).reshape(2, 2, 4, 9)
    np.testing.assert_allclose(wide[..., ::2], IMAGES, rtol=1e-6)
    np.testing.assert_allclose(
        wide[..., 1::2], (IMAGES[..., 1:] + IMAGES[..., :-1]) / 2, rtol=1e-5, atol=1e-6
    )
    turned = run(layer.rotate(source, 4, 5), IMAGES).reshape(2, 2, 5, 4)
    np.testing.assert_array_equal(turned, np.rot90(IMAGES, -1, axes=(2, 3)))
    last = run(layer.switch_order(source, reshape_axis=3), IMAGES)
    np.testing.assert_array_equal(last, IMAGES.transpose(0, 2, 3, 1).reshape(-1, 2))
    rows = run(layer.switch_order(source, reshape_axis=1), IMAGES)
    np.testing.assert_array_equal(rows, IMAGES.transpose(0, 2, 3, 1).reshape(2, -1))


def test_an_image_is_cropped_to_the_shape_of_a_second_one() -> None:
    source = image()
    small = layer.img_pool(source, 2, stride=2)
    assert (small.height, small.width) == (2, 3)
    found = run(layer.crop([source, small], [1, 2]), IMAGES).reshape(2, 2, 2, 3)
    np.testing.assert_array_equal(found, IMAGES[:, :, 1:3, 2:5])


def test_pixels_get_length_1_times_a_number_for_each_channel() -> None:
    found = run(layer.cross_channel_norm(image()), IMAGES, weights=[[2.0, -3.0]]).reshape(IMAGES.shape)
    lengths = np.sqrt((IMAGES**2).sum(axis=1, keepdims=True) + 1e-6)
    np.testing.assert_allclose(found, IMAGES / lengths * np.reshape([2.0, -3.0], (1, 2, 1, 1)), rtol=1e-5)


def test_volumes_are_normalised_by_channel() -> None:
    out = layer.batch_norm(volume(), act=LINEAR, img3D=True, use_global_stats=False)
    assert (out.num_filters, out.depth, out.height, out.width) == (2, 3, 4, 3)
    mean, var = (getattr(VOLUMES, each)(axis=(0, 2, 3, 4), keepdims=True) for each in ("mean", "var"))
    expected = (VOLUMES - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(run(out, VOLUMES).reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)


OF_IMAGES: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "transposed conv": lambda x: layer.img_conv(x, 3, 2, act=LINEAR, stride=2, trans=True),
    "conv_projection": lambda x: layer.mixed(input=layer.conv_projection(x, 3, 2), bias_attr=True),
    "conv_operator": lambda x: layer.mixed(input=layer.conv_operator(x, layer.fc(x, 36), 3, 2, padding=1)),
    "transposed operator": lambda x: layer.mixed(
        input=layer.conv_operator(x, layer.fc(x, 16), 2, 2, stride=2, trans=True)
    ),
    "cross_channel_norm": lambda x: layer.cross_channel_norm(x),
    "bilinear_interp": lambda x: layer.bilinear_interp(x, 7, 3),
    "rotate": lambda x: layer.rotate(x, 4, 4),
    "switch_order": lambda x: layer.resize(layer.switch_order(x, reshape_axis=2), 32),
    "spp": lambda x: layer.spp(x, pyramid_height=2, pool_type=paddle.pooling.Avg()),
}


@pytest.mark.parametrize("name", OF_IMAGES)
def test_gradients_of_image_layers(name: str) -> None:
    source = layer.data("source", data_type.dense_vector(3))
    pixels = layer.fc(source, 32, act.Tanh())
    made = OF_IMAGES[name](layer.img_conv(pixels, 1, 2, num_channels=2, act=LINEAR))
    cost = layer.sum_cost(layer.fc(made, 1, act.Tanh(), bias_attr=False))
    check_closely(cost, [(row,) for row in np.random.default_rng(2).normal(size=(4, 3))])


OF_VOLUMES: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "img_conv3d": lambda x: layer.img_conv3d(x, 2, 2, act=LINEAR),
    "transposed": lambda x: layer.img_conv3d(x, 2, 2, act=LINEAR, stride=2, trans=True),
    "img_pool3d": lambda x: layer.img_pool3d(x, 2, stride=2, pool_type=paddle.pooling.Avg()),
    "batch_norm": lambda x: layer.batch_norm(x, act=LINEAR, img3D=True),
}


@pytest.mark.parametrize("name", OF_VOLUMES)
def test_gradients_of_volume_layers(name: str) -> None:
    source = volume()
    thick = layer.img_conv3d(source, 1, 2, act=act.Tanh())
    cost = layer.sum_cost(layer.fc(OF_VOLUMES[name](thick), 1, act.Tanh(), bias_attr=False))
    check_closely(cost, [(row.ravel(),) for row in VOLUMES])


def test_gradients_of_pooled_parts() -> None:
    source = layer.data("source", data_type.dense_vector(3))
    boxes = layer.data("boxes", data_type.dense_vector(5))
    thick = layer.img_conv(layer.fc(source, 32), 1, 2, num_channels=2, act=LINEAR)
    cost = layer.sum_cost(layer.fc(layer.roi_pool(thick, boxes, 2, 2, 1.0), 1, act.Tanh(), bias_attr=False))
    samples = [(row, [0 if n else 1, 0, 1, 3, 3]) for n, row in enumerate(rng.normal(size=(2, 3)))]
    check_closely(cost, samples, step=0.005, rel=4e-3)


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (
            lambda: layer.img_conv3d(image(), 2, 3, num_channels=3),
            "not a volume of 3 channels and 1x4x5 cells",
        ),
        (lambda: layer.img_conv3d(volume(), (2, 2), 3), r"filter_size: expected one number or \(x, y, z\)"),
        (lambda: layer.img_pool3d(volume(), 2, padding=-1), "padding must be at least 0"),
        (lambda: layer.img_conv3d(volume(), 5, 1), "an image of 3x4x3 pixels .* 5x5x5"),
        (lambda: layer.switch_order(image()), "reshape_axis must be 1, 2 or 3, got None"),
        (
            lambda: layer.roi_pool(image(), image_rois(4), 2, 2, 1.0),
            "rois need 5 columns, but layer 'rois' has 4",
        ),
        (lambda: layer.bilinear_interp(image(), 4), "out_size must be at least 1"),
        (
            lambda: layer.conv_operator(image(), image_rois(18), 3, 1, stride=2, padding=3, trans=True),
            r"padding \(3, 3\) must be smaller than",
        ),
    ],
)
def test_what_does_not_fit_is_refused(declare: Callable[[], LayerOutput], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        declare()


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda: layer.rotate(image(), 3, 3), "a multiple of 3x3 values"),
        (
            lambda: layer.block_expand(image(), block_x=1, stride_x=1, stride_y=1, num_channels=2),
            r"block .*\(0, 1\)",
        ),
        (
            lambda: layer.block_expand(image(), block_x=1, block_y=1, stride_x=1, num_channels=2),
            r"stride .*\(0, 1\)",
        ),
    ],
)
def test_sizes_that_only_running_needs_are_refused_before_the_first_batch(
    declare: Callable[[], LayerOutput], says: str
) -> None:
    out = declare()
    assert layer.parse_network(out).layers
    cost = layer.sum_cost(out)
    with pytest.raises(UsageError, match=says):
        paddle.trainer.SGD(cost, paddle.parameters.create(cost), paddle.optimizer.Momentum())


def image_rois(size: int) -> LayerOutput:
    return layer.data("rois", data_type.dense_vector(size))
