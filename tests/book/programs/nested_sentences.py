# SPDX-License-Identifier: Apache-2.0
"""The mood of a text: a group steps through its sentences, and windows over words make a row of each."""

from __future__ import annotations

import random
from typing import Any

import owner

import paddle.v2 as paddle

WORDS, CLASSES = 30, 2


def sentence(words: Any, hidden: int) -> Any:
    """One row for a sentence, from windows of 3 and of 4 words, whose weights are one."""
    layer = paddle.layer
    windows = [
        paddle.networks.sequence_conv_pool(
            input=words,
            context_len=length,
            hidden_size=hidden,
            context_proj_layer_name=f"sub_context_{length}",
            fc_layer_name=f"sub_hidden_{length}",
        )
        for length in (3, 4)
    ]
    return layer.fc(
        input=windows,
        size=hidden,
        param_attr=[paddle.attr.Param(name="_cov_value_weight.w0")] * 2,
        bias_attr=paddle.attr.Param(name="_cov_value_bias.b"),
        act=paddle.activation.Linear(),
    )


def network(is_infer: bool) -> Any:
    layer = paddle.layer
    word = layer.data("word", paddle.data_type.integer_value_sub_sequence(WORDS))
    rows = layer.embedding(input=word, size=12)
    sentences = layer.recurrent_group(input=[layer.SubsequenceInput(rows), 16], step=sentence)
    text = layer.pooling(
        input=sentences,
        pooling_type=paddle.pooling.Avg(),
        agg_level=layer.AggregateLevel.TO_NO_SEQUENCE,
    )
    with layer.mixed(size=CLASSES, act=paddle.activation.Softmax(), bias_attr=True) as chances:
        chances += layer.full_matrix_projection(text)
    if is_infer:
        return chances
    label = layer.data("label", paddle.data_type.integer_value(CLASSES))
    paddle.evaluator.auc(input=chances, label=label, name="auc")
    return layer.classification_cost(input=chances, label=label)


def samples(count: int) -> list[Any]:
    """More than half of the sentences say "7 8" in a text of class 1, and "8 7" in one of class 0."""
    rng = random.Random(12)
    found = []
    for _ in range(count):
        label, length = rng.randrange(CLASSES), rng.randint(1, 5)
        sentences = [[rng.randrange(10, WORDS) for _ in range(rng.randint(2, 6))] for _ in range(length)]
        told = rng.sample(range(length), length // 2 + 1)
        for each in told:
            at = rng.randrange(len(sentences[each]) - 1)
            sentences[each][at : at + 2] = [7, 8] if label else [8, 7]
        found.append((sentences, label))
    return found


def train(path: str) -> dict[str, Any]:
    optimizer = paddle.optimizer.Adam(
        learning_rate=1e-2,
        regularization=paddle.optimizer.L2Regularization(rate=1e-4),
        model_average=paddle.optimizer.ModelAverage(average_window=0.5),
    )
    return owner.train(path, network(is_infer=False), optimizer, samples(200), passes=12)


def infer(path: str) -> dict[str, Any]:
    unseen = samples(260)[200:]
    inference = paddle.inference.Inference(output_layer=network(is_infer=True), parameters=owner.load(path))
    chances = inference.infer(input=[(text,) for text, _ in unseen], field=["value"])
    right = sum(int(row.argmax()) == label for row, (_, label) in zip(chances, unseen, strict=True))
    return {"accuracy": right / len(unseen)}


if __name__ == "__main__":
    owner.main(train, infer)
