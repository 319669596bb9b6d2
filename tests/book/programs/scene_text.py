# SPDX-License-Identifier: Apache-2.0
"""Text in pictures: convolutions, their columns as a sequence, two GRUs, and labels that have no places."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

HEIGHT, WIDTH, CLASSES = 8, 32, 4
GLYPHS = np.random.default_rng(2).integers(0, 2, (CLASSES, HEIGHT, 4)).astype(np.float32)


def scores() -> Any:
    layer, act = paddle.layer, paddle.activation
    image = layer.data("image", paddle.data_type.dense_vector(HEIGHT * WIDTH), height=HEIGHT, width=WIDTH)
    features = image
    for number, filters in enumerate((8, 12)):
        features = paddle.networks.img_conv_group(
            input=features,
            num_channels=1 if number == 0 else None,
            pool_size=2,
            pool_stride=2,
            conv_padding=1,
            conv_num_filter=[filters] * 2,
            conv_filter_size=3,
            conv_act=act.Relu(),
            conv_with_batchnorm=True,
        )
    columns = layer.block_expand(
        input=features, num_channels=12, stride_x=1, stride_y=1, block_x=1, block_y=HEIGHT // 4
    )
    both = [
        paddle.networks.simple_gru(input=columns, size=16, act=act.Relu(), reverse=reverse)
        for reverse in (False, True)
    ]
    return layer.fc(input=both, size=CLASSES + 1, act=act.Linear())


def network(is_infer: bool) -> Any:
    layer = paddle.layer
    out = scores()
    if is_infer:
        return layer.mixed(input=layer.identity_projection(input=out), act=paddle.activation.Softmax())
    label = layer.data("label", paddle.data_type.integer_value_sequence(CLASSES))
    cost = layer.warp_ctc(input=out, label=label, size=CLASSES + 1, norm_by_times=True, blank=CLASSES)
    return cost, paddle.evaluator.ctc_error(input=out, label=label)


def samples(count: int) -> list[Any]:
    rng = random.Random(17)
    noise = np.random.default_rng(18)
    found = []
    for _ in range(count):
        image = noise.normal(0, 0.1, (HEIGHT, WIDTH)).astype(np.float32)
        text = [rng.randrange(CLASSES) for _ in range(rng.randint(1, 3))]
        for place, letter in enumerate(text):
            left = 10 * place + rng.randrange(4)
            image[:, left : left + 4] += GLYPHS[letter]
        found.append((image.ravel(), text))
    return found


def train(path: str) -> dict[str, Any]:
    cost, error = network(is_infer=False)
    found = owner.train(
        path, cost, paddle.optimizer.Adam(learning_rate=1e-2), samples(160), passes=14, extra_layers=error
    )
    assert found["__ctc_error_evaluator_0__"] < 0.2, found
    return found


def infer(path: str) -> dict[str, Any]:
    unseen = samples(240)[160:]
    rows = paddle.infer(
        output_layer=network(is_infer=True),
        parameters=owner.load(path),
        input=[(image,) for image, _ in unseen],
    )
    right = 0
    for best, (_, text) in zip(rows.argmax(axis=1).reshape(len(unseen), -1), unseen, strict=True):
        said = [
            int(one)
            for one, last in zip(best, [-1, *best[:-1]], strict=True)
            if one != last and one != CLASSES
        ]
        right += said == text
    assert right > 0.95 * len(unseen), right
    return {"whole words": right / len(unseen)}


if __name__ == "__main__":
    owner.main(train, infer)
