# SPDX-License-Identifier: Apache-2.0
"""Gradients of layers beside differences of the cost; what `infer` gives."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import (
    LAYERS,
    ROWS,
    act,
    data_type,
    dense,
    layer,
)

GRADIENT_OF = [name for name in LAYERS if name not in ("trans",)]


@pytest.mark.parametrize("name", GRADIENT_OF)
def test_gradients_agree_with_differences_of_the_cost(name: str) -> None:
    source = dense("source", 3)
    x, y = (layer.fc(source, 4, act.Tanh(), name=f"in{i}") for i in range(2))
    w = layer.fc(source, 1, act.Sigmoid(), name="inw")
    out = LAYERS[name][0](x, y, w)
    check(layer.sum_cost(layer.fc(out, 1, act.Tanh(), name="end")))


IMAGE_LAYERS: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "img_conv": lambda image: layer.img_conv(image, 3, 2, padding=1, act=act.Tanh()),
    "img_pool": lambda image: layer.img_pool(image, 2, stride=2, pool_type=paddle.pooling.Avg()),
    "img_cmrnorm": lambda image: layer.img_cmrnorm(image, 3),
    "maxout": lambda image: layer.maxout(image, 2),
    "pad": lambda image: layer.pad(image, pad_h=(1, 1)),
    "crop": lambda image: layer.crop(image, [1, 1], axis=2, shape=[0, 4, 2, 2]),
    "concat": lambda image: layer.concat([image, image]),
}


@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_gradients_of_image_layers_agree_with_differences(name: str) -> None:
    source = dense("source", 3)
    pixels = layer.fc(source, 36, act.Tanh(), name="pixels")
    image = layer.img_conv(pixels, 1, 4, num_channels=4, name="image", act=act.Linear())
    # A larger step changes which channels are the largest, and differences of a smaller one are less exact.
    how = {"step": 0.002, "rel": 0.01} if name == "maxout" else {}
    check(layer.sum_cost(layer.fc(IMAGE_LAYERS[name](image), 1, act.Tanh(), name="end")), **how)


def check(cost: LayerOutput, **how: float) -> None:
    check_closely(cost, [(row,) for row in np.random.default_rng(2).normal(size=(5, 3))], **how)


def test_sparse_vectors_are_refused_where_numbers_are_needed() -> None:
    out = layer.addto(layer.data("s", data_type.sparse_binary_vector(9)))
    with pytest.raises(UsageError, match=r"needs numbers, but its input .s. is sparse_binary_vector"):
        paddle.infer(out, paddle.parameters.create(out), [([1],)])


def test_infer_stacks_outputs_and_gives_fields_in_order() -> None:
    x = dense("x", 4)
    a, b, c = layer.addto(x), x * 2, layer.fc(x, 3)
    parameters = paddle.parameters.create([a, b, c])
    samples = [(row,) for row in ROWS]
    np.testing.assert_allclose(paddle.infer([a, b], parameters, samples), np.concatenate([ROWS, 2 * ROWS]))
    assert paddle.infer(a, parameters, []) == []
    with pytest.raises(TypeError, match="got generator"):
        paddle.infer(a, parameters, (sample for sample in samples))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="have different widths"):
        paddle.infer([a, c], parameters, samples)
    inference = paddle.inference.Inference(parameters, [a, c])
    kept = inference.infer(samples, flatten_result=False)
    assert [array.shape for array in kept] == [(3, 4), (3, 3)]
    with pytest.raises(ValueError, match="no field 'id'"):
        paddle.infer(a, parameters, samples, field="id")
    with pytest.raises(ValueError, match="given parameters"):
        paddle.infer(c, paddle.parameters.create(a), samples)
    with pytest.raises(ValueError, match="output_layer or fileobj"):
        paddle.inference.Inference(parameters)
