# SPDX-License-Identifier: Apache-2.0
"""Our side, Fluid programs: `python -m benchmarks.learning.ours word2vec 32`, or `operators`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.learning import ctc, images, sentences, work


def _word2vec(batch: int) -> Callable[[int], float]:
    from paddle import fluid

    names = [f"word_{at}" for at in range(work.CONTEXT)]
    words = [fluid.layers.data(name, shape=[1], dtype="int64") for name in names]
    label = fluid.layers.data("next", shape=[1], dtype="int64")
    vectors = [
        fluid.layers.embedding(
            word, size=[work.WORDS, work.WIDTH], dtype="float32", is_sparse=True, param_attr="shared_w"
        )
        for word in words
    ]
    hidden = fluid.layers.fc(fluid.layers.concat(vectors, axis=1), work.HIDDEN, act="sigmoid")
    predicted = fluid.layers.fc(hidden, work.WORDS, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    fluid.optimizer.Adagrad(work.RATE).minimize(cost)
    executor = fluid.Executor(work.place(fluid))
    executor.run(fluid.default_startup_program())
    feeds = []
    for contexts, nexts in work.windows(batch):
        columns = np.array(contexts).T.reshape(work.CONTEXT, batch, 1)
        feed: dict[str, Any] = dict(zip(names, columns.copy(), strict=True))
        feeds.append({**feed, "next": np.array(nexts).reshape(batch, 1)})

    def step(number: int) -> float:
        (value,) = executor.run(feed=feeds[number % len(feeds)], fetch_list=[cost])
        return float(value[0])

    return step


def _operators() -> Callable[[int], float]:
    from paddle import fluid

    x = fluid.layers.data("x", shape=[work.LENGTH], append_batch_size=False)
    y = fluid.layers.data("y", shape=[work.LENGTH], append_batch_size=False)
    out = x
    for _ in range(work.PAIRS):
        out = fluid.layers.relu(fluid.layers.elementwise_add(out, y))
    executor = fluid.Executor(work.place(fluid))
    feed = {"x": np.ones(work.LENGTH, "float32"), "y": np.full(work.LENGTH, 0.5, "float32")}

    def step(number: int) -> float:
        return float(executor.run(feed=feed, fetch_list=[out])[0][0])

    return step


if __name__ == "__main__":
    sides: dict[str, Callable[[], Callable[[int], float]]] = {
        "word2vec": lambda: _word2vec(int(sys.argv[2])),
        "operators": _operators,
        "ctc": ctc.network,
        **{name: functools.partial(images.network, name) for name in work.PICTURES},
        **{name: functools.partial(sentences.network, name) for name in ("lstm", "decoder")},
    }
    work.take_turns(sides[sys.argv[1]]())
