# SPDX-License-Identifier: Apache-2.0
"""Images: an inception block with two heads beside the main one, which only the trainer knows."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

SIDE, CLASSES = 16, 3


def inception(name: str, input: Any, channels: int) -> Any:
    layer = paddle.layer
    one = layer.img_conv(name=f"{name}_1", input=input, filter_size=1, num_channels=channels, num_filters=4)
    three = layer.img_conv(
        name=f"{name}_3",
        input=layer.img_conv(name=f"{name}_3r", input=input, filter_size=1, num_filters=4),
        filter_size=3,
        num_filters=6,
        stride=1,
        padding=1,
    )
    pool = layer.img_pool(
        name=f"{name}_max", input=input, pool_size=3, num_channels=channels, stride=1, padding=1
    )
    reduced = layer.img_conv(name=f"{name}_proj", input=pool, filter_size=1, num_filters=4)
    return layer.concat(name=name, input=[one, three, reduced])


def network() -> Any:
    layer, act = paddle.layer, paddle.activation
    image = layer.data("image", paddle.data_type.dense_vector(3 * SIDE * SIDE))
    first = layer.img_conv(
        name="conv1", input=image, filter_size=3, num_channels=3, num_filters=8, stride=1, padding=1
    )
    normed = layer.img_cmrnorm(input=first, size=5, scale=1e-4, power=0.75)
    pooled = layer.img_pool(name="pool1", input=normed, pool_size=3, stride=2)
    block = inception("ince3a", pooled, 8)
    deeper = inception("ince4a", layer.img_pool(input=block, pool_size=2, stride=2), block.num_filters)

    def head(input: Any) -> Any:
        short = layer.img_pool(input=input, pool_size=2, stride=2, pool_type=paddle.pooling.Avg())
        dropped = layer.addto(input=short, layer_attr=paddle.attr.Extra(drop_rate=0.1))
        return layer.fc(input=dropped, size=CLASSES, act=act.Softmax())

    return head(deeper), head(block), head(pooled)


def samples(count: int) -> list[Any]:
    """The class is the colour of a square somewhere."""
    rng = random.Random(9)
    noise = np.random.default_rng(9)
    found = []
    for _ in range(count):
        label = rng.randrange(CLASSES)
        image = noise.normal(0, 0.3, (3, SIDE, SIDE)).astype(np.float32)
        x, y = rng.randrange(SIDE - 5), rng.randrange(SIDE - 5)
        image[label, y : y + 5, x : x + 5] += 2.0
        found.append((image.ravel(), label))
    return found


def train(path: str) -> dict[str, Any]:
    main, one, two = network()
    label = paddle.layer.data("label", paddle.data_type.integer_value(CLASSES))
    cost = paddle.layer.cross_entropy_cost(input=main, label=label)
    others = [paddle.layer.cross_entropy_cost(input=head, label=label, coeff=0.3) for head in (one, two)]
    for head in (main, one, two):
        paddle.evaluator.classification_error(input=head, label=label)
    parameters = paddle.parameters.create(cost)
    known = len(parameters)
    optimizer = paddle.optimizer.Momentum(
        momentum=0.9,
        regularization=paddle.optimizer.L2Regularization(rate=0.0005 * 16),
        learning_rate=0.02 / 16,
        learning_rate_decay_a=0.1,
        learning_rate_decay_b=128000.0,
        learning_rate_schedule="discexp",
    )
    found = owner.train(
        path, cost, optimizer, samples(120), passes=8, extra_layers=others, parameters=parameters
    )
    assert len(parameters) == known + 4
    assert sum("classification_error" in name for name in found) == 3
    return found


def infer(path: str) -> dict[str, Any]:
    main, one, two = network()
    parameters, known = owner.load(path), samples(60)
    labels = [label for _, label in known]
    batch = [(image,) for image, _ in known]
    found = [paddle.infer(output_layer=head, parameters=parameters, input=batch) for head in (main, one, two)]
    return {f"accuracy {at}": np.mean(rows.argmax(axis=1) == labels) for at, rows in enumerate(found)}


if __name__ == "__main__":
    owner.main(train, infer)
