# SPDX-License-Identifier: Apache-2.0
"""Translation by gated convolutions, with attention in a group that has no memory and two outputs."""

from __future__ import annotations

import math
import random
import sys
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, POSITIONS, SIZE, CONTEXT = 10, 12, 16, 3
START, END, PADDING = 0, 1, WORDS


def gated(input: Any, size: int, context_start: int | None) -> Any:
    layer, attr = paddle.layer, paddle.attr
    dropped = layer.dropout(input=input, dropout_rate=0.0)
    with layer.mixed(size=input.size * CONTEXT) as context:
        context += layer.context_projection(input=dropped, context_len=CONTEXT, context_start=context_start)
    both = layer.fc(
        input=context,
        size=2 * size,
        act=paddle.activation.Linear(),
        param_attr=attr.Param(initial_mean=0.0, initial_std=math.sqrt(1.0 / (input.size * CONTEXT))),
        bias_attr=True,
    )
    with layer.mixed(size=size) as values:
        values += layer.identity_projection(both, offset=0, size=size)
    with layer.mixed(size=size, act=paddle.activation.Sigmoid()) as gates:
        gates += layer.identity_projection(both, offset=size, size=size)
    with layer.mixed(size=size) as product:
        product += layer.dotmul_operator(values, gates)
    with layer.mixed(size=size) as residual:
        residual += layer.identity_projection(product)
        residual += layer.identity_projection(input)
    return layer.slope_intercept(input=residual, slope=math.sqrt(0.5))


def embedded(word: Any, position: Any) -> Any:
    layer = paddle.layer
    words = layer.embedding(input=word, size=SIZE)
    places = layer.embedding(input=position, size=SIZE)
    return layer.addto(input=[words, places], layer_attr=paddle.attr.ExtraAttr(drop_rate=0.0))


def network(is_infer: bool) -> Any:
    layer, act, kind = paddle.layer, paddle.activation, paddle.data_type
    source = layer.data("src_word", kind.integer_value_sequence(WORDS))
    source_at = layer.data("src_word_pos", kind.integer_value_sequence(POSITIONS + 1))
    first = embedded(source, source_at)
    hidden = layer.fc(input=first, size=SIZE, act=act.Linear())
    for _ in range(2):
        hidden = gated(hidden, SIZE, None)
    keys = layer.fc(input=hidden, size=SIZE, act=act.Linear())
    with layer.mixed(size=SIZE) as values:
        values += layer.identity_projection(keys)
        values += layer.identity_projection(first)

    target = layer.data("trg_word", kind.integer_value_sequence(WORDS + 1))
    target_at = layer.data("trg_word_pos", kind.integer_value_sequence(POSITIONS + 1))
    decoded = gated(layer.fc(input=embedded(target, target_at), size=SIZE, act=act.Linear()), SIZE, 0)

    def attend(row: Any, all_keys: Any, all_values: Any) -> Any:
        with layer.mixed(size=SIZE) as asked:
            asked += layer.identity_projection(row)
        spread = layer.expand(input=asked, expand_as=all_keys)
        weight = layer.fc(
            input=layer.dot_prod(input1=spread, input2=all_keys),
            size=1,
            act=act.SequenceSoftmax(),
            bias_attr=False,
        )
        found = layer.pooling(
            input=layer.scaling(weight=weight, input=all_values), pooling_type=paddle.pooling.Sum()
        )
        return found, layer.fc(input=found, size=SIZE, act=act.Linear())

    attended, projected = layer.recurrent_group(
        step=attend,
        input=[
            decoded,
            layer.StaticInput(input=keys, is_seq=True),
            layer.StaticInput(input=values, is_seq=True),
        ],
    )
    out = layer.fc(input=layer.addto(input=[decoded, projected, attended]), size=WORDS, act=act.Softmax())
    if is_infer:
        return out
    following = layer.data("trg_next_word", kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=out, label=following)


def sample(words: list[int], said: list[int]) -> tuple[list[int], ...]:
    padded = [PADDING] * (CONTEXT - 1) + said
    return words, list(range(len(words))), padded, list(range(len(padded)))


def samples(count: int) -> list[Any]:
    """Each word is said as the next one."""
    rng = random.Random(6)
    found = []
    for _ in range(count):
        words = [rng.randrange(2, WORDS - 1) for _ in range(rng.randint(2, 4))]
        said = [word + 1 for word in words]
        found.append((*sample(words, [START, *said]), [*said, END] + [END] * (CONTEXT - 1)))
    return found


def train(path: str) -> dict[str, Any]:
    sys.setrecursionlimit(10000)
    return owner.train(
        path, network(is_infer=False), paddle.optimizer.Adam(learning_rate=1e-2), samples(300), passes=12
    )


def infer(path: str) -> dict[str, Any]:
    """Word by word: the decoder's row CONTEXT - 1 rows from the last says the next word."""
    engine = paddle.inference.Inference(output_layer=network(is_infer=True), parameters=owner.load(path))
    right, known = 0, samples(10)
    for words, *_, following in known:
        said = [START]
        while said[-1] != END and len(said) < 6:
            rows = engine.infer(input=[sample(words, said)], field="value", flatten_result=False)[0]
            said.append(int(np.argmax(rows[len(said) - 1])))
        right += said[1:] == following[: len(said) - 1]
    return {"accuracy": right / len(known)}


if __name__ == "__main__":
    owner.main(train, infer)
