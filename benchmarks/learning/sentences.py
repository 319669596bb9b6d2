# SPDX-License-Identifier: Apache-2.0
"""Networks for sentences as Fluid programs; `torch_sentences` has the same ones.

lstm: an embedding, one LSTM layer, its maximum values, two classes. decoder: that of the book, whose step (a layer with
tanh of word and state, then the scores of all words) is in a DynamicRNN. AdaGrad.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.learning import work


def network(name: str) -> Callable[[int], float]:
    """Return a function that takes one step of training and returns the cost."""
    import numpy as np

    from paddle import fluid

    fluid.default_startup_program().random_seed = 1
    cost = {"lstm": _lstm, "decoder": _decoder}[name]()
    fluid.optimizer.Adagrad(work.RATE).minimize(cost)
    place = work.place(fluid)
    executor = fluid.Executor(place)
    executor.run(fluid.default_startup_program())
    feeds: list[dict[str, Any]] = []
    for sentences in work.sentences(name):
        lengths = [[len(words) for words in sentences]]
        rows = np.array([word for words in sentences for word in words]).reshape(-1, 1)
        feed: dict[str, Any] = {"words": fluid.create_lod_tensor(rows, lengths, place)}
        if name == "decoder":
            feed["next"] = fluid.create_lod_tensor(rows, lengths, place)
        else:
            feed["label"] = np.arange(len(sentences)).reshape(-1, 1) % 2
        feeds.append(feed)

    def step(number: int) -> float:
        (value,) = executor.run(feed=feeds[number % len(feeds)], fetch_list=[cost])
        return float(value.reshape(-1)[0])

    return step


def _embedded() -> Any:
    from paddle.fluid import layers

    words = layers.data("words", shape=[1], dtype="int64", lod_level=1)
    return layers.embedding(words, size=[work.VOCABULARY, work.WORD_WIDTH], is_sparse=True)


def _lstm() -> Any:
    from paddle.fluid import layers

    gates = layers.fc(_embedded(), 4 * work.STATE)
    hidden, _ = layers.dynamic_lstm(gates, 4 * work.STATE, use_peepholes=False)
    scores = layers.fc(layers.sequence_pool(hidden, "max"), 2, act="softmax")
    label = layers.data("label", shape=[1], dtype="int64")
    return layers.mean(layers.cross_entropy(scores, label))


def _decoder() -> Any:
    from paddle.fluid import layers

    words = _embedded()
    first = layers.fc(layers.sequence_pool(words, "first"), work.STATE, act="tanh")
    rnn = layers.DynamicRNN()
    with rnn.block():
        word = rnn.step_input(words)
        before = rnn.memory(init=first)
        state = layers.fc([word, before], work.STATE, act="tanh")
        rnn.update_memory(before, state)
        rnn.output(layers.fc(state, work.VOCABULARY, act="softmax"))
    label = layers.data("next", shape=[1], dtype="int64", lod_level=1)
    scores: Any = rnn()
    return layers.mean(layers.cross_entropy(scores, label))
