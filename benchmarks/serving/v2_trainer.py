# SPDX-License-Identifier: Apache-2.0
"""A trainer of `benchmarks.pserver` as users write it for paddle.v2: `trainer.SGD` on a net of three wide layers.

python -m benchmarks.serving.v2_trainer '{"endpoints": [...], "trainer": 0, "trainers": 1, "width": 2048, "batch": 32}'
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import numpy as np

import paddle.v2 as paddle
from benchmarks.serving.contest import LEARNING_RATE, orders, use_key
from benchmarks.serving.ours_trainer import stay_apart

INPUTS, CLASSES = 784, 10


def main() -> None:
    """Connect and take turns."""
    given = json.loads(sys.argv[1])
    use_key(given["key"])
    if given["apart"]:
        stay_apart()
    host, _, port = given["endpoints"][0].rpartition(":")
    paddle.init(
        use_gpu=False,
        trainer_count=1,
        pservers=host,
        port=int(port),
        ports_num=1,
        num_gradient_servers=given["trainers"],
        trainer_id=given["trainer"],
    )
    image = paddle.layer.data("image", paddle.data_type.dense_vector(INPUTS))
    label = paddle.layer.data("label", paddle.data_type.integer_value(CLASSES))
    hidden = image
    for _ in range(3):
        hidden = paddle.layer.fc(hidden, size=given["width"], act=paddle.activation.Relu())
    cost = paddle.layer.classification_cost(
        paddle.layer.fc(hidden, size=CLASSES, act=paddle.activation.Softmax()), label
    )
    rule = paddle.optimizer.Momentum(momentum=0.0, learning_rate=LEARNING_RATE / given["batch"])
    trainer = paddle.trainer.SGD(cost, paddle.parameters.create(cost), rule, is_local=False)
    draw = np.random.default_rng(given["trainer"])
    images = draw.random((given["batch"], INPUTS), np.float32)
    samples = list(zip(images, draw.integers(0, CLASSES, given["batch"]).tolist(), strict=True))

    def batches() -> Iterator[object]:
        for _ in orders():
            yield samples

    trainer.train(batches, num_passes=1)


if __name__ == "__main__":
    main()
