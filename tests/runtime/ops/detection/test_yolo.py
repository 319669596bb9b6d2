# SPDX-License-Identifier: Apache-2.0
"""Boxes and losses of YOLO v3 equal plain loops."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.detection.plain_boxes import share
from tests.runtime.ops.run_op import run_op

_ANCHORS = [10, 13, 16, 30, 33, 23]


def _sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def _box(own: Any, row: int, column: int, size: int, anchor: tuple[int, int], whole: int) -> list[float]:
    x, y = (column + _sigmoid(own[0])) / size, (row + _sigmoid(own[1])) / size
    w, h = exp(own[2]) * anchor[0] / whole, exp(own[3]) * anchor[1] / whole
    return [x - w / 2, y - h / 2, x + w / 2, y + h / 2]


def test_boxes_are_placed_in_their_images() -> None:
    rng = np.random.default_rng(1)
    x, size = rng.standard_normal((2, 14, 3, 3)).astype("f"), np.array([[40, 60], [33, 20]], "int32")
    attrs = {"anchors": [10, 13, 16, 30], "class_num": 2, "conf_thresh": 0.5, "downsample_ratio": 8}
    boxes, scores = run_op("yolo_box", {"X": x, "ImgSize": size}, attrs)
    assert boxes.shape == (2, 18, 4)
    assert scores.shape == (2, 18, 2)
    for n, anchor, row, column in np.ndindex(2, 2, 3, 3):
        own = x[n, anchor * 7 : anchor * 7 + 7, row, column].astype(float)
        at = (anchor * 3 + row) * 3 + column
        height, width = size[n]
        box = _box(own, row, column, 3, [(10, 13), (16, 30)][anchor], 24) * np.array([width, height] * 2)
        box = [max(box[0], 0), max(box[1], 0), min(box[2], width - 1), min(box[3], height - 1)]
        chance = _sigmoid(own[4])
        seen = chance >= 0.5
        np.testing.assert_allclose(boxes[n, at], np.array(box) * seen, rtol=1e-4, atol=1e-4)
        expected = [chance * _sigmoid(each) * seen for each in own[5:]]
        np.testing.assert_allclose(scores[n, at], expected, rtol=1e-4, atol=1e-6)


def _entropy(x: float, target: float) -> float:
    return max(x, 0) - x * target + log(1 + exp(-abs(x)))


def _corners(box: Any) -> list[float]:
    return [box[0] - box[2] / 2, box[1] - box[3] / 2, box[0] + box[2] / 2, box[1] + box[3] / 2]


def _loss(
    x: Any, boxes: Any, labels: Any, scores: Any, mask: list[int], smooth: float
) -> tuple[float, Any, list[int]]:
    """The loss of one image (anchors, 5 + classes, size, size)."""
    size, anchors = x.shape[2], list(zip(_ANCHORS[::2], _ANCHORS[1::2], strict=True))
    whole, loss, index = size * 8, 0.0, []
    seen = np.zeros((len(mask), size, size))
    objects = [box for box in boxes if box[2] > 1e-6 and box[3] > 1e-6]
    for at, row, column in np.ndindex(seen.shape):
        box = _box(x[at, :, row, column], row, column, size, anchors[mask[at]], whole)
        if max((share(box, _corners(each)) for each in objects), default=0) > 0.3:
            seen[at, row, column] = -1
    for box, label, score in zip(boxes, labels, scores, strict=True):
        if box[2] <= 1e-6 or box[3] <= 1e-6:
            index.append(-1)
            continue
        like = [share([0, 0, box[2], box[3]], [0, 0, w / whole, h / whole]) for w, h in anchors]
        best = like.index(max(like))
        index.append(mask.index(best) if best in mask else -1)
        if index[-1] >= 0:
            column, row = int(box[0] * size), int(box[1] * size)
            own, scale = x[index[-1], :, row, column], (2 - box[2] * box[3]) * score
            loss += _entropy(own[0], box[0] * size - column) * scale
            loss += _entropy(own[1], box[1] * size - row) * scale
            for side, given, anchor in zip(own[2:4], box[2:], anchors[best], strict=True):
                loss += abs(side - log(given * whole / anchor)) * scale
            for number, each in enumerate(own[5:]):
                loss += _entropy(each, 1 - smooth if number == label else smooth) * score
            seen[index[-1], row, column] = score
    for place in np.ndindex(seen.shape):
        given, counts = float(x[place[0], 4, place[1], place[2]]), float(seen[place])
        loss += _entropy(given, 1.0) * counts if counts > 0 else _entropy(given, 0.0) * (counts == 0)
    return loss, seen, index


@pytest.mark.parametrize("with_score", [True, False])
@pytest.mark.parametrize("smooth", [True, False])
def test_the_loss_is_that_of_boxes_classes_and_seeing_objects(with_score: bool, smooth: bool) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((3, 2, 7, 4, 4)) * 0.6
    boxes = np.concatenate([rng.uniform(0.05, 0.95, (3, 4, 2)), rng.uniform(0.2, 0.9, (3, 4, 2))], axis=2)
    boxes[0, 1:] = 0
    boxes[1] = 0
    boxes[2, 2, 2] = 0
    labels, scores = rng.integers(0, 2, (3, 4)).astype("int32"), rng.uniform(0.2, 1, (3, 4))
    attrs = {
        "class_num": 2, "anchors": _ANCHORS, "anchor_mask": [0, 2], "downsample_ratio": 8, "ignore_thresh": 0.3,
        "use_label_smooth": smooth,
    }  # fmt: skip
    inputs = {"X": x.reshape(3, 14, 4, 4), "GTBox": boxes, "GTLabel": labels}
    inputs |= {"GTScore": scores} if with_score else {}
    loss, seen, index = run_op("yolov3_loss", inputs, attrs)
    for n in range(3):
        counts = scores[n] if with_score else np.ones(4)
        expected = _loss(x[n], boxes[n], labels[n], counts, [0, 2], 1 / 40 if smooth else 0.0)
        assert loss[n] == pytest.approx(expected[0], rel=1e-9)
        np.testing.assert_allclose(seen[n], expected[1])
        assert index[n].tolist() == expected[2]
    assert (seen == -1).any()
    assert index[1].tolist() == [-1] * 4


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"class_num": 3}, r"expected \(N, 2 anchors x \(5 \+ 3"),
        ({"anchor_mask": [3]}, "indices of these pairs"),
    ],
)
def test_maps_and_anchors_that_do_not_fit_are_refused(attrs: dict[str, Any], text: str) -> None:
    given = {"class_num": 2, "anchors": _ANCHORS, "anchor_mask": [0, 2], **attrs}
    inputs = {
        "X": np.zeros((1, 14, 2, 2)),
        "GTBox": np.zeros((1, 1, 4)),
        "GTLabel": np.zeros((1, 1), "int32"),
    }
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op("yolov3_loss", inputs, given)


@pytest.mark.parametrize(
    ("slot", "shape"), [("GTBox", (1, 3, 4)), ("GTLabel", (2, 2)), ("GTScore", (2, 2)), ("ImgSize", (1, 2))]
)
def test_objects_and_sizes_of_other_images_are_refused(slot: str, shape: tuple[int, ...]) -> None:
    attrs: dict[str, Any] = {"class_num": 2, "anchors": _ANCHORS[:4]}
    if slot == "ImgSize":
        with pytest.raises(OpError, match="X and ImgSize"):
            run_op("yolo_box", {"X": np.zeros((2, 14, 2, 2)), slot: np.ones(shape, "int32")}, attrs)
        return
    attrs |= {"anchor_mask": [0, 1]}
    inputs = {
        "X": np.zeros((2, 14, 2, 2)),
        "GTBox": np.zeros((2, 3, 4)),
        "GTLabel": np.zeros((2, 3), "int32"),
        "GTScore": np.zeros((2, 3)),
    }
    inputs[slot] = np.zeros(shape, inputs[slot].dtype)
    with pytest.raises(OpError, match=f"(objects|images) of .*{slot}"):
        run_op("yolov3_loss", inputs, attrs)
