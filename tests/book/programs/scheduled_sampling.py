# SPDX-License-Identifier: Apache-2.0
"""A decoder with attention that is fed the true word or its own last one, as a flag says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE = 8, 16
START, END = 0, 1


def network(is_generating: bool) -> Any:
    layer, act, attr, kind = paddle.layer, paddle.activation, paddle.attr, paddle.data_type
    source = layer.data("source_language_word", kind.integer_value_sequence(WORDS))
    table = layer.embedding(input=source, size=8)
    forward = paddle.networks.simple_gru(input=table, size=SIZE)
    backward = paddle.networks.simple_gru(input=table, size=SIZE, reverse=True)
    encoded = layer.concat(input=[forward, backward])
    projected = layer.mixed(size=SIZE, input=layer.full_matrix_projection(input=encoded))
    boot = layer.fc(input=layer.first_seq(input=backward), size=SIZE, act=act.Tanh(), bias_attr=False)
    shared = attr.ParamAttr(name="_target_language_embedding")

    def step(all_encoded: Any, all_projected: Any, true_word: Any, flag: Any = None) -> Any:
        before = layer.memory(name="gru_decoder", size=SIZE, boot_layer=boot)
        context = paddle.networks.simple_attention(
            encoded_sequence=all_encoded, encoded_proj=all_projected, decoder_state=before
        )
        word = true_word
        if flag is not None:
            last = layer.memory(name="gru_out", size=WORDS)
            generated = layer.embedding(input=layer.max_id(input=last), size=8, param_attr=shared)
            word = layer.multiplex(input=[flag, true_word, generated])
        gates = layer.mixed(
            size=3 * SIZE,
            input=[layer.full_matrix_projection(input=context), layer.full_matrix_projection(input=word)],
        )
        state = layer.gru_step(name="gru_decoder", input=gates, output_mem=before, size=SIZE)
        return layer.mixed(
            size=WORDS,
            bias_attr=True,
            act=act.Softmax(),
            name="gru_out",
            input=layer.full_matrix_projection(input=state),
        )

    inputs: list[Any] = [
        layer.StaticInput(input=encoded, is_seq=True),
        layer.StaticInput(input=projected, is_seq=True),
    ]
    if is_generating:
        inputs.append(
            layer.GeneratedInput(size=WORDS, embedding_name="_target_language_embedding", embedding_size=8)
        )
        return layer.beam_search(
            name="decoder_group", step=step, input=inputs, bos_id=START, eos_id=END, beam_size=2, max_length=6
        )
    target = layer.data("target_language_word", kind.integer_value_sequence(WORDS))
    flags = layer.data("true_token_flag", kind.integer_value_sequence(2))
    inputs += [layer.embedding(input=target, size=8, param_attr=shared), flags]
    decoder = layer.recurrent_group(name="decoder_group", step=step, input=inputs)
    following = layer.data("target_language_next_word", kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=decoder, label=following)


def samples(count: int, sampled: float) -> list[Any]:
    """Words said backwards; each flag but the first is 1 with the chance `sampled`."""
    rng = random.Random(4)
    found = []
    for _ in range(count):
        words = [rng.randrange(2, WORDS) for _ in range(rng.randint(1, 3))]
        said = words[::-1]
        flags = [0, *(int(rng.random() < sampled) for _ in said)]
        found.append((words, [START, *said], [*said, END], flags))
    return found


def train(path: str) -> dict[str, Any]:
    feeding = {
        "source_language_word": 0,
        "target_language_word": 1,
        "target_language_next_word": 2,
        "true_token_flag": 3,
    }
    optimizer = paddle.optimizer.Adam(learning_rate=2e-2)
    return owner.train(
        path, network(is_generating=False), optimizer, samples(300, 0.3), passes=14, feeding=feeding
    )


def infer(path: str) -> dict[str, Any]:
    known = samples(40, 0.0)
    engine = paddle.inference.Inference(output_layer=network(is_generating=True), parameters=owner.load(path))
    _, ids = engine.infer(input=[each[:1] for each in known], field=["prob", "id"])
    best = owner.results(ids)[::2]
    return {"accuracy": np.mean([found == sample[2] for found, sample in zip(best, known, strict=True)])}


if __name__ == "__main__":
    owner.main(train, infer)
