# SPDX-License-Identifier: Apache-2.0
"""precision_recall: precision, recall and F1 score of a multi-class classifier, for a batch and accumulated."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.entries import require_within
from paddle.ops.base.registry import operator

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
