# SPDX-License-Identifier: Apache-2.0
"""A factorization machine beside a deep network, both over the same factors."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

DENSE, SPARSE, COLUMNS, FACTORS = 5, 60, 6, 4


def machine(input: Any, factors: Any) -> Any:
    first = paddle.layer.fc(input=input, size=1, act=paddle.activation.Linear())
    second = paddle.layer.factorization_machine(
        input=input, factor_size=FACTORS, act=paddle.activation.Linear(), param_attr=factors
    )
    return paddle.layer.addto(input=[first, second], act=paddle.activation.Linear(), bias_attr=False)


def network() -> Any:
    layer, act, kind = paddle.layer, paddle.activation, paddle.data_type
    dense = layer.data("dense_input", kind.dense_vector(DENSE))
    sparse = layer.data("sparse_input", kind.sparse_binary_vector(SPARSE))
    ids = [layer.data(f"C{number + 1}", kind.integer_value(SPARSE)) for number in range(COLUMNS)]
    shared = paddle.attr.ParamAttr(name="SparseFeatFactors")
    dense_fm = machine(dense, paddle.attr.ParamAttr(name="DenseFeatFactors", initial_std=0.1))
    sparse_fm = machine(sparse, shared)
    tables = [layer.embedding(input=each, size=FACTORS, param_attr=shared) for each in ids]
    deep = layer.fc(input=[layer.concat(tables), dense], size=16, act=act.Relu())
    for _ in range(2):
        deep = layer.fc(input=deep, size=16, act=act.Relu())
    return layer.fc(input=[dense_fm, sparse_fm, deep], size=1, act=act.Sigmoid())


def samples(count: int) -> list[Any]:
    rng = random.Random(3)
    found = []
    for _ in range(count):
        numbers = [rng.gauss(0, 1) for _ in range(DENSE)]
        ids = [rng.randrange(SPARSE) for _ in range(COLUMNS)]
        click = int(sum(each < 20 for each in ids) + (numbers[0] > 0) >= 3)
        found.append((numbers, sorted(set(ids)), *ids, [click]))
    return found


FEEDING = {
    "dense_input": 0,
    "sparse_input": 1,
    **{f"C{number + 1}": number + 2 for number in range(COLUMNS)},
    "label": COLUMNS + 2,
}


def train(path: str) -> dict[str, Any]:
    predicted = network()
    label = paddle.layer.data("label", paddle.data_type.dense_vector(1))
    cost = paddle.layer.multi_binary_label_cross_entropy_cost(input=predicted, label=label)
    paddle.evaluator.classification_error(name="error", input=predicted, label=label)
    paddle.evaluator.auc(name="auc", input=predicted, label=label)
    return owner.train(
        path, cost, paddle.optimizer.Adam(learning_rate=0.01), samples(400), passes=15, feeding=FEEDING
    )


def infer(path: str) -> dict[str, Any]:
    predicted, known = network(), samples(400)
    engine = paddle.inference.Inference(output_layer=predicted, parameters=owner.load(path))
    found = engine.infer(input=known, feeding=FEEDING)
    return {"accuracy": np.mean([(p > 0.5) == y[-1][0] for p, y in zip(found.ravel(), known, strict=True)])}


if __name__ == "__main__":
    owner.main(train, infer)
