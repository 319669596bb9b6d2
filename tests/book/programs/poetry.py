# SPDX-License-Identifier: Apache-2.0
"""The next line of a poem: stacked LSTMs on both sides, with plain numbers among the inputs of the group."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE, DEPTH = 9, 12, 2
START, END = 0, 1


def encoder(source: Any) -> Any:
    layer, attr = paddle.layer, paddle.attr
    hidden = layer.embedding(input=source, size=SIZE, param_attr=attr.ParamAttr(name="__embedding__"))
    for number in range(DEPTH):
        with layer.mixed(name=f"__in_layer_{number}__", size=4 * SIZE, bias_attr=False) as gates:
            gates += layer.full_matrix_projection(input=hidden)
        hidden = layer.lstmemory(name=f"__lstm_{number}__", input=gates, reverse=number % 2 == 1)
    return hidden


def decoder(words: int, encoded: Any, projected: Any, size: int, depth: int, word: Any) -> Any:
    layer, act = paddle.layer, paddle.activation
    before = layer.memory(name="__decoder_0__", size=size, boot_layer=None)
    context = paddle.networks.simple_attention(
        encoded_sequence=encoded, encoded_proj=projected, decoder_state=before
    )
    hidden: Any = None
    for number in range(depth):
        inputs = [context, word] if number == 0 else [hidden]
        gates = layer.fc(input=inputs, size=4 * size, act=act.Linear(), bias_attr=False)
        hidden = paddle.networks.lstmemory_unit(
            input=gates,
            out_memory=before if number == 0 else None,
            name=f"__decoder_{number}__",
            size=size,
            act=act.Tanh(),
            gate_act=act.Sigmoid(),
            state_act=act.Tanh(),
            input_proj_layer_attr=paddle.attr.ExtraLayerAttribute(error_clipping_threshold=25.0),
        )
    return layer.fc(input=hidden, size=words, act=act.Softmax(), bias_attr=True)


def network(is_generating: bool) -> Any:
    layer, attr, kind = paddle.layer, paddle.attr, paddle.data_type
    encoded = encoder(layer.data("src_word_id", kind.integer_value_sequence(WORDS)))
    projected = layer.fc(input=encoded, size=SIZE, act=paddle.activation.Linear(), bias_attr=False)
    inputs: list[Any] = [
        WORDS, layer.StaticInput(input=encoded), layer.StaticInput(input=projected), SIZE, DEPTH,
    ]  # fmt: skip
    if is_generating:
        word = layer.GeneratedInput(size=WORDS, embedding_name="__embedding__", embedding_size=SIZE)
        return layer.beam_search(
            name="decoder_group", step=decoder, input=[*inputs, word], bos_id=START, eos_id=END, beam_size=3,
            max_length=9, num_results_per_sample=1,
        )  # fmt: skip
    target = layer.data("trg_word_id", kind.integer_value_sequence(WORDS))
    table = layer.embedding(input=target, size=SIZE, param_attr=attr.ParamAttr(name="__embedding__"))
    out = layer.recurrent_group(name="decoder_group", step=decoder, input=[*inputs, table])
    following = layer.data("trg_next_word", kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=out, label=following)


def samples(count: int) -> list[Any]:
    """The next line has each word's successor."""
    rng = random.Random(14)
    found = []
    for _ in range(count):
        words = [rng.randrange(2, WORDS - 1) for _ in range(rng.randint(2, 3))]
        said = [word + 1 for word in words]
        found.append((words, [START, *said], [*said, END]))
    return found


def train(path: str) -> dict[str, Any]:
    cost = network(is_generating=False)
    parameters = paddle.parameters.create(cost)
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-2,
        model_average=paddle.optimizer.ModelAverage(average_window=0.1, max_average_window=50),
    )
    first = owner.train(path, cost, optimizer, samples(250), passes=10, parameters=parameters)
    again = paddle.parameters.create(cost)
    with open(f"{path}.tar", "w") as file:
        parameters.to_tar(file)
    with open(f"{path}.tar") as file:
        again.init_from_tar(file)
    return {
        **owner.train(path, cost, optimizer, samples(250), passes=10, parameters=again),
        "first": first["first"],
    }


def infer(path: str) -> dict[str, Any]:
    known = samples(30)
    ids = paddle.infer(
        output_layer=network(is_generating=True),
        parameters=owner.load(path),
        input=[each[:1] for each in known],
        field="id",
    )
    lines = [[int(word) for word in part] for part in np.split(ids, np.flatnonzero(ids == END)[:-1] + 1)]
    return {"accuracy": np.mean([found == sample[2] for found, sample in zip(lines, known, strict=True)])}


if __name__ == "__main__":
    owner.main(train, infer)
