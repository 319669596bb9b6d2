# SPDX-License-Identifier: Apache-2.0
"""SSD and YOLO v3 learn to find squares and circles."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import paddle.fluid as fluid
from paddle.fluid import layers
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.fluid.shapes_to_detect import SIDE, backbone, block, images

_BATCH = 16
_ANCHORS = [9, 9, 11, 11, 14, 14]


def _joined(parts: list[Any]) -> LoDArray:
    return LoDArray(np.concatenate(parts), offsets_of([[len(each) for each in parts]]))


def _ssd(is_test: bool) -> tuple[Any, ...]:
    """(loss, found, label, box)"""
    image = layers.data("image", [1, SIDE, SIDE])
    label = layers.data("label", [1], dtype="int32", lod_level=1)
    box = layers.data("box", [4], lod_level=1)
    near = backbone(image, is_test)
    far = block(near, 32, 2, is_test)
    codes, scores, priors, spread = layers.multi_box_head(
        [near, far], image, SIDE, 3, [[1.0], [1.0]], min_sizes=[9.0, 12.0], max_sizes=[12.0, 16.0], kernel_size=3,
        pad=1, flip=False,
    )  # fmt: skip
    if is_test:
        found = layers.detection_output(codes, scores, priors, spread, nms_threshold=0.4, score_threshold=0.1)
        return found, label, box
    return (layers.mean(layers.ssd_loss(codes, scores, box, label, priors, spread)),)


def _fed_ssd(rng: np.random.Generator) -> dict[str, Any]:
    pixels, boxes, labels = images(rng, _BATCH)
    return {"image": pixels, "box": _joined(boxes), "label": _joined(labels)}


def _yolo(is_test: bool) -> tuple[Any, ...]:
    image = layers.data("image", [1, SIDE, SIDE])
    features = layers.conv2d(block(backbone(image, is_test), 32, 1, is_test), 3 * 7, 1)
    if is_test:
        size = layers.data("size", [2], dtype="int32")
        rows, scores = layers.yolo_box(features, size, _ANCHORS, 2, 0.05, 4)
        found = layers.multiclass_nms(
            rows, layers.transpose(scores, [0, 2, 1]), 0.1, 100, 20, 0.4, background_label=-1
        )
        # DetectionMAP takes parts of the image.
        scale = layers.assign(np.array([[1, 1, *[1 / SIDE] * 4]], "f"))
        label = layers.data("label", [1], dtype="int32", lod_level=1)
        return (
            layers.elementwise_mul(found, layers.reshape(scale, [6]), axis=1),
            label,
            layers.data("box", [4], lod_level=1),
        )
    boxes, labels = layers.data("boxes", [2, 4]), layers.data("labels", [2], dtype="int32")
    loss = layers.yolov3_loss(features, boxes, labels, _ANCHORS, [0, 1, 2], 2, 0.6, 4, use_label_smooth=False)
    return (layers.mean(loss),)


def _fed_yolo(rng: np.random.Generator) -> dict[str, Any]:
    """Centres and sides, two objects an image, zeros where there is one; classes from 0 on."""
    pixels, boxes, labels = images(rng, _BATCH)
    around, kinds = np.zeros((_BATCH, 2, 4), "f"), np.zeros((_BATCH, 2), "int32")
    for number, (rows, each) in enumerate(zip(boxes, labels, strict=True)):
        around[number, : len(rows)] = np.concatenate(
            [(rows[:, :2] + rows[:, 2:]) / 2, rows[:, 2:] - rows[:, :2]], 1
        )
        kinds[number, : len(rows)] = each[:, 0] - 1
    feed = {"image": pixels, "boxes": around, "labels": kinds, "size": np.full((_BATCH, 2), SIDE, "int32")}
    return {**feed, "box": _joined(boxes), "label": _joined([each - 1 for each in labels])}


def _precision(
    net: Callable[[bool], tuple[Any, ...]],
    feeds: Iterator[dict[str, Any]],
    steps: int,
    rate: float,
    classes: int,
) -> float:
    """Mean average precision, at an overlap of a half, on images that were not trained on."""
    startup = fluid.Program()
    startup.random_seed = 5
    train, test = fluid.Program(), fluid.Program()
    with fluid.program_guard(train, startup), fluid.unique_name.guard():
        (loss,) = net(False)
        fluid.optimizer.Adam(fluid.layers.piecewise_decay([steps * 2 // 3], [rate, rate / 10])).minimize(loss)
    with fluid.program_guard(test, startup), fluid.unique_name.guard():
        found, label, box = net(True)
        measure = fluid.metrics.DetectionMAP(found, label, box, class_num=classes, overlap_threshold=0.5)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(startup)
    for _, feed in zip(range(steps), feeds, strict=False):
        known = {name: value for name, value in feed.items() if train.global_block().has_var(name)}
        executor.run(train, feed=known, fetch_list=[loss])
    measure.reset(executor)
    value = 0.0
    for _, feed in zip(range(6), feeds, strict=False):
        known = {name: value for name, value in feed.items() if test.global_block().has_var(name)}
        (value,) = executor.run(test, feed=known, fetch_list=[measure.get_map_var()[1]])
    return float(np.asarray(value).item())


def _feeds(made: Callable[[np.random.Generator], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    rng = np.random.default_rng(0)
    while True:
        yield made(rng)


def test_ssd_finds_squares_and_circles() -> None:
    assert _precision(_ssd, _feeds(_fed_ssd), 120, 0.01, 3) > 0.9


def test_yolo_finds_squares_and_circles() -> None:
    assert _precision(_yolo, _feeds(_fed_yolo), 300, 0.01, 2) > 0.9
