# SPDX-License-Identifier: Apache-2.0
"""What region networks and RetinaNet have to predict equals plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.runtime.ops.detection.plain_boxes import boxes, coded, sequences, share
from tests.runtime.ops.run_op import run_op

_INFO = np.array([[50, 60, 2.0], [64, 64, 1.0], [40, 40, 1.0]], "f")
_RPN = {
    "rpn_batch_size_per_im": 12, "rpn_straddle_thresh": 0.0, "rpn_positive_overlap": 0.5,
    "rpn_negative_overlap": 0.3, "rpn_fg_fraction": 0.25, "use_random": False,
}  # fmt: skip


def _given(seed: int, anchors: int = 30) -> tuple[Any, Any, Any]:
    """Anchors, and objects and crowds of three images: three objects, one that is a crowd, two."""
    rng = np.random.default_rng(seed)
    objects = np.concatenate([boxes(rng, 3, 25), boxes(rng, 1, 50), boxes(rng, 2, 40)])
    crowd = np.array([[0], [1], [0], [1], [0], [0]], "int32")
    return boxes(rng, anchors, 60) - np.float32(2), sequences(objects, 3, 1, 2), sequences(crowd, 3, 1, 2)


def _expected(
    anchors: Any, objects: list[Any], places: list[int], attrs: dict[str, Any], sizes: tuple[int, int] | None
) -> tuple[list[int], list[int], list[int], list[int], dict[int, int]]:
    """(located, weights, positive, negative, object of each anchor) of one image."""
    shares = {i: [share(anchors[i], each, 1.0) for each in objects] for i in places}
    best = [max(shares[i][k] for i in places) for k in range(len(objects))]
    high, low = attrs["rpn_positive_overlap"], attrs["rpn_negative_overlap"]
    positive = [
        i
        for i in places
        if any(abs(each - top) < 1e-5 for each, top in zip(shares[i], best, strict=True))
        or max(shares[i], default=0) >= high
    ]
    positive = positive if objects else []
    positive = positive[: sizes[0]] if sizes else positive
    negative = [i for i in places if max(shares[i], default=0) < low]
    negative = negative[: sizes[1] - len(positive)] if sizes else negative
    both = [i for i in positive if i in negative]
    real = [i for i in positive if i not in negative]
    located = positive[:1] * len(both) + real
    nearest = {i: shares[i].index(max(shares[i])) for i in places} if objects else {}
    return located, [0] * len(both) + [1] * len(real), real, negative, nearest


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("straddle", [0.0, -1.0])
def test_anchors_are_with_an_object_or_without_one(seed: int, straddle: float) -> None:
    anchors, objects, crowd = _given(seed)
    attrs = {**_RPN, "rpn_straddle_thresh": straddle}
    inputs = {"Anchor": anchors, "GtBoxes": objects, "IsCrowd": crowd, "ImInfo": _INFO}
    located, scored, codes, labels, inside = run_op("rpn_target_assign", inputs, attrs)
    wanted: list[list[Any]] = [[], [], [], [], []]
    counts: list[list[int]] = [[], []]
    for n, (start, end) in enumerate([(0, 3), (3, 4), (4, 6)]):
        height, width, scale = _INFO[n].tolist()
        own = [objects.data[k] * scale for k in range(start, end) if not crowd.data[k, 0]]
        places = [
            i
            for i, (left, top, right, bottom) in enumerate(anchors.tolist())
            if straddle < 0 or (left >= 0 and top >= 0 and right < width and bottom < height)
        ]
        place, weight, positive, negative, nearest = _expected(anchors, own, places, attrs, (3, 12))
        wanted[0] += [n * 30 + i for i in place]
        wanted[1] += [n * 30 + i for i in positive + negative]
        wanted[2] += [coded(own[nearest[i]], anchors[i]) for i in place]
        wanted[3] += [1] * len(positive) + [0] * len(negative)
        wanted[4] += [[each] * 4 for each in weight]
        counts[0].append(len(place))
        counts[1].append(len(positive) + len(negative))
    assert located.data.tolist() == wanted[0]
    assert scored.data.tolist() == wanted[1]
    np.testing.assert_allclose(codes.data, np.reshape(wanted[2], (-1, 4)), rtol=1e-4, atol=1e-5)
    assert labels.data[:, 0].tolist() == wanted[3]
    np.testing.assert_array_equal(inside.data, np.reshape(wanted[4], (-1, 4)))
    assert located.lengths() == codes.lengths() == inside.lengths() == [counts[0]]
    assert scored.lengths() == labels.lengths() == [counts[1]]
    assert {each.dtype.name for each in (located, scored, labels)} == {"int32"}


def test_a_drawn_sample_is_of_the_same_anchors() -> None:
    anchors, objects, crowd = _given(5)
    inputs = {"Anchor": anchors, "GtBoxes": objects, "IsCrowd": crowd, "ImInfo": _INFO}
    everything = {**_RPN, "rpn_batch_size_per_im": 1000, "rpn_straddle_thresh": -1.0, "rpn_fg_fraction": 0.5}
    all_scored = run_op("rpn_target_assign", inputs, everything)[1]
    attrs = {**everything, "rpn_batch_size_per_im": 10, "use_random": True}
    _, scored, _, labels, _ = run_op("rpn_target_assign", inputs, attrs)
    assert set(scored.data.tolist()) <= set(all_scored.data.tolist())
    assert scored.lengths() == labels.lengths()
    assert max(scored.lengths()[0]) <= 10


def test_retinanet_labels_anchors_with_classes() -> None:
    anchors, objects, crowd = _given(1)
    classes = np.array([[3], [1], [2], [1], [1], [2]], "int32")
    attrs = {"positive_overlap": 0.5, "negative_overlap": 0.4}
    inputs = {
        "Anchor": anchors,
        "GtBoxes": objects,
        "GtLabels": sequences(classes, 3, 1, 2),
        "IsCrowd": crowd,
    }
    found = run_op("retinanet_target_assign", {**inputs, "ImInfo": _INFO}, attrs)
    bounds = {"rpn_positive_overlap": 0.5, "rpn_negative_overlap": 0.4}
    places, labels, counts = [], [], []
    for n, (start, end) in enumerate([(0, 3), (3, 4), (4, 6)]):
        rows = [k for k in range(start, end) if not crowd.data[k, 0]]
        own = [objects.data[k] * _INFO[n, 2] for k in rows]
        located, _, positive, negative, nearest = _expected(anchors, own, list(range(30)), bounds, None)
        places += [n * 30 + i for i in positive + negative]
        labels += [int(classes[rows[nearest[i]], 0]) for i in positive] + [0] * len(negative)
        counts.append([len(located) + 1])
    assert found[1].data.tolist() == places
    assert found[3].data[:, 0].tolist() == labels
    assert found[5].tolist() == counts


def test_the_boxes_of_all_levels_are_found_once() -> None:
    rng = np.random.default_rng(4)
    anchors = [boxes(rng, 6, 60), boxes(rng, 4, 60)]
    codes = [rng.uniform(-0.3, 0.3, (2, len(each), 4)).astype("f") for each in anchors]
    scores = [rng.uniform(0, 1, (2, len(each), 2)).astype("f") for each in anchors]
    info = np.array([[60, 50, 2.0], [90, 90, 1.0]], "f")
    attrs = {"score_threshold": 0.5, "nms_top_k": 5, "nms_threshold": 0.3, "nms_eta": 1.0, "keep_top_k": 4}
    inputs = {"BBoxes": codes, "Scores": scores, "Anchors": anchors, "ImInfo": info}
    (out,) = run_op("retinanet_detection_output", inputs, attrs)
    expected, counts = [], []
    for n, (height, width, scale) in enumerate(info.tolist()):
        found: list[list[float]] = []
        for level, least in ((0, 0.5), (1, 0.0)):
            pairs = [(scores[level][n, i, c], i, c) for i in range(len(anchors[level])) for c in range(2)]
            for score, i, c in sorted((each for each in pairs if each[0] > least), key=lambda e: -e[0])[:5]:
                a, code = anchors[level][i].astype(float), codes[level][n, i].astype(float)
                wide, high = a[2] - a[0] + 1, a[3] - a[1] + 1
                x, y = code[0] * wide + a[0] + wide / 2, code[1] * high + a[1] + high / 2
                wide, high = np.exp(code[2]) * wide, np.exp(code[3]) * high
                box = [x - wide / 2, y - high / 2, x + wide / 2 - 1, y + high / 2 - 1]
                last = [round(width / scale) - 1, round(height / scale) - 1] * 2
                found.append(
                    [
                        c + 1,
                        score,
                        *(min(max(each / scale, 0), end) for each, end in zip(box, last, strict=True)),
                    ]
                )
        kept: list[list[float]] = []
        for row in sorted(found, key=lambda each: (each[0], -each[1])):
            if all(row[0] != other[0] or share(row[2:], other[2:], 1.0) <= 0.3 for other in kept):
                kept.append(row)
        kept = sorted(kept, key=lambda each: -each[1])[:4]
        expected += kept
        counts.append(len(kept))
    np.testing.assert_allclose(out.data, expected, rtol=1e-4, atol=1e-4)
    assert out.lengths() == [counts]
    empty = [np.zeros_like(each) for each in scores]
    (none,) = run_op("retinanet_detection_output", {**inputs, "Scores": empty}, attrs)
    assert none.shape == (0, 6)
    assert none.lengths() == [[0, 0]]


def test_the_focal_loss_counts_less_what_is_sure() -> None:
    x = np.random.default_rng(6).standard_normal((4, 3)) * 3
    label, count = np.array([[2], [0], [-1], [3]], "int32"), np.array([0], "int32")
    attrs = {"gamma": 1.5, "alpha": 0.3}
    (out,) = run_op("sigmoid_focal_loss", {"X": x, "Label": label, "FgNum": count}, attrs)
    for row, column in np.ndindex(4, 3):
        p = 1 / (1 + np.exp(-x[row, column]))
        own = -0.3 * (1 - p) ** 1.5 * np.log(p)
        other = -0.7 * p**1.5 * np.log(1 - p)
        expected = 0.0 if label[row, 0] == -1 else own if label[row, 0] == column + 1 else other
        assert out[row, column] == pytest.approx(expected)


def test_the_likeliest_class_gives_the_box() -> None:
    rng = np.random.default_rng(7)
    priors, codes = boxes(rng, 3, 30), rng.standard_normal((3, 12)).astype("f")
    codes[0, 6] = 90
    variances, scores = np.array([0.1, 0.2, 0.3, 0.4], "f"), rng.uniform(0, 1, (3, 3)).astype("f")
    scores[:, 0] = 2
    inputs = {"PriorBox": priors, "PriorBoxVar": variances, "TargetBox": codes, "BoxScore": scores}
    found, assigned = run_op("box_decoder_and_assign", inputs, {"box_clip": 2.0})
    for n, c in np.ndindex(3, 3):
        a, code = priors[n].astype(float), codes[n, 4 * c : 4 * c + 4] * variances
        wide, high = a[2] - a[0] + 1, a[3] - a[1] + 1
        x, y = code[0] * wide + a[0] + wide / 2, code[1] * high + a[1] + high / 2
        wide, high = np.exp(min(code[2], 2.0)) * wide, np.exp(min(code[3], 2.0)) * high
        box = [x - wide / 2, y - high / 2, x + wide / 2 - 1, y + high / 2 - 1]
        np.testing.assert_allclose(found[n, 4 * c : 4 * c + 4], box, rtol=1e-4, atol=1e-3)
    best = scores[:, 1:].argmax(axis=1) + 1
    np.testing.assert_array_equal(assigned, found.reshape(3, 3, 4)[np.arange(3), best])
    lone = {**inputs, "TargetBox": codes[:, :4], "BoxScore": scores[:, :1]}
    np.testing.assert_array_equal(run_op("box_decoder_and_assign", lone)[1], priors)
