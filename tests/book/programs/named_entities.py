# SPDX-License-Identifier: Apache-2.0
"""Names in sentences: two recurrent layers in each direction under a conditional random field."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, LABELS, SIZE = 20, 5, 12


def hidden(is_train: bool) -> Any:
    layer, attr, act, kind = paddle.layer, paddle.attr, paddle.activation, paddle.data_type
    word = layer.data("word", kind.integer_value_sequence(WORDS))
    mark = layer.data("mark", kind.integer_value_sequence(2))
    table = layer.embedding(input=word, size=8, param_attr=attr.Param(name="emb", is_static=True))
    marks = layer.embedding(input=mark, size=4, param_attr=attr.Param(initial_std=0.0))
    fast, slow = (
        attr.Param(initial_std=0.1, learning_rate=1e-1),
        attr.Param(initial_std=0.1, learning_rate=1.0),
    )
    first = layer.fc(
        input=[table, marks],
        name="__hidden00__",
        size=SIZE,
        act=act.Tanh(),
        bias_attr=attr.Param(initial_std=0.1),
    )
    ends = []
    for direction in ("fwd", "bwd"):
        rows, below = first, first
        for number in range(2):
            if number:
                below = layer.fc(
                    input=[below, rows], name=f"__{direction}_hidden{number}__", size=SIZE,
                    act=act.STanh(), param_attr=[slow, fast],
                )  # fmt: skip
            is_reverse = number % 2 if direction == "fwd" else not number % 2
            rows = layer.recurrent(
                input=below, name=f"__{direction}_rnn{number}__", act=act.Relu(),
                bias_attr=attr.Param(initial_std=0.0), reverse=is_reverse, param_attr=fast,
            )  # fmt: skip
        ends += [below, rows]
    return layer.fc(
        input=ends, name="output", size=LABELS, act=act.Linear(), param_attr=[slow, fast, slow, fast]
    )


def network(is_train: bool) -> Any:
    layer, attr = paddle.layer, paddle.attr
    out, shared = hidden(is_train), attr.Param(name="crfw", initial_std=0.0, learning_rate=1e-1)
    if not is_train:
        return layer.crf_decoding(size=LABELS, input=out, param_attr=shared)
    target = layer.data("target", paddle.data_type.integer_value_sequence(LABELS))
    cost = layer.crf(size=LABELS, input=out, label=target, param_attr=shared)
    decoding = layer.crf_decoding(size=LABELS, input=out, label=target, param_attr=attr.Param(name="crfw"))
    return cost, decoding, target


def samples(count: int) -> list[Any]:
    """Words 0 to 4 begin a name of type 0, 5 to 9 one of type 1; a capital after one goes on with it."""
    rng = random.Random(21)
    found = []
    for _ in range(count):
        words, marks, labels = [], [], []
        for _ in range(rng.randint(3, 5)):
            if rng.random() < 0.5:
                words.append(rng.randrange(10, WORDS))
                marks.append(0)
                labels.append(LABELS - 1)
            else:
                kind = rng.randrange(2)
                length = rng.randint(1, 2)
                words += [rng.randrange(5) + 5 * kind, *(rng.randrange(10, WORDS) for _ in range(length - 1))]
                marks += [1] * length
                labels += [2 * kind, 2 * kind + 1][:length]
        found.append((words, marks, labels))
    return found


def train(path: str) -> dict[str, Any]:
    cost, decoding, target = network(is_train=True)
    paddle.evaluator.sum(name="error", input=decoding)
    paddle.evaluator.chunk(
        name="ner_chunk", input=decoding, label=target, chunk_scheme="IOB", num_chunk_types=(LABELS - 1) / 2
    )
    parameters = paddle.parameters.create(cost)
    table = np.random.default_rng(3).normal(0, 0.5, (WORDS, 8)).astype(np.float32)
    parameters.set("emb", table)
    optimizer = paddle.optimizer.Momentum(
        momentum=0,
        learning_rate=2e-2,
        regularization=paddle.optimizer.L2Regularization(rate=1e-4),
        gradient_clipping_threshold=25,
        model_average=paddle.optimizer.ModelAverage(average_window=0.5, max_average_window=100),
    )
    found = owner.train(
        path, cost, optimizer, samples(200), passes=25, parameters=parameters, extra_layers=decoding,
        feeding={"word": 0, "mark": 1, "target": 2},
    )  # fmt: skip
    assert found["ner_chunk.F1-score"] > 0.9 > 0.1 > found["error"], found
    assert (parameters["emb"] == table).all()
    return found


def infer(path: str) -> dict[str, Any]:
    known = samples(50)
    found = paddle.infer(
        output_layer=network(is_train=False),
        parameters=owner.load(path),
        input=[each[:2] for each in known],
        field=["id"],
    )
    at, right = 0, 0
    for words, _, labels in known:
        right += found[at : at + len(words)].tolist() == labels
        at += len(words)
    return {"accuracy": right / len(known)}


if __name__ == "__main__":
    owner.main(train, infer)
