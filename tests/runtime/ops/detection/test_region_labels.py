# SPDX-License-Identifier: Apache-2.0
"""Regions by level, their classes, codes and masks equal plain loops."""

from __future__ import annotations

from math import floor, log2, sqrt
from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.detection.plain_boxes import boxes, coded, sequences, share
from tests.runtime.ops.run_op import run_op

_SAMPLE: dict[str, Any] = {
    "batch_size_per_im": 8, "fg_fraction": 0.4, "fg_thresh": 0.4, "bg_thresh_hi": 0.4, "bg_thresh_lo": 0.05,
    "bbox_reg_weights": [0.1, 0.1, 0.2, 0.2], "class_nums": 4, "use_random": False,
}  # fmt: skip
_INFO = np.array([[50, 60, 2.0], [64, 64, 1.0]], "f")


def _given() -> tuple[dict[str, Any], Any, Any]:
    rng = np.random.default_rng(2)
    objects, rois = boxes(rng, 4, 30), boxes(rng, 25, 60)
    classes, crowd = np.array([[2], [3], [1], [2]], "int32"), np.array([[0], [1], [0], [0]], "int32")
    return (
        {
            "RpnRois": sequences(rois, 15, 10),
            "GtClasses": sequences(classes, 2, 2),
            "IsCrowd": sequences(crowd, 2, 2),
            "GtBoxes": sequences(objects, 2, 2),
            "ImInfo": _INFO,
        },
        objects,
        rois,
    )


@pytest.mark.parametrize("change", [{}, {"is_cls_agnostic": True}, {"is_cascade_rcnn": True}])
def test_regions_get_the_class_and_code_of_their_object(change: dict[str, Any]) -> None:
    inputs, objects, rois = _given()
    attrs = {**_SAMPLE, **change}
    found, labels, targets, inside, outside = run_op("generate_proposal_labels", inputs, attrs)
    rows: list[tuple[Any, int, list[float] | None]] = []
    counts = []
    cascade = "is_cascade_rcnn" in change
    for n, (own, mine) in enumerate([(slice(0, 2), slice(0, 15)), (slice(2, 4), slice(15, 25))]):
        regions = rois[mine][2:] if cascade else rois[mine]
        each = [*objects[own], *(regions / _INFO[n, 2])]
        most = [max(share(box, other, 1.0) for other in objects[own]) for box in each]
        most[1] = -1 if n == 0 else most[1]
        positive = [i for i, value in enumerate(most) if value >= 0.4]
        negative = [i for i, value in enumerate(most) if 0.05 <= value < 0.4]
        if not cascade:
            positive = positive[:3]
            negative = negative[: 8 - len(positive)]
        for i in positive:
            best = max(range(2), key=lambda k: share(each[i], objects[own][k], 1.0))
            label = int(inputs["GtClasses"].data[own][best, 0])
            rows.append(
                (each[i] * _INFO[n, 2], label, coded(objects[own][best], each[i], (0.1, 0.1, 0.2, 0.2)))
            )
        rows += [(each[i] * _INFO[n, 2], 0, None) for i in negative]
        counts.append(len(positive) + len(negative))
    np.testing.assert_allclose(found.data, [box for box, _, _ in rows], rtol=1e-5)
    assert labels.data[:, 0].tolist() == [label for _, label, _ in rows]
    for row, weight, (_, label, code) in zip(targets.data, inside.data, rows, strict=True):
        expected, ones = np.zeros((4, 4)), np.zeros((4, 4))
        if code is not None:
            expected[1 if "is_cls_agnostic" in change else label] = code
            ones[1 if "is_cls_agnostic" in change else label] = 1
        np.testing.assert_allclose(row.reshape(4, 4), expected, rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(weight.reshape(4, 4), ones)
    np.testing.assert_array_equal(inside.data, outside.data)
    assert found.lengths() == labels.lengths() == targets.lengths() == [counts]


def test_a_drawn_sample_has_no_more_than_its_size() -> None:
    inputs, _, _ = _given()
    found, labels, *_ = run_op("generate_proposal_labels", inputs, {**_SAMPLE, "use_random": True})
    assert found.lengths() == labels.lengths()
    assert max(found.lengths()[0]) <= 8
    assert (labels.data > 0).sum() <= 6


def test_regions_go_to_the_level_of_their_size_and_come_back() -> None:
    rng = np.random.default_rng(3)
    rois = boxes(rng, 12, 600)
    rois[0] = [5, 5, 4, 4]
    attrs = {"min_level": 2, "max_level": 5, "refer_level": 4, "refer_scale": 100}
    *levels, restore = run_op(
        "distribute_fpn_proposals", {"FpnRois": sequences(rois, 7, 0, 5)}, attrs, parts=4
    )
    wanted: list[list[int]] = [[], [], [], []]
    for i, box in enumerate(rois):
        sides = max(box[2] - box[0] + 1, 0) * max(box[3] - box[1] + 1, 0) if box[2] >= box[0] else 0
        level = floor(log2(sqrt(sides) / 100 + 1e-6) + 4)
        wanted[min(max(level, 2), 5) - 2].append(i)
    for level, places in zip(levels, wanted, strict=True):
        np.testing.assert_array_equal(level.data, rois[places])
        assert level.lengths() == [[sum(i < 7 for i in places), 0, sum(i >= 7 for i in places)]]
    assert len([places for places in wanted if places]) > 2
    together = np.concatenate([level.data for level in levels])
    np.testing.assert_array_equal(together[restore[:, 0]], rois)


def test_levels_of_other_numbers_of_images_are_refused() -> None:
    levels = [sequences(np.zeros((3, 4)), 1, 2), sequences(np.zeros((4, 4)), 4)]
    scores = [sequences(np.zeros((3, 1)), 1, 2), sequences(np.zeros((4, 1)), 4)]
    with pytest.raises(ExecutionError, match=r"regions of \[2, 1\] images"):
        run_op(
            "collect_fpn_proposals",
            {"MultiLevelRois": levels, "MultiLevelScores": scores},
            {"post_nms_topN": 3},
        )


def test_the_best_regions_of_all_levels_are_collected() -> None:
    rng = np.random.default_rng(4)
    rois = [sequences(boxes(rng, 5), 3, 2), sequences(boxes(rng, 4), 0, 4), sequences(boxes(rng, 0), 0, 0)]
    scores = [
        sequences(rng.permutation(len(each))[:, None] / 9 + k / 20, *each.lengths()[0])
        for k, each in enumerate(rois)
    ]
    attrs = {"post_nms_topN": 6}
    (out,) = run_op("collect_fpn_proposals", {"MultiLevelRois": rois, "MultiLevelScores": scores}, attrs)
    rows = []
    for level, chance in zip(rois, scores, strict=True):
        for i in range(len(level)):
            rows.append((float(chance.data[i, 0]), int(i >= level.lengths()[0][0]), level.data[i]))
    best = sorted(sorted(rows, key=lambda row: -row[0])[:6], key=lambda row: row[1])
    np.testing.assert_array_equal(out.data, [box for _, _, box in best])
    assert out.lengths() == [[sum(image == n for _, image, _ in best) for n in (0, 1)]]


def _segms() -> LoDArray:
    """Objects of two images: a square with a second one beside it, a triangle; a rectangle."""
    polygons = [
        [[2, 2], [10, 2], [10, 10], [2, 10]],
        [[12, 2], [14, 2], [14, 6], [12, 6]],
        [[20, 20], [30, 20], [20, 30]],
        [[5, 5], [15, 5], [15, 25], [5, 25]],
    ]
    points = np.array([point for each in polygons for point in each], "f")
    return LoDArray(points, offsets_of([[2, 1], [2, 1, 1], [4, 4, 3, 4]]))


def test_masks_are_those_of_the_object_in_its_class() -> None:
    rois = np.array([[4, 4, 28, 20], [40, 40, 60, 60], [0, 0, 8, 8], [5, 5, 15, 25]], "f")
    labels = np.array([[1], [2], [0], [0]], "int32")
    inputs = {
        "ImInfo": np.array([[64, 64, 2.0], [64, 64, 1.0]], "f"),
        "GtClasses": sequences(np.array([[1], [2], [1]], "int32"), 2, 1),
        "IsCrowd": sequences(np.zeros((3, 1), "int32"), 2, 1),
        "GtSegms": _segms(),
        "Rois": sequences(rois, 3, 1),
        "LabelsInt32": sequences(labels, 3, 1),
    }
    found, places, masks = run_op("generate_mask_labels", inputs, {"num_classes": 3, "resolution": 12})
    assert found.data.tolist() == [rois[0].tolist(), rois[1].tolist(), rois[3].tolist()]
    assert places.data.tolist() == [[0], [1], [0]]
    assert found.lengths() == places.lengths() == masks.lengths() == [[2, 1]]
    drawn = masks.data.reshape(3, 3, 12, 12)
    # The first region is columns 2 to 14 and rows 2 to 10 of the image: its object fills 8 of 12 columns and the right
    # two from row 2 to 6.
    expected = np.zeros((12, 12), int)
    expected[:, :8] = 1
    expected[:6, 10:] = 1
    np.testing.assert_array_equal(drawn[0, 1], expected)
    assert (drawn[0, [0, 2]] == -1).all()
    # The second is 20 to 30 both ways; the triangle is its upper left half.
    triangle = drawn[1, 2]
    assert triangle[0, 0] == 1
    assert triangle[11, 11] == 0
    np.testing.assert_array_equal(triangle, triangle.T)
    assert abs(triangle.sum() - 72) <= 7
    assert (drawn[2] == -1).all()


def test_an_image_without_regions_has_no_masks() -> None:
    inputs = {
        "ImInfo": np.array([[64, 64, 1.0]], "f"),
        "GtClasses": sequences(np.array([[1]], "int32"), 1),
        "IsCrowd": sequences(np.zeros((1, 1), "int32"), 1),
        "GtSegms": LoDArray(np.zeros((3, 2), "f"), offsets_of([[1], [1], [3]])),
        "Rois": sequences(np.zeros((0, 4), "f"), 0),
        "LabelsInt32": sequences(np.zeros((0, 1), "int32"), 0),
    }
    found, places, masks = run_op("generate_mask_labels", inputs, {"num_classes": 2, "resolution": 3})
    assert (found.shape, places.shape, masks.shape) == ((0, 4), (0, 1), (0, 18))
    assert masks.lengths() == [[0]]
