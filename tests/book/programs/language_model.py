# SPDX-License-Identifier: Apache-2.0
"""A language model of two LSTMs, whose sentences a search in Python makes word by word."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, END = 12, 1


def network(is_infer: bool) -> Any:
    layer = paddle.layer
    words = layer.data("input", paddle.data_type.integer_value_sequence(WORDS))
    hidden = layer.embedding(input=words, size=12)
    for _ in range(2):
        hidden = paddle.networks.simple_lstm(input=hidden, size=16)
    out = layer.fc(input=[hidden], size=WORDS, act=paddle.activation.Softmax())
    if is_infer:
        return layer.last_seq(input=out)
    target = layer.data("target", paddle.data_type.integer_value_sequence(WORDS))
    return layer.classification_cost(input=out, label=target)


def samples(count: int) -> list[Any]:
    """Words that count up, and end after 9."""
    rng = random.Random(2)
    found = []
    for _ in range(count):
        words = list(range(rng.randint(2, 8), 10))
        found.append((words, [*words[1:], END]))
    return found


def train(path: str) -> dict[str, Any]:
    cost = network(is_infer=False)
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-2,
        regularization=paddle.optimizer.L2Regularization(rate=1e-3),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5, max_average_window=10000),
    )
    return owner.train(
        path, cost, optimizer, samples(200), passes=10, extra_layers=paddle.evaluator.sum(input=cost)
    )


def infer(path: str) -> dict[str, Any]:
    engine = paddle.inference.Inference(output_layer=network(is_infer=True), parameters=owner.load(path))
    paths: list[tuple[float, list[int]]] = [(0.0, [4])]
    for _ in range(8):
        going = [each for each in paths if each[1][-1] != END]
        if not going:
            break
        chances = engine.infer(input=[[words] for _, words in going], field=["value"])
        longer = [
            (score + float(np.log(row[word])), [*words, int(word)])
            for (score, words), row in zip(going, chances, strict=True)
            for word in np.argsort(-row)[:3]
        ]
        paths = sorted([*(each for each in paths if each[1][-1] == END), *longer], key=lambda each: -each[0])[
            :3
        ]
    return {"right": paths[0][1] == [4, 5, 6, 7, 8, 9, END]}


if __name__ == "__main__":
    owner.main(train, infer)
