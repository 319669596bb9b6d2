# SPDX-License-Identifier: Apache-2.0
"""Anchors, boxes cut to images and proposals equal plain loops."""

from __future__ import annotations

from math import exp, floor, log, sqrt

import numpy as np
import pytest

from tests.runtime.ops.detection.plain_boxes import boxes, sequences, share
from tests.runtime.ops.run_op import run_op


def test_anchors_lie_around_each_place() -> None:
    sizes, ratios, stride = [32.0, 50.0], [0.5, 1.0, 2.0], [16.0, 12.0]
    attrs = {
        "anchor_sizes": sizes,
        "aspect_ratios": ratios,
        "stride": stride,
        "variances": [0.1, 0.1, 0.2, 0.3],
    }
    found, variances = run_op("anchor_generator", {"Input": np.zeros((1, 4, 2, 3), "f")}, attrs)
    assert found.shape == (2, 3, 6, 4)
    np.testing.assert_array_equal(variances[1, 1, 3], np.array([0.1, 0.1, 0.2, 0.3], "f"))
    for row, column in np.ndindex(2, 3):
        x, y = column * 16 + 0.5 * 15, row * 12 + 0.5 * 11
        for number, (ratio, size) in enumerate((ratio, size) for ratio in ratios for size in sizes):
            width = floor(sqrt(16 * 12 / ratio) + 0.5)
            height = floor(width * ratio + 0.5)
            half, tall = 0.5 * (width * size / 16 - 1), 0.5 * (height * size / 12 - 1)
            np.testing.assert_allclose(
                found[row, column, number], [x - half, y - tall, x + half, y + tall], rtol=1e-6
            )


@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_boxes_are_cut_to_the_pixels_of_their_image(shape: tuple[int, ...]) -> None:
    rows = np.random.default_rng(1).uniform(-10, 60, (5, *shape)).astype("f")
    info = np.array([[60, 80, 2], [20, 41, 1], [9, 9, 1]], "f")
    (found,) = run_op("box_clip", {"Input": sequences(rows, 2, 3, 0), "ImInfo": info})
    for number in range(5):
        height, width = (30, 40) if number < 2 else (20, 41)
        last = np.array([width - 1, height - 1] * 2)
        np.testing.assert_allclose(found.data[number], np.minimum(np.maximum(rows[number], 0), last))
    assert found.lengths() == [[2, 3, 0]]


@pytest.mark.parametrize(("limit", "after", "eta"), [(0, 0, 1.0), (20, 5, 1.0), (30, 8, 0.8)])
def test_proposals_are_decoded_cut_chosen_and_suppressed(limit: int, after: int, eta: float) -> None:
    rng = np.random.default_rng(3)
    count = (3, 4, 2)  # height, width, anchors
    anchors = boxes(rng, 24, 60).reshape(*count, 4)
    variances = rng.uniform(0.5, 1.0, (*count, 4)).astype("f")
    scores = rng.permutation(48).reshape(2, 2, 3, 4).astype("f") / 48
    deltas = rng.uniform(-0.6, 0.6, (2, 8, 3, 4)).astype("f")
    deltas[0, 2, 0, 0] = 9  # longer than any box may become
    info = np.array([[50, 40, 2.0], [30, 55, 1.0]], "f")
    attrs = {"pre_nms_topN": limit, "post_nms_topN": after, "nms_thresh": 0.6, "min_size": 4.0, "eta": eta}
    inputs = {
        "Scores": scores,
        "BboxDeltas": deltas,
        "ImInfo": info,
        "Anchors": anchors,
        "Variances": variances,
    }
    rois, probs = run_op("generate_proposals", inputs, attrs)
    expected: list[list[tuple[float, list[float]]]] = []
    for n, (high, wide, scale) in enumerate(info.tolist()):
        found = []
        for row, column, anchor in np.ndindex(*count):
            a, v = anchors[row, column, anchor].astype(float), variances[row, column, anchor]
            code = [float(deltas[n, anchor * 4 + i, row, column]) * float(v[i]) for i in range(4)]
            width, height = a[2] - a[0] + 1, a[3] - a[1] + 1
            x, y = code[0] * width + a[0] + width / 2, code[1] * height + a[1] + height / 2
            width *= exp(min(code[2], log(1000 / 16)))
            height *= exp(min(code[3], log(1000 / 16)))
            box = [x - width / 2, y - height / 2, x + width / 2 - 1, y + height / 2 - 1]
            last = [wide - 1, high - 1] * 2
            box = [max(min(each, end), 0.0) for each, end in zip(box, last, strict=True)]
            found.append((float(scores[n, anchor, row, column]), box))
        found = sorted(found, key=lambda each: -each[0])[: limit or None]
        least = 4.0
        found = [
            (score, box)
            for score, box in found
            if (box[2] - box[0]) / scale + 1 >= least and (box[3] - box[1]) / scale + 1 >= least
        ]
        kept: list[tuple[float, list[float]]] = []
        threshold = 0.6
        for score, box in found:
            if all(share(box, other, 1.0) <= threshold for _, other in kept):
                kept.append((score, box))
                threshold *= eta if eta < 1 and threshold > 0.5 else 1
        expected.append(kept[: after or None])
    assert rois.lengths() == probs.lengths() == [[len(each) for each in expected]]
    flat = [pair for each in expected for pair in each]
    np.testing.assert_allclose(rois.data, [box for _, box in flat], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(probs.data[:, 0], [score for score, _ in flat])


def test_an_image_too_small_for_any_box_has_no_proposals() -> None:
    info = np.array([[50, 40, 1.0]], "f")
    inputs = {"Scores": np.ones((1, 1, 1, 1), "f"), "BboxDeltas": np.zeros((1, 4, 1, 1), "f"), "ImInfo": info}
    inputs |= {"Anchors": np.ones((1, 1, 1, 4), "f"), "Variances": np.ones((1, 1, 1, 4), "f")}
    attrs = {"pre_nms_topN": 5, "post_nms_topN": 5, "nms_thresh": 0.5, "min_size": 8.0, "eta": 1.0}
    rois, probs = run_op("generate_proposals", inputs, attrs)
    assert rois.shape == (0, 4)
    assert probs.shape == (0, 1)
    assert rois.lengths() == [[0]]
