# SPDX-License-Identifier: Apache-2.0
"""Answers as tags of an evidence's words, read with a question in mind."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE, LABELS = 30, 8, 4


def vectors(name: str) -> Any:
    rng = np.random.default_rng(1)
    return rng.normal(0, 0.5, (WORDS, SIZE)).astype(np.float32)


def network() -> Any:
    layer, attr, act, kind = paddle.layer, paddle.attr, paddle.activation, paddle.data_type
    question = layer.data("q_ids", kind.integer_value_sequence(WORDS))
    evidence = layer.data("e_ids", kind.integer_value_sequence(WORDS))
    common = layer.data("qe.comm", kind.integer_value_sequence(2))
    static = attr.ParamAttr(name="embs", is_static=True, initializer=vectors)
    table = layer.embedding(input=question, size=SIZE, param_attr=static)
    gates = layer.fc(
        input=table, size=4 * SIZE, act=act.Linear(), param_attr=attr.ParamAttr(name="q.w", l2_rate=1e-5)
    )
    read = layer.dropout(input=layer.lstmemory(input=gates), dropout_rate=0.05)
    weight = layer.fc(
        input=layer.fc(input=read, size=SIZE, act=act.Tanh()),
        size=1,
        act=act.SequenceSoftmax(),
        bias_attr=False,
    )
    asked = layer.pooling(
        input=layer.scaling(input=read, weight=weight), pooling_type=paddle.pooling.Sum(), name="asked"
    )
    words = [
        layer.embedding(input=evidence, size=SIZE, param_attr=static),
        layer.expand(input=asked, expand_as=evidence),
        layer.embedding(input=common, size=4),
    ]
    rows: list[Any] = []
    for number in range(3):
        inputs = words if not number else rows[:1] if number == 1 else [rows[1], rows[0]]
        with layer.mixed(size=4 * SIZE, bias_attr=attr.ParamAttr(name=f"e{number}.b")) as total:
            for at, each in enumerate(inputs):
                total += layer.full_matrix_projection(
                    input=each, param_attr=attr.ParamAttr(name=f"e{number}.{at}.w")
                )
        rows.append(layer.lstmemory(input=total, reverse=number == 1))
    return layer.fc(input=rows[-1], size=LABELS, act=act.Linear())


def tags(is_infer: bool) -> Any:
    layer, extra = paddle.layer, paddle.attr.ExtraAttr(device=-1)
    out, shared = network(), paddle.attr.ParamAttr(name="crf.w")
    if is_infer:
        return layer.crf_decoding(input=out, size=LABELS, param_attr=shared, layer_attr=extra)
    labels = layer.data("labels", paddle.data_type.integer_value_sequence(LABELS), layer_attr=extra)
    return layer.crf(input=out, label=labels, size=LABELS, param_attr=shared, layer_attr=extra)


FEEDING = {"q_ids": 0, "e_ids": 1, "qe.comm": 2, "labels": 3}


def samples(count: int) -> list[Any]:
    """The answer, tagged 0 and then 1, follows a word of the question; 2 comes before, 3 behind."""
    rng = random.Random(12)
    found = []
    for _ in range(count):
        question = [rng.randrange(10) for _ in range(3)]
        evidence = [rng.randrange(10, WORDS) for _ in range(rng.randint(5, 8))]
        at = rng.randrange(len(evidence) - 3)
        evidence[at] = rng.choice(question)
        labels = [2] * (at + 1) + [0, 1] + [3] * (len(evidence) - at - 3)
        found.append((question, evidence, [int(word in question) for word in evidence], labels))
    return found


def train(path: str) -> dict[str, Any]:
    cost = tags(is_infer=False)
    parameters = paddle.parameters.create(cost)
    seen = {"BeginIteration": 0, "EndForwardBackward": 0, "gradients": 0.0}

    def handler(event: Any) -> None:
        if isinstance(event, paddle.event.BeginIteration):
            seen["BeginIteration"] += 1
        if isinstance(event, paddle.event.EndForwardBackward):
            seen["EndForwardBackward"] += 1
            for name in parameters:
                config = parameters.__param_conf__[name]
                assert parameters.get(name).size == np.prod(config.dims)
                assert config.initial_std >= config.initial_mean == 0
                seen["gradients"] += float(abs(parameters.get_grad(name)).sum())

    optimizer = paddle.optimizer.RMSProp(
        rho=0.95, epsilon=1e-4, learning_rate=2e-3, model_average=paddle.optimizer.ModelAverage(0.5)
    )
    found = owner.train(
        path,
        cost,
        optimizer,
        samples(200),
        passes=12,
        parameters=parameters,
        feeding=FEEDING,
        handler=handler,
    )
    assert seen["BeginIteration"] == seen["EndForwardBackward"] > 0 < seen["gradients"]
    return found


def infer(path: str) -> dict[str, Any]:
    known = samples(60)
    found = paddle.infer(
        output_layer=tags(is_infer=True),
        parameters=owner.load(path),
        input=known,
        field="id",
        feeding=FEEDING,
    )
    return {"accuracy": np.mean(found == [tag for sample in known for tag in sample[3]])}


if __name__ == "__main__":
    owner.main(train, infer)
