# SPDX-License-Identifier: Apache-2.0
"""Objects in pictures, as SSD finds them: two feature maps, their priors side by side, frozen first layers, lists."""

from __future__ import annotations

import gzip
from typing import Any

import numpy as np
import owner

import paddle.v2 as paddle

SIDE, CLASSES = 24, 3
VARIANCE = [0.1, 0.1, 0.2, 0.2]


def conv(name: str, input: Any, filters: int, *, frozen: bool = False, channels: int | None = None) -> Any:
    rate = 0 if frozen else 1
    return paddle.layer.img_conv(
        name=name,
        input=input,
        filter_size=3,
        num_filters=filters,
        num_channels=channels,
        stride=1,
        padding=1,
        bias_attr=paddle.attr.ParamAttr(learning_rate=2 * rate, l2_rate=0, initial_std=0.0),
        param_attr=paddle.attr.ParamAttr(learning_rate=rate, is_static=frozen),
        act=paddle.activation.Relu(),
    )


def head(features: Any, image: Any, name: str, smallest: float, largest: float) -> tuple[Any, Any, Any]:
    """Locations, classes and priors of a feature map: a square, a larger one, and two of other shapes."""
    priors = paddle.layer.priorbox(
        input=features,
        image=image,
        min_size=[smallest],
        max_size=[largest],
        aspect_ratio=[1.5],
        variance=VARIANCE,
        name=f"{name}_priors",
    )
    found = []
    for what, numbers in (("loc", 4), ("conf", CLASSES)):
        filters = priors.num_filters // 4 * numbers
        found.append(
            paddle.layer.img_conv(
                name=f"{name}_{what}",
                input=features,
                filter_size=3,
                num_filters=filters,
                padding=1,
                act=paddle.activation.Identity(),
            )
        )
    return found[0], found[1], priors


def network(mode: str) -> Any:
    layer, pooling = paddle.layer, paddle.pooling
    image = layer.data("image", paddle.data_type.dense_vector(3 * SIDE * SIDE), height=SIDE, width=SIDE)
    first = conv("conv1_1", image, 8, frozen=True, channels=3)
    second = conv("conv2_1", layer.img_pool(first, 2, stride=2, pool_type=pooling.CudnnMax()), 16)
    third = conv("conv3_1", layer.img_pool(second, 2, stride=2, pool_type=pooling.CudnnMax()), 24)
    normed = layer.cross_channel_norm(
        name="conv3_norm", input=third, param_attr=paddle.attr.ParamAttr(initial_mean=20, initial_std=0)
    )
    deeper = conv("conv4_1", layer.img_pool(third, 2, stride=2), 24)
    locations, classes, priors = zip(
        head(normed, image, "conv3", 7.0, 10.0), head(deeper, image, "conv4", 11.0, 14.0), strict=True
    )
    both = layer.concat(input=list(priors))
    found = layer.detection_output(
        input_loc=list(locations),
        input_conf=list(classes),
        priorbox=both,
        confidence_threshold=0.05,
        nms_threshold=0.45,
        num_classes=CLASSES,
        nms_top_k=100,
        keep_top_k=20,
        background_id=0,
        name="detection_output",
    )
    if mode == "infer":
        return found
    boxes = layer.data("bbox", paddle.data_type.dense_vector_sequence(6))
    cost = layer.multibox_loss(
        input_loc=list(locations),
        input_conf=list(classes),
        priorbox=both,
        label=boxes,
        num_classes=CLASSES,
        overlap_threshold=0.5,
        neg_pos_ratio=3.0,
        neg_overlap=0.5,
        background_id=0,
        name="multibox_loss",
    )
    paddle.evaluator.detection_map(
        input=found,
        label=boxes,
        overlap_threshold=0.5,
        background_id=0,
        evaluate_difficult=False,
        ap_type="11point",
        name="detection_evaluator",
    )
    return cost, found


def samples(count: int) -> list[Any]:
    """A red square or a green cross on grey, sometimes one of each."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(count):
        pixels = rng.normal(0, 0.1, (3, SIDE, SIDE)).astype(np.float32)
        boxes = []
        for top in (0, SIDE // 2)[: rng.integers(1, 3)]:
            kind, size = int(rng.integers(1, CLASSES)), int(rng.integers(7, 12))
            x, y = int(rng.integers(0, SIDE - size + 1)), top + int(rng.integers(0, SIDE // 2 - size + 1))
            down, across = np.mgrid[:size, :size] - size // 2
            shape = np.ones((size, size)) if kind == 1 else (abs(down) < 2) | (abs(across) < 2)
            pixels[kind - 1, y : y + size, x : x + size] += shape
            corners = [x / SIDE, y / SIDE, (x + size) / SIDE, (y + size) / SIDE]
            boxes.append([float(kind), *corners, 0.0])
        found.append((pixels.ravel(), boxes))
    return found


def train(path: str) -> dict[str, Any]:
    cost, found = network("train")
    parameters = paddle.parameters.create(cost)
    # What the first layer has learnt elsewhere: the file lacks all others.
    start = paddle.parameters.Parameters()
    weights = np.random.default_rng(6).normal(0, 0.3, (1, 8 * 3 * 9)).astype(np.float32)
    start.add(parameters.config("_conv1_1.w0"), value=weights)
    with gzip.open(f"{path}.vgg", "w") as file:
        start.to_tar(file)
    with gzip.open(f"{path}.vgg") as file:
        parameters.init_from_tar(file)
    optimizer = paddle.optimizer.Adam(
        learning_rate=8e-3,
        learning_rate_decay_a=0.5,
        learning_rate_decay_b=800.0,
        learning_rate_schedule="discexp",
    )
    return owner.train(
        path,
        cost,
        optimizer,
        samples(160),
        passes=10,
        batch_size=8,
        extra_layers=[found],
        parameters=parameters,
        feeding={"image": 0, "bbox": 1},
    )


def infer(path: str) -> dict[str, Any]:
    cost, found = network("eval")
    parameters = owner.load(path)
    trainer = paddle.trainer.SGD(
        cost=cost, parameters=parameters, extra_layers=[found], update_equation=paddle.optimizer.Momentum()
    )
    known = samples(64)
    report = trainer.test(
        reader=paddle.batch(lambda: iter(known), batch_size=16), feeding={"image": 0, "bbox": 1}
    )
    rows = paddle.infer(output_layer=found, parameters=parameters, input=[(image,) for image, _ in known])
    seen = 0
    for number, (_, boxes) in enumerate(known):
        mine = rows[(rows[:, 0] == number) & (rows[:, 2] > 0.3)]
        seen += {int(label) for label in mine[:, 1]} == {int(box[0]) for box in boxes}
    return {"precision": report.metrics["detection_evaluator"] / 100, "kinds": seen / len(known)}


if __name__ == "__main__":
    owner.main(train, infer)
