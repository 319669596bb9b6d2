# SPDX-License-Identifier: Apache-2.0
"""Scripts and data that tests of training in one process share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput

layer, attr, data_type, optimizer, event = (
    paddle.layer,
    paddle.attr,
    paddle.data_type,
    paddle.optimizer,
    paddle.event,
)


def adagrad() -> optimizer.AdaGrad:
    return optimizer.AdaGrad(learning_rate=3e-2, regularization=optimizer.L2Regularization(8e-4))


def batches(data: list[tuple[int, ...]], size: int) -> Callable[[], Iterable[list[tuple[int, ...]]]]:
    return paddle.batch(lambda: iter(data), size)


def regression() -> tuple[LayerOutput, LayerOutput]:
    x = layer.data("x", data_type.dense_vector(2))
    y = layer.data("y", data_type.dense_vector(1))
    out = layer.fc(x, 1, paddle.activation.Linear(), name="out")
    return out, layer.square_error_cost(out, y)


POINTS = [([1.0, 2.0], [3.0]), ([-1.0, 0.5], [0.25]), ([0.5, -1.0], [-1.0])]
