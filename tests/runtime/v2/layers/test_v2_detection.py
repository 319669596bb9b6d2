# SPDX-License-Identifier: Apache-2.0
"""Detection with v2: priors, loss, boxes and their precision beside plain loops; SSD finds squares and circles."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.layer.output import LayerOutput
from tests.runtime.v2.layers.gradient_check import check_closely
from tests.runtime.v2.layers.layer_cases import act, data_type, layer, values

rng = np.random.default_rng(8)
VARIANCE = [0.1, 0.1, 0.2, 0.2]
LINEAR = act.Linear()


def image(size: int, side: int, name: str = "image") -> LayerOutput:
    return layer.data(name, data_type.dense_vector(size), height=side, width=side)


def test_priors_are_squares_and_rectangles_around_places() -> None:
    pixels = image(3 * 64, 8)
    features = layer.img_conv(pixels, 4, 2, stride=4)
    out = layer.priorbox(features, pixels, [2.0, 1.0], VARIANCE, [4], [9])
    assert (out.num_filters, out.size) == (16, 2 * 2 * 4 * 8)
    sides = [(4, 4), (6, 6), (4 * 2**0.5, 4 / 2**0.5), (4 / 2**0.5, 4 * 2**0.5)]
    expected = []
    for y in (2, 6):
        for x in (2, 6):
            for width, height in sides:
                box = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
                expected.append([*np.clip(np.array(box) / 8, 0, 1), *VARIANCE])
    found = values(out, np.zeros((3, 192), np.float32))
    np.testing.assert_allclose(found, [np.ravel(expected)], rtol=1e-5)


PRIORS = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.4, 0.4, 0.9, 0.9]])
OBJECTS = [[[1, 0.05, 0, 0.5, 0.45, 0], [2, 0.35, 0.4, 1, 0.85, 0]], [[1, 0.5, 0.1, 1, 0.6, 1]]]


def detector(locations: LayerOutput, scores: LayerOutput) -> tuple[LayerOutput, LayerOutput, LayerOutput]:
    """The locations and scores of 4 priors, (4, 2, 2) and (3, 2, 2), as convolutions pass them on."""
    priors = layer.data("priors", data_type.dense_vector(32))
    codes = layer.img_conv(locations, 1, 4, num_channels=4, act=LINEAR, bias_attr=False, name="codes")
    chances = layer.img_conv(scores, 1, 3, num_channels=3, act=LINEAR, bias_attr=False, name="chances")
    return codes, chances, priors


def overlap(a: Any, b: Any) -> float:
    sides = [min(a[2 + at], b[2 + at]) - max(a[at], b[at]) for at in (0, 1)]
    common = max(sides[0], 0) * max(sides[1], 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - common
    return float(common / union)


def code(box: Any, prior: Any) -> list[float]:
    w, h = prior[2] - prior[0], prior[3] - prior[1]
    x, y = ((box[at] + box[at + 2] - prior[at] - prior[at + 2]) / 2 for at in (0, 1))
    wide, high = box[2] - box[0], box[3] - box[1]
    shifts = [x / w, y / h, math.log(wide / w), math.log(high / h)]
    return [shift / variance for shift, variance in zip(shifts, VARIANCE, strict=True)]


def loss(locations: Any, scores: Any) -> float:
    """SSD's loss of the batch of OBJECTS, from codes (N, 4, 4) and scores (N, 4, 3) by prior."""
    total, matches = 0.0, 0
    for objects, codes, chances in zip(OBJECTS, locations, scores, strict=True):
        chances = np.exp(chances) / np.exp(chances).sum(axis=1, keepdims=True)
        shares = [[overlap(each[1:5], prior) for prior in PRIORS] for each in objects]
        mine: dict[int, int] = {}
        for _ in objects:
            free = [(shares[o][p], o, p) for o in range(len(objects)) for p in range(4)]
            _, o, p = max(each for each in free if each[1] not in mine.values() and each[2] not in mine)
            mine[p] = o
        for p in set(range(4)) - set(mine):
            o = max(range(len(objects)), key=lambda each: shares[each][p])
            if shares[o][p] > 0.5:
                mine[p] = o
        others = [p for p in range(4) if p not in mine and max(each[p] for each in shares) < 0.5]
        hardest = sorted(others, key=lambda p: -chances[p][1:].max())[: 3 * len(mine)]
        for p, o in mine.items():
            for real, wanted in zip(codes[p], code(objects[o][1:5], PRIORS[p]), strict=True):
                gap = abs(real - wanted)
                total += gap**2 / 2 if gap < 1 else gap - 0.5
            total -= math.log(chances[p][int(objects[o][0])])
        total -= sum(math.log(chances[p][0]) for p in hardest)
        matches += len(mine)
    return total / matches


def test_every_sample_has_the_loss_of_the_batch() -> None:
    codes, chances = rng.normal(size=(2, 4, 4)), rng.normal(size=(2, 4, 3))
    label = layer.data("label", data_type.dense_vector_sequence(6))
    pair = image(16, 2, "locations"), image(12, 2, "scores")
    cost = layer.multibox_loss(*detector(*pair), label, 3)
    rows = np.tile(np.concatenate([PRIORS, [VARIANCE] * 4], axis=1).ravel(), (2, 1))
    by_name = {
        "locations": codes.swapaxes(1, 2).reshape(2, 16),
        "scores": chances.swapaxes(1, 2).reshape(2, 12),
        "label": OBJECTS,
        "priors": rows,
    }
    columns = [by_name[name] for name, _ in paddle.topology.Topology(cost).data_type()]
    same = {"_codes.w0": np.eye(4).reshape(1, -1), "_chances.w0": np.eye(3).reshape(1, -1)}
    given = {name: value.astype(np.float32) for name, value in same.items()}
    found = values(cost, *columns, parameters=given)
    np.testing.assert_allclose(found, np.full((2, 1), loss(codes, chances)), rtol=1e-5)


def test_gradients_of_the_loss() -> None:
    source = layer.data("source", data_type.dense_vector(3))
    label = layer.data("label", data_type.dense_vector_sequence(6))
    pixels = layer.img_conv(layer.fc(source, 12), 1, 3, num_channels=3, act=act.Tanh())
    codes = layer.img_conv(pixels, 1, 4, act=LINEAR)
    chances = layer.img_conv(pixels, 1, 3, act=LINEAR)
    priors = layer.priorbox(codes, image(64, 8), [], VARIANCE, [4])
    cost = layer.multibox_loss(codes, chances, priors, label, 3)
    check_closely(cost, [(rng.normal(size=3), OBJECTS[0], np.zeros(64))], step=0.005)


def test_of_boxes_that_overlap_the_best_is_found() -> None:
    codes = np.zeros((1, 4, 4))
    chances = np.array([[[0, 3, 0], [0, 2, 1], [4, 0, 0], [0, 3.5, 3]]])
    pair = image(16, 2, "locations"), image(12, 2, "scores")
    out = layer.detection_output(*detector(*pair), 3, nms_threshold=0.01, confidence_threshold=0.2)
    rows = np.concatenate([PRIORS, [VARIANCE] * 4], axis=1).reshape(1, 32)
    columns = codes.swapaxes(1, 2).reshape(1, 16), chances.swapaxes(1, 2).reshape(1, 12), rows
    same = {"_codes.w0": np.eye(4).reshape(1, -1), "_chances.w0": np.eye(3).reshape(1, -1)}
    given = {name: value.astype(np.float32) for name, value in same.items()}
    found = values(out, *columns, parameters=given)
    powers = np.exp(chances[0])
    share = powers / powers.sum(axis=1, keepdims=True)
    # Prior 3 overlaps all others. Of class 1 it has less than prior 0, and more than prior 1.
    expected = [
        [0, 1, share[0, 1], *PRIORS[0]],
        [0, 1, share[1, 1], *PRIORS[1]],
        [0, 2, share[3, 2], *PRIORS[3]],
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    nothing = values(
        layer.detection_output(*out.parents, 3, confidence_threshold=1.0), *columns, parameters=given
    )
    assert nothing.shape == (0, 7)


@pytest.mark.parametrize(
    ("kind", "first"), [("11point", (6 + 5 * 2 / 3) / 11), ("Integral", 0.5 + 0.5 * 2 / 3)]
)
@pytest.mark.parametrize("difficult", [False, True])
def test_precision_is_the_mean_over_classes_and_all_batches(kind: str, first: float, difficult: bool) -> None:
    found = layer.data("found", data_type.dense_vector_sequence(7))
    label = layer.data("label", data_type.dense_vector_sequence(6))
    paddle.evaluator.detection_map(found, label, ap_type=kind, evaluate_difficult=difficult, name="map")
    cost = layer.sum_cost(layer.fc(found, 1))
    extra = layer.concat([label, label])
    one, two, far = [0, 0, 0.4, 0.4], [0.5, 0.5, 1, 1], [0.1, 0.6, 0.3, 0.9]
    batches = [
        # Class 1: true, false, true at falling scores; the difficult object of class 2 is not found.
        [
            (
                [[0, 1, 0.9, *one], [0, 1, 0.8, *far], [0, 2, 0.7, *two]],
                [[1, *one, 0], [2, *two, 0], [2, *far, 1]],
            )
        ],
        [([[0, 1, 0.6, *two]], [[1, *two, 0], [3, *one, 0]])],
    ]
    trainer = paddle.trainer.SGD(
        cost, paddle.parameters.create(cost), paddle.optimizer.Momentum(learning_rate=0.0), extra
    )
    report = trainer.test(lambda: iter(batches)).metrics
    second = {"11point": 6 / 11, "Integral": 0.5}[kind] if difficult else 1.0
    assert report["map"] == pytest.approx(100 * (first + second) / 2)


def test_what_does_not_fit_together_is_refused() -> None:
    pair = image(16, 2, "locations"), image(12, 2, "scores")
    codes, chances, priors = detector(*pair)
    with pytest.raises(UsageError, match=r"input_conf has 12 numbers.* expected 16"):
        layer.multibox_loss(codes, chances, priors, layer.data("l", data_type.dense_vector_sequence(6)), 4)
    with pytest.raises(UsageError, match=r"declare it as dense_vector_sequence\(6\)"):
        layer.multibox_loss(codes, chances, priors, layer.data("flat", data_type.dense_vector(6)), 3)
    with pytest.raises(UsageError, match=r"input_conf.* got 1 and 2"):
        layer.detection_output([codes, codes], chances, priors, 3)
    with pytest.raises(UsageError, match=r"max_size=\[16\]"):
        layer.priorbox(codes, pair[0], [2.0], VARIANCE, [4, 8], [16])
    with pytest.raises(UsageError, match="ap_type must be one of 11point, Integral"):
        paddle.evaluator.detection_map(codes, chances, ap_type="area")


SIDE = 24


def scene(generator: np.random.Generator) -> tuple[Any, list[list[float]]]:
    """An image with one or two bright things, 1: squares, 2: circles, and where they are."""
    pixels = generator.normal(0, 0.1, (SIDE, SIDE)).astype(np.float32)
    objects: list[list[float]] = []
    for top in (0, 12)[: generator.integers(1, 3)]:
        kind, size = int(generator.integers(1, 3)), int(generator.integers(8, 12))
        x, y = int(generator.integers(0, SIDE - size)), top + int(generator.integers(0, 13 - size))
        down, across = np.mgrid[:size, :size] - (size - 1) / 2
        away = (down**2 + across**2) / (size / 2) ** 2
        inside = (away > 0.4) & (away <= 1) if kind == 2 else np.ones((size, size))
        pixels[y : y + size, x : x + size] += inside
        objects.append([kind, x / SIDE, y / SIDE, (x + size) / SIDE, (y + size) / SIDE, 0])
    return pixels.ravel(), objects


def test_ssd_finds_squares_and_circles() -> None:
    paddle.init()
    generator = np.random.default_rng(1)
    scenes = [scene(generator) for _ in range(192)]
    pixels = image(SIDE * SIDE, SIDE)
    label = layer.data("label", data_type.dense_vector_sequence(6))
    found = layer.img_pool(layer.img_conv(pixels, 5, 8, num_channels=1, stride=2, padding=2), 2, stride=2)
    for _ in range(2):
        found = layer.img_conv(found, 3, 16, padding=1)
    priors = layer.priorbox(found, pixels, [], VARIANCE, [10.0])
    codes = layer.img_conv(found, 3, 4, padding=1, act=LINEAR)
    chances = layer.img_conv(found, 3, 3, padding=1, act=LINEAR)
    cost = layer.multibox_loss(codes, chances, priors, label, 3)
    out = layer.detection_output(codes, chances, priors, 3, confidence_threshold=0.05)
    paddle.evaluator.detection_map(out, label, name="map")
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Adam(learning_rate=8e-3), out)
    trainer.train(paddle.batch(lambda: iter(scenes[:160]), 8), num_passes=7)
    report = trainer.test(paddle.batch(lambda: iter(scenes[160:]), 16))
    assert report.metrics["map"] > 90
    saved = io.BytesIO()
    parameters.to_tar(saved)
    saved.seek(0)
    loaded = paddle.parameters.Parameters.from_tar(saved)
    boxes = paddle.infer(out, loaded, [(each,) for each, _ in scenes[:4]])
    for number, (_, objects) in enumerate(scenes[:4]):
        for kind, *box, _ in objects:
            mine = boxes[(boxes[:, 0] == number) & (boxes[:, 1] == kind)]
            assert max(overlap(each, box) for each in mine[:, 3:]) > 0.5
