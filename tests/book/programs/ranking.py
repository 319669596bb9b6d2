# SPDX-License-Identifier: Apache-2.0
"""Documents by their relevance: pair by pair, and list by list."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

FEATURES = 8


def half(side: str) -> Any:
    layer, attr, act = paddle.layer, paddle.attr, paddle.activation
    data = layer.data(f"{side}_data", paddle.data_type.dense_vector(FEATURES))
    hidden = layer.fc(
        input=data, size=10, act=act.Tanh(), name=f"{side}_hidden",
        param_attr=attr.Param(initial_std=0.1, name="hidden_w1"),
    )  # fmt: skip
    return layer.fc(
        input=hidden, size=1, act=act.Linear(), name=f"{side}_score",
        param_attr=attr.Param(initial_std=0.1, name="output"),
    )  # fmt: skip


def lists() -> Any:
    layer, act, attr = paddle.layer, paddle.activation, paddle.attr
    data = layer.data("data", paddle.data_type.dense_vector_sequence(FEATURES))
    hidden = layer.fc(input=data, size=12, act=act.Tanh(), param_attr=attr.Param(initial_std=0.3, name="l1"))
    return layer.fc(input=hidden, size=1, act=act.Linear(), param_attr=attr.Param(initial_std=0.3, name="l2"))


def documents(count: int, format: str) -> list[Any]:
    rng = np.random.default_rng(31)
    worth = rng.normal(size=FEATURES)
    found: list[Any] = []
    for _ in range(count):
        features = rng.normal(size=(6, FEATURES)).astype(np.float32)
        relevance = np.clip(np.round(features @ worth / 2 + 1), 0, 2)
        if format == "listwise":
            found.append((features, [[value] for value in relevance]))
            continue
        best, worst = int(relevance.argmax()), int(relevance.argmin())
        if relevance[best] > relevance[worst]:
            found.append(([1], features[best], features[worst]))
    return found


def train(path: str) -> dict[str, Any]:
    label = paddle.layer.data("label", paddle.data_type.dense_vector(1))
    left, right = half("left"), half("right")
    cost = paddle.layer.rank_cost(name="cost", left=left, right=right, label=label)
    apart: list[float] = []

    def handler(event: Any) -> None:
        if isinstance(event, paddle.event.EndIteration):
            scores = [event.gm.getLayerOutputs(name)[name]["value"] for name in ("left_score", "right_score")]
            apart.append(float(np.mean(scores[0] > scores[1])))

    feeding = {"label": 0, "left_data": 1, "right_data": 2}
    adam = functools.partial(paddle.optimizer.Adam, learning_rate=1e-2)
    found = owner.train(
        path, cost, adam(), documents(150, "pairwise"), passes=10, feeding=feeding, handler=handler
    )
    assert apart[-1] > 0.9
    score = paddle.layer.data("label_of_list", paddle.data_type.dense_vector_sequence(1))
    gain = paddle.layer.lambda_cost(input=lists(), score=score, NDCG_num=3, max_sort_size=-1)
    rows = functools.partial(documents, format="listwise")(100)
    lambda_rank = owner.train(
        f"{path}.lists", gain, adam(), rows, passes=12, feeding={"data": 0, "label_of_list": 1}
    )
    assert lambda_rank["last"] / 6 > 0.95 > lambda_rank["first"] / 6, lambda_rank
    return found


def infer(path: str) -> dict[str, Any]:
    pairs = documents(150, "pairwise")
    engine = paddle.inference.Inference(output_layer=half("right"), parameters=owner.load(path))
    better, worse = (engine.infer(input=[(pair[at],) for pair in pairs]) for at in (1, 2))
    rows = documents(50, "listwise")
    scores = paddle.infer(
        output_layer=lists(), parameters=owner.load(f"{path}.lists"), input=[(each,) for each, _ in rows]
    ).reshape(len(rows), 6)
    found = [
        relevance[best][0] == max(relevance)[0]
        for best, (_, relevance) in zip(scores.argmax(axis=1), rows, strict=True)
    ]
    return {"pairs": np.mean(better > worse), "lists": np.mean(found)}


if __name__ == "__main__":
    owner.main(train, infer)
