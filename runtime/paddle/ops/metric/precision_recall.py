# SPDX-License-Identifier: Apache-2.0
"""Metrics of class predictions: precision_recall (with the F1 score, for a batch and accumulated), and mean_iou.

mean_iou: intersection over union of predicted and labeled pixels, averaged over classes.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import operator
from paddle.ops.base.segments import require_within

_FLOAT64 = np.dtype("float64")


@operator(
    "precision_recall",
    "MaxProbs Indices Labels Weights? StatesInfo? -> BatchMetrics AccumMetrics AccumStatesInfo",
    attrs={"class_number": int},
    infer="-> float64(6), float64(6), MaxProbs(class_number, 4, lod=0)",
    shares_lod=False,
)
def precision_recall(
    probabilities: Array,
    indices: Array,
    labels: Array,
    weights: Array | None,
    states: Array | None,
    *,
    class_number: int,
) -> tuple[Array, Array, Array]:
    """Return metrics (6,) float64 of the batch and of all, and counts (class_number, 4): TP, FP, TN, FN per class.

    The metrics are precision, recall and F1, first averaged over classes, then computed over all samples together.

    Args:
        probabilities: (rows, 1) of the predicted class; only its dtype is used, which is that of the counts.
        indices: (rows, 1) int32 predicted classes.
        labels: (rows, 1) int32 classes.
        weights: (rows, 1), one per sample; None means 1 each.
        states: counts before this batch; None means zeros.

    Raises:
        InputError: a class is outside [0, class_number).
    """
    found, wanted = to_host(indices).reshape(-1), to_host(labels).reshape(-1)
    require_within(indices, class_number, "Indices", "class")
    require_within(labels, class_number, "Labels", "class")
    weight = np.ones(len(found)) if weights is None else to_host(weights).reshape(-1)
    counts = _counts(found, wanted, weight, class_number)
    total = counts + (0 if states is None else to_host(states))
    dtype = probabilities.dtype
    results = _metrics(counts), _metrics(total), total.astype(dtype)
    return tuple(from_host(each, indices) for each in results)


def _counts(found: Array, wanted: Array, weight: Array, classes: int) -> Array:
    right = found == wanted

    def by_class(chosen: Array, where: Array) -> Array:
        return np.bincount(chosen[where], weight[where], classes)

    hits, extra, missed = by_class(found, right), by_class(found, ~right), by_class(wanted, ~right)
    return np.stack([hits, extra, weight.sum() - hits - extra - missed, missed], axis=1)


def _metrics(counts: Array) -> Array:
    hits, extra, _, missed = counts.T
    means = [_share(hits, hits + other).mean() for other in (extra, missed)]
    together = [float(_share(hits.sum(), hits.sum() + other.sum())) for other in (extra, missed)]
    return np.array([*means, _f1(*means), *together, _f1(*together)], _FLOAT64)


def _share(part: Array, whole: Array) -> Array:
    """Return part / whole, or 1 if whole is zero."""
    return np.where(whole > 0, part / np.where(whole > 0, whole, 1), 1.0)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision > 0 or recall > 0 else 0.0


_INT32, _FLOAT32 = np.dtype("int32"), np.dtype("float32")


@operator(
    "mean_iou",
    "Predictions Labels InWrongs*? InCorrects*? InMeanIou*? -> OutMeanIou OutWrong OutCorrect",
    attrs={"num_classes": int},
    infer="-> float32(1), int32(num_classes), int32(num_classes)",
    shares_lod=False,
)
def mean_iou(
    predictions: Array,
    labels: Array,
    wrongs: list[Array] | None,
    corrects: list[Array] | None,
    means: list[Array] | None,
    *,
    num_classes: int,
) -> tuple[Array, Array, Array]:
    """Return the mean IoU (1,) float32 over the classes that occur, and wrong and correct counts (num_classes,) int32.

    A correctly classified pixel counts once as correct; any other counts as wrong for its class and for the predicted
    one. Input counts are added before the mean is computed, input means afterwards.

    Raises:
        InputError: the numbers of predictions and labels differ, or a class is outside [0, num_classes).
    """
    found, wanted = to_host(predictions).reshape(-1), to_host(labels).reshape(-1)
    if len(found) != len(wanted):
        raise InputError(
            f"expected the same number of predictions and labels, got {len(found)} and {len(wanted)}"
        )
    require_within(predictions, num_classes, "Predictions", "class")
    require_within(labels, num_classes, "Labels", "class")
    right = found == wanted
    correct = np.bincount(found[right], minlength=num_classes)
    wrong = sum(np.bincount(each[~right], minlength=num_classes) for each in (found, wanted))
    correct = correct + sum(to_host(each) for each in corrects or [])
    wrong = wrong + sum(to_host(each) for each in wrongs or [])
    union = wrong + correct
    shares = correct.astype(_FLOAT32) / np.maximum(union, 1).astype(_FLOAT32)
    occurring = (union > 0).sum()
    mean = shares.sum() / occurring if occurring else np.nan
    total = np.full(1, mean, _FLOAT32) + sum(to_host(each) for each in means or [])
    results = (total.astype(_FLOAT32), wrong.astype(_INT32), correct.astype(_INT32))
    return tuple(from_host(each, predictions) for each in results)
