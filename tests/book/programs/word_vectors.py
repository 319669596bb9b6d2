# SPDX-License-Identifier: Apache-2.0
"""The next word of five, by a tree of classes in training, which Python walks down afterwards."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE = 10, 8


def network(is_train: bool) -> Any:
    layer, attr, act = paddle.layer, paddle.attr, paddle.activation
    words = [layer.data(f"__word0{number}__", paddle.data_type.integer_value(WORDS)) for number in range(4)]
    shared = attr.Param(name="_proj", initial_std=0.001, learning_rate=1, l2_rate=0)
    context = layer.concat(
        input=[layer.embedding(input=word, size=SIZE, param_attr=shared) for word in words]
    )
    hidden = layer.fc(
        input=context,
        size=32,
        act=act.Sigmoid(),
        layer_attr=attr.Extra(drop_rate=0.05),
        bias_attr=attr.Param(learning_rate=2),
        param_attr=attr.Param(initial_std=1.0 / (SIZE * 8) ** 0.5, learning_rate=1),
    )
    weight, bias = attr.Param(name="sigmoid_w"), attr.Param(name="sigmoid_b")
    if not is_train:
        with layer.mixed(size=WORDS - 1, act=act.Sigmoid(), bias_attr=bias) as out:
            out += layer.trans_full_matrix_projection(input=hidden, param_attr=weight)
        return out
    target = layer.data("__target_word__", paddle.data_type.integer_value(WORDS))
    cost = layer.hsigmoid(input=hidden, label=target, num_classes=WORDS, param_attr=weight, bias_attr=bias)
    return cost, target


def samples() -> list[Any]:
    rng = random.Random(1)
    starts = [rng.randrange(WORDS) for _ in range(300)]
    return [tuple((start + step) % WORDS for step in range(5)) for start in starts]


def train(path: str) -> dict[str, Any]:
    cost, _ = network(is_train=True)
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-2, regularization=paddle.optimizer.L2Regularization(8e-4)
    )
    return owner.train(path, cost, optimizer, samples(), passes=15)


def infer(path: str) -> dict[str, Any]:
    out = network(is_train=False)
    text = str(paddle.layer.parse_network(out))
    known = samples()[:50]
    rows = paddle.infer(output_layer=out, parameters=owner.load(path), input=[each[:4] for each in known])
    right = 0
    for row, sample in zip(rows, known, strict=True):
        node = 1
        while node < WORDS:  # leaves come behind the inner nodes
            node = 2 * node + int(row[node - 1] > 0.5)
        right += node - WORDS == sample[4]
    return {"accuracy": np.mean(right / len(known)), "printed": 'name: "_proj"' in text}


if __name__ == "__main__":
    owner.main(train, infer)
