# SPDX-License-Identifier: Apache-2.0
"""Suppression of overlapping boxes and mean average precision equal plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.ops.base.errors import OpError
from tests.runtime.ops.detection.plain_boxes import boxes, sequences, share
from tests.runtime.ops.run_op import run_op

_ATTRS = {
    "score_threshold": 0.2, "nms_top_k": 8, "keep_top_k": 6, "nms_threshold": 0.3, "nms_eta": 1.0, "normalized": True,
}  # fmt: skip


def _suppress(places: list[int], rows: Any, attrs: dict[str, Any]) -> list[int]:
    kept: list[int] = []
    threshold, more = attrs["nms_threshold"], 0.0 if attrs["normalized"] else 1.0
    for place in places:
        if all(share(rows[place], rows[other], more) <= threshold for other in kept):
            kept.append(place)
            if attrs["nms_eta"] < 1 and threshold > 0.5:
                threshold *= attrs["nms_eta"]
    return kept


def _expected(rows: Any, scores: Any, attrs: dict[str, Any], own: bool = False) -> list[tuple[int, int]]:
    found = []
    for label in range(len(scores)):
        if label != attrs.get("background_label", 0):
            places = [i for i in range(len(scores[label])) if scores[label][i] > attrs["score_threshold"]]
            places = sorted(places, key=lambda i: -scores[label][i])[: attrs["nms_top_k"]]
            kept = _suppress(places, rows[label] if own else rows, attrs)
            found += [(label, place) for place in (sorted(kept) if own else kept)]
    if attrs["keep_top_k"] > -1 and len(found) > attrs["keep_top_k"]:
        found = sorted(found, key=lambda each: -scores[each[0]][each[1]])[: attrs["keep_top_k"]]
        found = sorted(found, key=lambda each: (each[0], each[1] if own else 0))
    return found


@pytest.mark.parametrize(
    "change", [{}, {"nms_eta": 0.9, "nms_threshold": 0.7}, {"keep_top_k": -1}, {"background_label": -1}]
)
def test_of_boxes_that_overlap_the_best_remains(change: dict[str, Any]) -> None:
    rng, attrs = np.random.default_rng(6), {**_ATTRS, **change}
    rows = np.stack([boxes(rng, 12) for _ in range(3)])
    scores = rng.uniform(0, 1, (3, 3, 12)).astype("f")
    scores[1] = 0.1
    out, index = run_op("multiclass_nms2", {"BBoxes": rows, "Scores": scores}, attrs)
    (same,) = run_op("multiclass_nms", {"BBoxes": rows, "Scores": scores}, attrs)
    np.testing.assert_array_equal(same.data, out.data)
    expected = [_expected(*each, attrs) for each in zip(rows, scores, strict=True)]
    assert out.lengths() == index.lengths() == same.lengths() == [[len(each) for each in expected]]
    assert out.lengths()[0][1] == 0
    flat = [(n, label, place) for n, each in enumerate(expected) for label, place in each]
    assert index.data[:, 0].tolist() == [n * 12 + place for n, _, place in flat]
    for row, (n, label, place) in zip(out.data, flat, strict=True):
        np.testing.assert_array_equal(row, [label, scores[n, label, place], *rows[n, place]])


def test_each_class_may_have_boxes_of_its_own() -> None:
    rng, attrs = (
        np.random.default_rng(7),
        {**_ATTRS, "normalized": False, "nms_threshold": 0.2, "keep_top_k": 5},
    )
    rows = np.stack([boxes(rng, 14, 30) for _ in range(3)], axis=1)
    scores = rng.uniform(0, 1, (14, 3)).astype("f")
    given = {"BBoxes": sequences(rows, 9, 0, 5), "Scores": sequences(scores, 9, 0, 5)}
    out, index = run_op("multiclass_nms2", given, attrs)
    expected, places = [], []
    for start, end in ((0, 9), (9, 9), (9, 14)):
        found = _expected(rows[start:end].swapaxes(0, 1), scores[start:end].T, attrs, own=True)
        expected.append(len(found))
        places += [(start + place) * 3 + label for label, place in found]
    assert out.lengths() == [expected]
    assert index.data[:, 0].tolist() == places
    picked = np.array(places)
    np.testing.assert_array_equal(out.data[:, 2:], rows.reshape(-1, 4)[picked])
    np.testing.assert_array_equal(out.data[:, 1], scores.reshape(-1)[picked])


def test_nothing_found_is_minus_one() -> None:
    given = {"BBoxes": np.zeros((2, 3, 4), "f"), "Scores": np.zeros((2, 2, 3), "f")}
    (out,) = run_op("multiclass_nms", given, _ATTRS)
    assert out.data.tolist() == [[-1]]
    assert out.lengths() == [[1]]
    assert out.dtype == np.float32
    out, index = run_op("multiclass_nms2", given, _ATTRS)
    assert out.shape == (0, 6)
    assert index.shape == (0, 1)
    assert out.lengths() == [[0, 0]]


def test_polygons_overlap_as_the_boxes_they_are() -> None:
    rng = np.random.default_rng(8)
    rows = boxes(rng, 10)[None]
    corners = rows[..., [0, 1, 2, 1, 2, 3, 0, 3]]
    scores = rng.uniform(0, 1, (1, 2, 10)).astype("f")
    (out,) = run_op("multiclass_nms", {"BBoxes": corners, "Scores": scores}, _ATTRS)
    (expected,) = run_op("multiclass_nms", {"BBoxes": rows, "Scores": scores}, _ATTRS)
    np.testing.assert_array_equal(out.data[:, :2], expected.data[:, :2])
    assert out.shape[1] == 10


def test_boxes_at_the_same_place_are_one_and_equal_scores_keep_their_order() -> None:
    rows = np.array([[[0.5, 0.5, 0.5, 0.5], [0.5, 0.5, 0.5, 0.5], [0, 0, 0.1, 0.1]]], "f")
    scores = np.array([[[0, 0, 0], [0.9, 0.9, 0.9]]], "f")
    _, index = run_op("multiclass_nms2", {"BBoxes": rows, "Scores": scores}, _ATTRS)
    assert index.data[:, 0].tolist() == [0, 2]


def test_a_polygon_is_shifted_from_each_place() -> None:
    x = np.random.default_rng(9).standard_normal((2, 4, 3, 5)).astype("f")
    (out,) = run_op("polygon_box_transform", {"Input": x})
    for n, c, row, column in np.ndindex(x.shape):
        assert out[n, c, row, column] == np.float32(4 * (row if c % 2 else column) - x[n, c, row, column])


_LABEL = [
    [1, 0, 0.1, 0.1, 0.3, 0.3],
    [1, 1, 0.6, 0.6, 0.8, 0.8],
    [2, 0, 0.3, 0.3, 0.6, 0.5],
    [1, 0, 0.7, 0.1, 0.9, 0.3],
]
_FOUND = [
    [1, 0.3, 0.1, 0.1, 0.3, 0.3], [1, 0.7, 0.0, 0.1, 0.2, 0.3], [1, 0.9, 0.7, 0.6, 0.8, 0.8],
    [2, 0.8, 0.2, 0.1, 0.4, 0.4], [2, 0.1, 0.4, 0.3, 0.7, 0.5], [1, 0.2, 0.8, 0.1, 1.0, 0.3],
    [3, 0.2, 0.8, 0.1, 1.0, 0.3],
]  # fmt: skip


def _precision(kind: str, difficult: bool) -> float:
    """Mean average precision of the boxes above, image after image."""
    images = [(_LABEL[:2], _FOUND[:3]), (_LABEL[2:], _FOUND[3:])]
    counts: dict[int, int] = {}
    marks: dict[int, list[tuple[float, int]]] = {}
    for objects, found in images:
        for each in objects:
            if difficult or not each[1]:
                counts[int(each[0])] = counts.get(int(each[0]), 0) + 1
        taken: list[int] = []
        for label, score, *box in sorted(found, key=lambda row: -row[1]):
            own = [i for i, each in enumerate(objects) if each[0] == label]
            best = max(own, key=lambda i: share(box, objects[i][2:]), default=-1)
            over = best >= 0 and share(box, objects[best][2:]) > 0.3
            if over and objects[best][1] and not difficult:
                continue
            marks.setdefault(int(label), []).append((score, int(over and best not in taken)))
            taken += [best] if over else []
    means = []
    for label, count in counts.items():
        hits, curve = 0, []
        for rank, (_, mark) in enumerate(sorted(marks[label], key=lambda each: -each[0]), 1):
            hits += mark
            curve.append((hits / count, hits / rank))
        if kind == "integral":
            before = [0.0, *(recall for recall, _ in curve)]
            means.append(sum(p * (r - b) for (r, p), b in zip(curve, before, strict=False)))
        else:
            means.append(sum(max([p for r, p in curve if r >= t / 10], default=0) for t in range(11)) / 11)
    return sum(means) / len(means)


@pytest.mark.parametrize("kind", ["integral", "11point"])
@pytest.mark.parametrize("difficult", [True, False])
def test_precision_is_the_mean_over_classes_and_goes_on_from_batch_to_batch(
    kind: str, difficult: bool
) -> None:
    attrs = {"class_num": 4, "overlap_threshold": 0.3, "evaluate_difficult": difficult, "ap_type": kind}
    label, found = np.array(_LABEL, "f"), np.array(_FOUND, "f")
    whole = {"DetectRes": sequences(found, 3, 4), "Label": sequences(label, 2, 2)}
    count, true, _false, mean = run_op("detection_map", whole, attrs)
    assert count[:, 0].tolist() == [0, 3 if difficult else 2, 1, 0]
    assert count.dtype == np.int32
    assert float(mean[0]) == pytest.approx(_precision(kind, difficult), abs=1e-6)
    first = {"DetectRes": sequences(found[:3], 3), "Label": sequences(label[:2], 2)}
    states = run_op("detection_map", first, attrs)[:3]
    second = {"DetectRes": sequences(found[3:], 4), "Label": sequences(label[2:], 2)}
    kept = dict(zip(("PosCount", "TruePos", "FalsePos"), states, strict=True))
    again = run_op("detection_map", {**second, "HasState": np.array([1], "int32"), **kept}, attrs)
    assert again[3] == pytest.approx(mean)
    assert again[1].lengths() == true.lengths()
    np.testing.assert_array_equal(again[0], count)
    anew = run_op("detection_map", {**second, "HasState": np.array([0], "int32"), **kept}, attrs)
    alone = run_op("detection_map", second, attrs)
    assert anew[3] == alone[3]
    assert anew[2].lengths() == alone[2].lengths()


def test_one_minus_one_says_that_nothing_was_found_in_any_image() -> None:
    label = np.array([[1, 0.1, 0.1, 0.3, 0.3], [1, 0.2, 0.2, 0.5, 0.5]], "f")
    given = {"DetectRes": sequences(np.array([[-1]], "f"), 1), "Label": sequences(label, 1, 1)}
    count, true, _, mean = run_op("detection_map", given, {"class_num": 2})
    assert count[:, 0].tolist() == [0, 2]
    assert true.shape == (0, 2)
    assert mean.tolist() == [0]


def test_images_with_nothing_found_or_no_objects_have_no_precision() -> None:
    label = sequences(np.array([[1, 0.1, 0.1, 0.3, 0.3]], "f"), 1)
    attrs = {"class_num": 2}
    *_, mean = run_op(
        "detection_map", {"DetectRes": sequences(np.zeros((0, 6), "f"), 0), "Label": label}, attrs
    )
    assert mean.tolist() == [0]
    none = sequences(np.zeros((0, 6), "f"), 0)
    found = sequences(np.array([[1, 0.5, 0, 0, 1, 1]], "f"), 1)
    *_, false, mean = run_op("detection_map", {"DetectRes": found, "Label": none}, attrs)
    assert mean.tolist() == [0]
    assert false.data.tolist() == [[0.5, 1]]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_boxes_that_overlap_by_just_the_threshold_remain(dtype: str) -> None:
    rows = np.array([[[0, 0, 10, 1], [0, 0, 3, 1], [0, 0, 4, 1]]], dtype)
    scores = np.array([[[0, 0, 0], [0.9, 0.8, 0.7]]], dtype)
    (found,) = run_op("multiclass_nms", {"BBoxes": rows, "Scores": scores}, _ATTRS)
    np.testing.assert_array_equal(found.data[:, 2:], rows[0, :2])


@pytest.mark.parametrize(
    ("rows", "scores"), [((2, 5, 4), (2, 3, 4)), ((2, 5, 4), (1, 3, 5)), ((5, 3, 4), (5, 4))]
)
def test_scores_that_are_not_those_of_the_boxes_are_refused(
    rows: tuple[int, ...], scores: tuple[int, ...]
) -> None:
    with pytest.raises(OpError, match="Scores must have"):
        run_op("multiclass_nms", {"BBoxes": np.zeros(rows), "Scores": np.zeros(scores)}, _ATTRS)
