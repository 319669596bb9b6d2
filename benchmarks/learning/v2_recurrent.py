# SPDX-License-Identifier: Apache-2.0
"""A plain recurrent layer as paddle.v2's `recurrent_group`, trained as scripts do; `torch_sentences` has the same one.

python -m benchmarks.learning.v2_recurrent; it takes turns like `work.take_turns`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator

import paddle.v2 as paddle
from benchmarks.learning import work
from paddle.v2 import activation, data_type, layer


def _cost() -> layer.LayerOutput:
    words = layer.data("words", data_type.integer_value_sequence(work.VOCABULARY))
    label = layer.data("label", data_type.integer_value(2))
    vectors = layer.embedding(
        words, size=work.WORD_WIDTH, param_attr=paddle.attr.ParameterAttribute(sparse_update=True)
    )

    def step(word: layer.LayerOutput) -> layer.LayerOutput:
        before = layer.memory(name="state", size=work.STATE)
        return layer.fc([word, before], size=work.STATE, act=activation.Tanh(), name="state")

    states = layer.recurrent_group(step, input=vectors)
    scores = layer.fc(layer.last_seq(states), size=2, act=activation.Softmax())
    return layer.classification_cost(scores, label)


def main() -> None:
    """Train batches in turns."""
    paddle.init(use_gpu=False, trainer_count=1)
    cost = _cost()
    rule = paddle.optimizer.AdaGrad(learning_rate=work.RATE)
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), rule)
    batches = [
        [(words, number % 2) for number, words in enumerate(sentences)]
        for sentences in work.sentences("recurrent")
    ]
    costs = [0.0]

    def orders() -> Iterator[object]:
        done = 0
        for _ in range(3):
            yield batches[done % len(batches)]
            done += 1
        print("ready", flush=True)
        for line in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(int(line)):
                yield batches[done % len(batches)]
                done += 1
            told = {
                "wall_s": time.perf_counter() - wall,
                "cpu_s": time.process_time() - cpu,
                "cost": costs[0],
            }
            print(json.dumps(told), flush=True)

    def note(event: object) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs[0] = event.cost

    trainer.train(orders, num_passes=1, event_handler=note)


if __name__ == "__main__":
    main()
