# SPDX-License-Identifier: Apache-2.0
"""mean_iou: intersection over union of predicted and labeled pixels, averaged over classes."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.entries import require_within
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import operator

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
    one. Inputs are added: counts before the mean is computed, means after it.

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
