# SPDX-License-Identifier: Apache-2.0
"""The next word of five against words drawn by chance; all words are compared afterwards."""

from __future__ import annotations

from typing import Any

import numpy as np
import owner
from word_vectors import SIZE, WORDS, samples

import paddle.v2 as paddle


def network(is_train: bool) -> Any:
    layer, attr, act = paddle.layer, paddle.attr, paddle.activation
    words = [layer.data(f"__word0{number}__", paddle.data_type.integer_value(WORDS)) for number in range(4)]
    shared = attr.Param(name="_proj", initial_std=0.001, learning_rate=1, l2_rate=0)
    context = layer.concat(
        input=[layer.embedding(input=word, size=SIZE, param_attr=shared) for word in words]
    )
    hidden = layer.fc(input=context, size=32, act=act.Tanh(), bias_attr=attr.Param(learning_rate=1))
    weight, bias = attr.Param(name="nce_w"), attr.Param(name="nce_b")
    if not is_train:
        return layer.mixed(
            size=WORDS,
            input=layer.trans_full_matrix_projection(input=hidden, param_attr=weight),
            act=act.Softmax(),
            bias_attr=bias,
        )
    return layer.nce(
        input=hidden,
        label=layer.data("__target_word__", paddle.data_type.integer_value(WORDS)),
        num_classes=WORDS,
        param_attr=weight,
        bias_attr=bias,
        num_neg_samples=5,
        neg_distribution=None,
    )


def train(path: str) -> dict[str, Any]:
    return owner.train(
        path, network(is_train=True), paddle.optimizer.Adam(learning_rate=1e-2), samples(), passes=20
    )


def infer(path: str) -> dict[str, Any]:
    known = samples()[:50]
    rows = paddle.infer(
        output_layer=network(is_train=False), parameters=owner.load(path), input=[each[:4] for each in known]
    )
    return {"accuracy": np.mean(rows.argmax(axis=1) == [each[4] for each in known])}


if __name__ == "__main__":
    owner.main(train, infer)
