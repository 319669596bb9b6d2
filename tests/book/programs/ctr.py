# SPDX-License-Identifier: Apache-2.0
"""Clicks on advertisements: a deep part over sparse ids, a wide part over weighted columns."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

IDS, COLUMNS = 400, 300


def network() -> Any:
    layer, act = paddle.layer, paddle.activation
    deep = layer.data("dnn_input", paddle.data_type.sparse_binary_vector(IDS))
    wide = layer.data("lr_input", paddle.data_type.sparse_float_vector(COLUMNS))
    hidden = layer.fc(input=deep, size=16)
    for number, size in enumerate((16, 8, 1)):
        hidden = layer.fc(input=hidden, size=size, act=act.Relu(), name=f"dnn-fc-{number}")
    linear = layer.fc(input=wide, size=1, act=act.Relu())
    return layer.fc(input=layer.concat(input=[hidden, linear]), size=1, act=act.Sigmoid())


def samples(count: int) -> list[Any]:
    rng = random.Random(7)
    found = []
    for _ in range(count):
        ids = sorted(rng.sample(range(IDS), 5))
        columns = [(column, rng.random()) for column in sorted(rng.sample(range(COLUMNS), 4))]
        clicked = int(sum(column < 150 for column, _ in columns) >= 2)
        found.append((ids, columns, [clicked]))
    return found


def train(path: str) -> dict[str, Any]:
    predicted = network()
    click = paddle.layer.data("click", paddle.data_type.dense_vector(1))
    cost = paddle.layer.multi_binary_label_cross_entropy_cost(input=predicted, label=click)
    feeding = {"dnn_input": 0, "lr_input": 1, "click": 2}
    return owner.train(
        path, cost, paddle.optimizer.AdaGrad(learning_rate=0.05), samples(400), passes=12, feeding=feeding
    )


def infer(path: str) -> dict[str, Any]:
    predicted, known = network(), samples(400)
    batch = [sample[:2] for sample in known]
    found = paddle.infer(output_layer=predicted, parameters=owner.load(path), input=batch)
    return {
        "accuracy": np.mean([(p > 0.5) == y for p, (_, _, (y,)) in zip(found.ravel(), known, strict=True)])
    }


if __name__ == "__main__":
    owner.main(train, infer)
