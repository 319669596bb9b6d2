# SPDX-License-Identifier: Apache-2.0
"""Translation without attention: a decoder that sees the last row of the encoder; sentences come from a search."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE = 10, 16
START, END = 0, 1


def network(is_generating: bool) -> Any:
    layer, act, attr, kind = paddle.layer, paddle.activation, paddle.attr, paddle.data_type
    source = layer.data("source_language_word", kind.integer_value_sequence(WORDS))
    encoded = paddle.networks.bidirectional_gru(
        input=layer.embedding(input=source, size=8),
        size=SIZE,
        return_seq=True,
        fwd_act=act.Tanh(),
        fwd_gate_act=act.Sigmoid(),
        bwd_act=act.Tanh(),
        bwd_gate_act=act.Sigmoid(),
    )
    boot = layer.fc(input=layer.last_seq(input=encoded), size=SIZE, act=act.Tanh(), bias_attr=False)

    def step(whole: Any, word: Any) -> Any:
        before = layer.memory(name="gru_decoder", size=SIZE, boot_layer=boot)
        context = layer.last_seq(input=whole)
        gates = layer.fc(input=[context, word], size=3 * SIZE, act=act.Linear(), bias_attr=False)
        state = layer.gru_step(name="gru_decoder", input=gates, output_mem=before, size=SIZE)
        return layer.fc(input=state, size=WORDS, bias_attr=True, act=act.Softmax())

    name, inputs = "decoder_group", [layer.StaticInput(input=encoded)]
    if is_generating:
        inputs.append(
            layer.GeneratedInput(size=WORDS, embedding_name="_target_language_embedding", embedding_size=8)
        )
        return layer.beam_search(
            name=name, step=step, input=inputs, bos_id=START, eos_id=END, beam_size=3, max_length=8
        )
    target = layer.data("target_language_word", kind.integer_value_sequence(WORDS))
    table = layer.embedding(
        input=target, size=8, param_attr=attr.ParamAttr(name="_target_language_embedding")
    )
    decoder = layer.recurrent_group(name=name, step=step, input=[*inputs, table])
    following = layer.data("target_language_next_word", kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=decoder, label=following)


def samples(count: int) -> list[Any]:
    """Two or three words, said backwards."""
    rng = random.Random(4)
    found = []
    for _ in range(count):
        words = [rng.randrange(2, WORDS) for _ in range(rng.randint(2, 3))]
        found.append((words, [START, *words[::-1]], [*words[::-1], END]))
    return found


def train(path: str) -> dict[str, Any]:
    optimizer = paddle.optimizer.RMSProp(
        learning_rate=1e-2,
        gradient_clipping_threshold=10.0,
        regularization=paddle.optimizer.L2Regularization(rate=8e-5),
    )
    feeding = {"source_language_word": 0, "target_language_word": 1, "target_language_next_word": 2}
    return owner.train(
        path, network(is_generating=False), optimizer, samples(300), passes=20, feeding=feeding
    )


def infer(path: str) -> dict[str, Any]:
    known = samples(40)
    prob, ids = paddle.infer(
        output_layer=network(is_generating=True),
        parameters=owner.load(path),
        input=[sample[:1] for sample in known],
        field=["prob", "id"],
    )
    best = owner.results(ids)[::3]
    return {
        "accuracy": np.mean([found == sample[2] for found, sample in zip(best, known, strict=True)]),
        "sorted": (np.diff(prob, axis=1) <= 0).all(),
    }


if __name__ == "__main__":
    owner.main(train, infer)
