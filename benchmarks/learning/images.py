# SPDX-License-Identifier: Apache-2.0
"""Networks for pictures as Fluid programs; `torch_images` has the same ones.

LeNet: two 5 x 5 convolutions with max pooling, one fully connected layer. VGG-16 with batch norm, ResNet-20: as in
their papers for pictures of 32 x 32. Momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.learning import work


def network(name: str) -> Callable[[int], float]:
    """Return a function that takes one step of training and returns the cost."""
    import numpy as np

    from paddle import fluid

    batch, shape = work.PICTURES[name]
    fluid.default_startup_program().random_seed = 1
    images = fluid.layers.data("images", shape=list(shape), dtype="float32")
    label = fluid.layers.data("label", shape=[1], dtype="int64")
    scores = {"lenet": _lenet, "vgg16": _vgg16, "resnet20": _resnet20}[name](images)
    cost = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.softmax(scores), label))
    fluid.optimizer.Momentum(work.PICTURE_RATE, 0.9).minimize(cost)
    executor = fluid.Executor(work.place(fluid))
    executor.run(fluid.default_startup_program())
    drawn = np.random.default_rng(work.SEED)
    feed: dict[str, Any] = {
        "images": drawn.standard_normal((batch, *shape)).astype("float32"),
        "label": drawn.integers(0, 10, (batch, 1)),
    }

    def step(number: int) -> float:
        (value,) = executor.run(feed=feed, fetch_list=[cost])
        return float(value.reshape(-1)[0])

    return step


def _lenet(images: Any) -> Any:
    from paddle.fluid import layers

    first = layers.pool2d(layers.conv2d(images, 20, 5, act="relu"), 2, "max", 2)
    second = layers.pool2d(layers.conv2d(first, 50, 5, act="relu"), 2, "max", 2)
    return layers.fc(second, 10)


def _normed(x: Any, filters: int, size: int, stride: int = 1, act: str | None = "relu") -> Any:
    from paddle.fluid import layers

    out = layers.conv2d(x, filters, size, stride, size // 2, bias_attr=False)
    return layers.batch_norm(out, act=act)


def _vgg16(images: Any) -> Any:
    from paddle.fluid import layers

    x = images
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            x = _normed(x, filters, 3)
        x = layers.pool2d(x, 2, "max", 2)
    return layers.fc(layers.fc(layers.fc(x, 512, act="relu"), 512, act="relu"), 10)


def _resnet20(images: Any) -> Any:
    from paddle.fluid import layers

    x = _normed(images, 16, 3)
    for filters in (16, 32, 64):
        for block in range(3):
            stride = 2 if filters > 16 and not block else 1
            out = _normed(_normed(x, filters, 3, stride), filters, 3, act=None)
            short = _normed(x, filters, 1, stride, act=None) if stride > 1 else x
            x = layers.elementwise_add(out, short, act="relu")
    return layers.fc(layers.pool2d(x, pool_type="avg", global_pooling=True), 10)
