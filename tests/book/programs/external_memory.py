# SPDX-License-Identifier: Apache-2.0
"""A decoder that reads and writes slots of its own at every step; the encoder is handed on as a memory, too."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

WORDS, SIZE, SLOTS = 8, 12, 3
START, END = 0, 1


class Slots:
    """Rows of each sample that a step addresses by what they hold."""

    def __init__(self, name: str, boot: Any, is_readonly: bool = False) -> None:
        self.name, self._is_readonly = name, is_readonly
        self._rows = paddle.layer.memory(name=name, size=SIZE, is_seq=True, boot_layer=boot)
        if is_readonly:
            with paddle.layer.mixed(name=name, size=SIZE) as kept:
                kept += paddle.layer.identity_projection(self._rows)

    def _weights(self, key: Any, head: str) -> Any:
        layer, act = paddle.layer, paddle.activation
        known = layer.fc(input=self._rows, size=SIZE, act=act.Linear(), bias_attr=False)
        asked = layer.fc(input=key, size=SIZE, act=act.Linear(), bias_attr=False)
        spread = layer.expand(input=asked, expand_as=self._rows)
        both = layer.addto(input=[known, spread], act=act.Tanh(), bias_attr=False)
        return layer.fc(
            input=both, size=1, act=act.SequenceSoftmax(), bias_attr=False, name=f"{self.name}_{head}"
        )

    def write(self, key: Any) -> None:
        layer, act = paddle.layer, paddle.activation
        weight = self._weights(key, "write")
        add = layer.fc(input=key, size=SIZE, act=act.Sigmoid())
        erase = layer.fc(input=key, size=SIZE, act=act.Sigmoid())
        spread = layer.expand(input=erase, expand_as=self._rows)
        with layer.mixed(size=SIZE) as gone:
            gone += layer.dotmul_operator(a=self._rows, b=spread, scale=-1.0)
        removed = layer.scaling(input=gone, weight=weight)
        added = layer.scaling(input=layer.expand(input=add, expand_as=self._rows), weight=weight)
        layer.addto(input=[self._rows, removed, added], name=self.name)

    def read(self, key: Any) -> Any:
        layer = paddle.layer
        chosen = layer.scaling(input=self._rows, weight=self._weights(key, "read"))
        return layer.pooling(input=chosen, pooling_type=paddle.pooling.Sum())


def network(is_generating: bool) -> Any:
    layer, act, attr, kind = paddle.layer, paddle.activation, paddle.attr, paddle.data_type
    source = layer.data("source_language_word", kind.integer_value_sequence(WORDS))
    encoded = paddle.networks.bidirectional_gru(
        input=layer.embedding(input=source, size=8), size=SIZE // 2, return_seq=True
    )
    boot = layer.fc(input=layer.first_seq(input=encoded), size=SIZE, act=act.Tanh(), bias_attr=False)
    noise = layer.data("bounded_memory_perturbation", kind.dense_vector_sequence(SIZE))
    zeros = layer.slope_intercept(input=layer.fc(input=noise, size=SIZE), slope=0, intercept=0)
    first = layer.addto(
        input=[zeros, noise, layer.expand(input=layer.last_seq(input=encoded), expand_as=noise)],
        act=act.Linear(),
        bias_attr=False,
    )

    def step(word: Any) -> Any:
        bounded = Slots("bounded", first)
        unbounded = Slots("unbounded", encoded, is_readonly=True)
        before = layer.memory(name="gru_decoder", size=SIZE, boot_layer=boot)
        bounded.write(before)
        context = layer.addto(input=[bounded.read(before), unbounded.read(before)])
        with layer.mixed(size=3 * SIZE) as gates:
            gates += layer.full_matrix_projection(input=context)
            gates += layer.full_matrix_projection(input=word)
        state = layer.gru_step(name="gru_decoder", input=gates, output_mem=before, size=SIZE)
        return layer.fc(input=[state, context], size=WORDS, act=act.Softmax(), bias_attr=True)

    if is_generating:
        word = layer.GeneratedInput(size=WORDS, embedding_name="_target_embedding", embedding_size=8)
        return layer.beam_search(
            name="decoder_group", step=step, input=[word], bos_id=START, eos_id=END, beam_size=2, max_length=5,
            num_results_per_sample=1,
        )  # fmt: skip
    target = layer.data("target_language_word", kind.integer_value_sequence(WORDS))
    table = layer.embedding(input=target, size=8, param_attr=attr.ParamAttr(name="_target_embedding"))
    decoder = layer.recurrent_group(name="decoder_group", step=step, input=[table])
    following = layer.data("target_language_next_word", kind.integer_value_sequence(WORDS))
    return layer.classification_cost(input=decoder, label=following)


def samples(count: int) -> list[Any]:
    """One or two words, said backwards, with the same noise for all samples."""
    rng = random.Random(4)
    noise = np.random.default_rng(5).normal(0, 0.1, (SLOTS, SIZE)).tolist()
    found = []
    for _ in range(count):
        words = [rng.randrange(2, WORDS) for _ in range(rng.randint(1, 2))]
        found.append((words, [START, *words[::-1]], [*words[::-1], END], noise))
    return found


def train(path: str) -> dict[str, Any]:
    optimizer = paddle.optimizer.Adam(
        learning_rate=2e-2,
        gradient_clipping_threshold=5,
        regularization=paddle.optimizer.L2Regularization(rate=8e-4),
    )
    feeding = {
        "source_language_word": 0,
        "target_language_word": 1,
        "target_language_next_word": 2,
        "bounded_memory_perturbation": 3,
    }
    return owner.train(
        path, network(is_generating=False), optimizer, samples(200), passes=10, feeding=feeding
    )


def infer(path: str) -> dict[str, Any]:
    known = samples(30)
    ids = paddle.infer(
        output_layer=network(is_generating=True),
        parameters=owner.load(path),
        input=[(each[0], each[3]) for each in known],
        field="id",
    )
    results = [[int(word) for word in part] for part in np.split(ids, np.flatnonzero(ids == END)[:-1] + 1)]
    return {"accuracy": np.mean([found == sample[2] for found, sample in zip(results, known, strict=True)])}


if __name__ == "__main__":
    owner.main(train, infer)
