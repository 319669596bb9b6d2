# SPDX-License-Identifier: Apache-2.0
"""The network of the word2vec example at a small size, in paddle.v2 and in plain numpy."""

from __future__ import annotations

import math

import numpy as np

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput

WORDS, EMBEDDING, HIDDEN = 23, 6, 8
NAMES = ("firstw", "secondw", "thirdw", "fourthw", "nextw")
Parameters = dict[str, np.ndarray]


def network(drop_rate: float = 0.0, sparse: bool = True) -> tuple[LayerOutput, LayerOutput]:
    """Return the prediction and its cost."""
    words = [paddle.layer.data(name=name, type=paddle.data_type.integer_value(WORDS)) for name in NAMES]
    context = paddle.layer.concat(
        input=[
            paddle.layer.table_projection(
                input=word,
                size=EMBEDDING,
                param_attr=paddle.attr.Param(
                    name="_proj", initial_std=0.1, learning_rate=1, l2_rate=0, sparse_update=sparse
                ),
            )
            for word in words[:4]
        ]
    )
    hidden = paddle.layer.fc(
        input=context,
        size=HIDDEN,
        act=paddle.activation.Sigmoid(),
        layer_attr=paddle.attr.Extra(drop_rate=drop_rate),
        bias_attr=paddle.attr.Param(learning_rate=2),
        param_attr=paddle.attr.Param(initial_std=1.0 / math.sqrt(EMBEDDING * 8), learning_rate=1),
    )
    predicted = paddle.layer.fc(
        input=hidden,
        size=WORDS,
        bias_attr=paddle.attr.Param(learning_rate=2),
        act=paddle.activation.Softmax(),
    )
    return predicted, paddle.layer.classification_cost(input=predicted, label=words[4])


def samples(count: int, seed: int = 0) -> list[tuple[int, ...]]:
    """Made-up 5-grams in which the last word follows from the first two."""
    ids = np.random.default_rng(seed).integers(0, WORDS, (count, 5))
    ids[:, 4] = (ids[:, 0] * 2 + ids[:, 1]) % WORDS
    return [tuple(int(word) for word in row) for row in ids]


def cost_and_gradients(p: Parameters, batch: list[tuple[int, ...]]) -> tuple[float, Parameters]:
    """Return the summed cost of a batch and the summed gradients, without dropout."""
    ids = np.array(batch)
    rows = np.arange(len(ids))
    context = p["_proj"][ids[:, :4]].reshape(len(ids), -1)
    hidden = 1 / (1 + np.exp(-(context @ p["___fc_layer_0__.w0"] + p["___fc_layer_0__.wbias"])))
    logits = hidden @ p["___fc_layer_1__.w0"] + p["___fc_layer_1__.wbias"]
    probabilities = np.exp(logits - logits.max(axis=1, keepdims=True))
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    cost = -np.log(probabilities[rows, ids[:, 4]]).sum()
    d_logits = probabilities.copy()
    d_logits[rows, ids[:, 4]] -= 1
    d_hidden = d_logits @ p["___fc_layer_1__.w0"].T * hidden * (1 - hidden)
    d_table = np.zeros_like(p["_proj"])
    np.add.at(d_table, ids[:, :4], (d_hidden @ p["___fc_layer_0__.w0"].T).reshape(len(ids), 4, -1))
    gradients = {
        "_proj": d_table,
        "___fc_layer_0__.w0": context.T @ d_hidden,
        "___fc_layer_0__.wbias": d_hidden.sum(axis=0, keepdims=True),
        "___fc_layer_1__.w0": hidden.T @ d_logits,
        "___fc_layer_1__.wbias": d_logits.sum(axis=0, keepdims=True),
    }
    return float(cost), gradients


class AdaGrad:
    """The update of the example: sums of squares, decay inside for dense weights, afterwards for touched rows."""

    def __init__(self, rate: float, decay: float) -> None:
        self.rate, self.decay = rate, decay
        self.squares: Parameters = {}
        self.touched = np.zeros(WORDS, int)
        self.batch = 0

    def update(self, p: Parameters, gradients: Parameters) -> None:
        """Change the weights in place."""
        self.batch += 1
        for name, g in gradients.items():
            s = self.squares.setdefault(name, np.zeros_like(g))
            s += g**2
            rate = self.rate * (2 if name.endswith("wbias") else 1)
            if name != "_proj":
                p[name] -= rate * (g + self.decay * p[name]) / np.sqrt(s + 1e-6)
                continue
            rows = np.flatnonzero(np.abs(g).sum(axis=1))
            p[name][rows] -= rate * g[rows] / np.sqrt(s[rows] + 1e-6)
            self._decay_rows(p[name], rows)

    def catch_up(self, p: Parameters) -> None:
        """Apply the decay that rows still owe."""
        self._decay_rows(p["_proj"], np.arange(WORDS))

    def _decay_rows(self, table: np.ndarray, rows: np.ndarray) -> None:
        table[rows] /= (1 + self.rate * self.decay * (self.batch - self.touched[rows]))[:, None]
        self.touched[rows] = self.batch
