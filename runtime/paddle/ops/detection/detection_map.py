# SPDX-License-Identifier: Apache-2.0
"""detection_map: the mean average precision (mAP) of detections over all classes.

These are accumulated over batches: the number of objects of each class, and the score and correctness of each
detection.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import LoDArray, offsets_of, sequences
from paddle.ops.base.registry import Spec, operator
from paddle.ops.detection.boxes import overlaps

_INT32, _FLOAT32 = np.dtype("int32"), np.dtype("float32")

# class -> (score, 0 or 1) of each detection
Marks = dict[int, list[tuple[float, int]]]


def _infer(detected: Spec, label: Spec, *others: Spec | None, attrs: dict[str, Any]) -> tuple[Spec, ...]:
    if len(detected.shape) != 2 or detected.shape[1] not in (6, 1, -1):
        raise ShapeError(f"DetectRes: expected (rows, 6) with label, score and box, got {detected.shape}")
    if len(label.shape) != 2 or label.shape[1] not in (5, 6):
        raise ShapeError(
            f"Label: expected (rows, 6) with label, difficult and box, or (rows, 5) without difficult, "
            f"got {label.shape}"
        )
    marks = Spec((-1, 2), detected.dtype, 1)
    return Spec((attrs["class_num"], 1), _INT32), marks, marks, Spec((1,), detected.dtype)


@operator(
    "detection_map",
    "DetectRes+ Label+ HasState? PosCount? TruePos?+ FalsePos?+ -> AccumPosCount AccumTruePos+ AccumFalsePos+ MAP",
    attrs={
        "class_num": int,
        "background_label": 0,
        "overlap_threshold": 0.5,
        "evaluate_difficult": True,
        "ap_type": one_of("integral", "11point"),
    },
    infer=_infer,
)
def detection_map(
    detected: Any,
    label: Any,
    has_state: Array | None,
    pos_count: Array | None,
    true_pos: Any,
    false_pos: Any,
    *,
    attrs: dict[str, Any],
) -> tuple[Array, Any, Any, Array]:
    """Return the objects of each class (class_num, 1) int32, true and false marks, and the mean average precision (1,).

    Args:
        detected: (rows, 6) label, score and box, one sequence per image; boxes are clipped to [0, 1].
        label: (rows, 6) label, whether it is difficult, and box; (rows, 5) without difficult ones.
        has_state: 0 to start from zero; otherwise, the next three arguments are the state.
        pos_count: (class_num, 1) int32.
        true_pos: (n, 2) score and 0 or 1, one sequence per class; false_pos has the same form.
    """
    found, found_at = sequences(detected, "DetectRes")
    objects, objects_at = sequences(label, "Label")
    rows = to_host(found)
    if rows.shape[1] != 6:
        # [[-1]] means that there is no detection in any image.
        rows, found_at = np.zeros((0, 6), rows.dtype), np.zeros_like(objects_at)
    if len(found_at) != len(objects_at):
        raise InputError(f"DetectRes has {len(found_at) - 1} images, but Label has {len(objects_at) - 1}")
    counts: dict[int, int] = {}
    true: Marks = {}
    false: Marks = {}
    if pos_count is not None and has_state is not None and int(has_state.reshape(-1)[0]):
        counts = dict(enumerate(to_host(pos_count).reshape(-1).tolist()))
        true, false = _marks(true_pos), _marks(false_pos)
    truth = to_host(objects)
    for number in range(len(objects_at) - 1):
        image = truth[objects_at[number] : objects_at[number + 1]]
        _count(image, counts, attrs["evaluate_difficult"])
        mark(rows[found_at[number] : found_at[number + 1]], image, true, false, attrs)
    precision = np.array([_mean(counts, true, false, attrs)], rows.dtype)
    size = attrs["class_num"]
    count = np.array([counts.get(each, 0) for each in range(size)], _INT32)[:, None]
    values = [_listed(each, size, rows.dtype, found) for each in (true, false)]
    return from_host(count, found), values[0], values[1], from_host(precision, found)


def _marks(value: Any) -> Marks:
    data, offsets = sequences(value, "TruePos and FalsePos")
    rows = to_host(data).tolist()
    return {
        number: [(score, int(mark)) for score, mark in rows[start:end]]
        for number, (start, end) in enumerate(itertools.pairwise(offsets))
        if end > start
    }


def _listed(marks: Marks, size: int, dtype: Any, like: Array) -> LoDArray:
    listed = [marks.get(each, []) for each in range(size)]
    rows = np.array([pair for each in listed for pair in each], dtype).reshape(-1, 2)
    return LoDArray(from_host(rows, like), offsets_of([[len(each) for each in listed]]))


def _difficult(image: Array) -> Array:
    return np.abs(image[:, 1]) >= 1e-6 if image.shape[1] == 6 else np.zeros(len(image), bool)


def _count(image: Array, counts: dict[int, int], with_difficult: bool) -> None:
    easy = image if with_difficult else image[~_difficult(image)]
    for label in easy[:, 0].astype(int).tolist():
        counts[label] = counts.get(label, 0) + 1


def mark(seen: Array, image: Array, true: Marks, false: Marks, attrs: dict[str, Any]) -> None:
    """Add the detections of an image to `true` and `false`; per object, only the one with the best score is correct."""
    difficult, labels = _difficult(image), image[:, 0].astype(int)
    for label in np.unique(seen[:, 0].astype(int)).tolist():
        mine = seen[seen[:, 0].astype(int) == label]
        objects = np.flatnonzero(labels == label)
        if len(objects):
            mine = mine[np.argsort(-mine[:, 1], kind="stable")]
        shares = overlaps(mine[:, 2:].clip(0, 1), image[objects, -4:])
        taken: set[int] = set()
        for score, share in zip(mine[:, 1].tolist(), shares, strict=True):
            best = int(share.argmax()) if len(share) else 0
            over = len(share) > 0 and share[best] > attrs["overlap_threshold"]
            if over and difficult[objects[best]] and not attrs["evaluate_difficult"]:
                continue
            is_true = int(over and best not in taken)
            taken.update([best] if is_true else [])
            true.setdefault(label, []).append((score, is_true))
            false.setdefault(label, []).append((score, 1 - is_true))


def _mean(counts: dict[int, int], true: Marks, false: Marks, attrs: dict[str, Any]) -> float:
    """Return the mean over all classes with objects.

    As in the original, a class is skipped if its number of objects equals background_label.
    """
    average = by_points if attrs["ap_type"] == "11point" else by_area
    each = []
    for label, count in counts.items():
        if count == attrs["background_label"]:
            continue
        if label not in true:
            each.append(0.0)
            continue
        right, wrong = (running(marks[label]) for marks in (true, false))
        each.append(average(right / np.maximum(right + wrong, 1), right / count if count else right * np.nan))
    return float(np.mean(each)) if each else 0.0


def running(marks: list[tuple[float, int]]) -> Array:
    """Return the cumulative count of marks that are 1, in order of decreasing score."""
    scores, flags = np.array(marks).T
    return flags[np.argsort(-scores, kind="stable")].cumsum()


def by_area(precision: Array, recall: Array) -> float:
    """Return the average precision as an area: the sum of each precision times the increase in recall."""
    steps = np.abs(np.diff(recall, prepend=0.0))
    return float((precision * steps)[steps > 1e-6].sum())


def by_points(precision: Array, recall: Array) -> float:
    """Return the 11-point average precision: the mean of the best precisions at or above the recalls 1, 0.9, ... 0.

    As in the original, a precision counts for lower recalls only down to the lowest recall of any box.
    """
    points = [0.0] * 11
    last = len(recall) - 1
    for point in range(10, -1, -1):
        for at in range(last, -1, -1):
            if recall[at] < point / 10:
                last = at
                points[point - 1] = points[point] if point else points[point - 1]
                break
            points[point] = max(points[point], float(precision[at]))
    return float(np.mean(points))
