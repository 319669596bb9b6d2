# SPDX-License-Identifier: Apache-2.0
"""How well two texts fit: convolutions with shared parameters on both sides, and a cost of pairs of pairs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, DIMS = 40, (16, 12, 8)


def side(text: Any, prefix: str) -> Any:
    attr, layer = paddle.attr, paddle.layer
    table = layer.embedding(input=text, size=DIMS[0], param_attr=attr.ParamAttr(name=f"{prefix}_emb.w"))
    views = []
    for length in (3, 4):
        key = f"{prefix}_cnn_{length}_{DIMS[1]}"
        views.append(
            paddle.networks.sequence_conv_pool(
                input=table,
                context_len=length,
                hidden_size=DIMS[1],
                context_proj_param_attr=attr.ParamAttr(name=f"cnn_{length}_contex_proj.w"),
                fc_param_attr=attr.ParamAttr(name=f"{key}_fc.w"),
                fc_bias_attr=attr.ParamAttr(name=f"{key}_fc.b"),
                pool_bias_attr=attr.ParamAttr(name=f"{key}_pool.b"),
            )
        )
    key = f"{prefix}_fc_0_{DIMS[2]}"
    return layer.fc(
        input=layer.concat(input=views),
        size=DIMS[2],
        act=paddle.activation.Tanh(),
        param_attr=attr.ParamAttr(name=f"{key}.w"),
        bias_attr=attr.ParamAttr(name=f"{key}.b", initial_std=0.0),
    )


def network(is_infer: bool) -> Any:
    layer, kind = paddle.layer, paddle.data_type
    names = ("source_input", "left_target_input", "right_target_input")[: 2 if is_infer else 3]
    source, *targets = (side(layer.data(name, kind.integer_value_sequence(WORDS)), "_") for name in names)
    scores = [layer.cos_sim(source, target) for target in targets]
    if is_infer:
        return scores[0]
    label = layer.data("label_input", kind.integer_value(1))
    return layer.rank_cost(*scores, label=label), None, label


def samples(count: int) -> list[Any]:
    """A text fits one of the same half of the words; the label, 0 or 1, says whether the left one does."""
    rng = random.Random(8)

    def text(half: int) -> list[int]:
        return [rng.randrange(WORDS // 2) + half * WORDS // 2 for _ in range(rng.randint(3, 6))]

    found = []
    for _ in range(count):
        half, label = rng.randrange(2), rng.randrange(2)
        pair = text(half), text(1 - half)
        found.append((text(half), *(pair if label else pair[::-1]), label))
    return found


def train(path: str) -> dict[str, Any]:
    cost, prediction, _ = network(is_infer=False)
    assert prediction is None
    optimizer = paddle.optimizer.Adam(
        learning_rate=5e-3,
        regularization=paddle.optimizer.L2Regularization(rate=1e-3),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    return owner.train(path, cost, optimizer, samples(300), passes=10)


def infer(path: str) -> dict[str, Any]:
    engine = paddle.inference.Inference(output_layer=network(is_infer=True), parameters=owner.load(path))
    known = samples(60)
    left, right = (engine.infer(input=[(each[0], each[at]) for each in known]).ravel() for at in (1, 2))
    return {"accuracy": np.mean((left > right) == [each[3] for each in known])}


if __name__ == "__main__":
    owner.main(train, infer)
