# SPDX-License-Identifier: Apache-2.0
"""Classes of texts by convolutions of two widths over words."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, CLASSES = 50, 2


def network(is_infer: bool) -> Any:
    layer, act = paddle.layer, paddle.activation
    word = layer.data("word", paddle.data_type.integer_value_sequence(WORDS))
    label = layer.data("label", paddle.data_type.integer_value(CLASSES))
    table = layer.embedding(input=word, size=12)
    views = [
        paddle.networks.sequence_conv_pool(input=table, context_len=length, hidden_size=16)
        for length in (3, 4)
    ]
    out = layer.fc(input=views, size=CLASSES, act=act.Softmax())
    if is_infer:
        return out
    return layer.classification_cost(input=out, label=label), out, label


def samples(count: int) -> list[Any]:
    """The class says whether word 1 follows word 0 somewhere."""
    rng = random.Random(5)
    found = []
    for number in range(count):
        words = [rng.randrange(2, WORDS) for _ in range(rng.randint(4, 9))]
        at = rng.randrange(len(words) - 1)
        words[at : at + 2] = [0, 1] if number % 2 else [1, 0]
        found.append((words, number % 2))
    return found


def train(path: str) -> dict[str, Any]:
    cost, out, label = network(is_infer=False)
    optimizer = paddle.optimizer.Adam(
        learning_rate=1e-2,
        regularization=paddle.optimizer.L2Regularization(rate=1e-3),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    auc = paddle.evaluator.auc(input=out, label=label)
    return owner.train(path, cost, optimizer, samples(300), passes=8, extra_layers=auc)


def infer(path: str) -> dict[str, Any]:
    out, known = network(is_infer=True), samples(100)
    engine = paddle.inference.Inference(output_layer=out, parameters=owner.load(path))
    found = engine.infer(input=[[words] for words, _ in known], field=["value"])
    return {"accuracy": np.mean(found.argmax(axis=1) == [label for _, label in known])}


if __name__ == "__main__":
    owner.main(train, infer)
