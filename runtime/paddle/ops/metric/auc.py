# SPDX-License-Identifier: Apache-2.0
"""accuracy: the fraction of rows whose label is among the classes found by top_k; auc: the area under the ROC curve.

auc counts positives and negatives in buckets of the probability.

Stat inputs and outputs are int64 counts (1 or slide_steps rows, num_thresholds + 1 buckets). With slide_steps 0 they
accumulate indefinitely; otherwise the rows are the last batches, and the area is computed from their sum.
"""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.attributes import one_of
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import operator
from paddle.ops.base.shapes import same


@operator(
    "auc",
    "Predict Label StatPos StatNeg -> AUC StatPosOut StatNegOut",
    attrs={"curve": one_of("ROC", "PR"), "num_thresholds": 8191, "slide_steps": 1},
    infer="-> float64(1), StatPos, StatNeg",
    shares_lod=False,
)
def auc(
    predict: Array, label: Array, stat_pos: Array, stat_neg: Array, *, num_thresholds: int, slide_steps: int
) -> tuple[Array, Array, Array]:
    """Return the area under the ROC curve (0 if the labels so far contain only one class), and the new counts.

    Raises:
        InputError: a probability in column 1 of Predict is outside [0, 1].
    """
    xp = array_module(predict)
    same(predict.shape[:1], label.shape[:1], "the rows of Predict and Label")
    positive = predict.reshape(len(label), -1)[:, -1]
    if len(positive) and not (float(positive.min()) >= 0 and float(positive.max()) <= 1):
        raise InputError(
            f"expected probabilities within [0, 1], got {float(positive.min())} to {float(positive.max())}"
        )
    bucket = (positive * num_thresholds).astype(np.int64)
    is_positive = label.reshape(-1) != 0
    pos = _counted(stat_pos, bucket[is_positive], num_thresholds, slide_steps)
    neg = _counted(stat_neg, bucket[~is_positive], num_thresholds, slide_steps)
    # From the highest bucket down; each contributes a trapezoid over its negatives.
    rising = xp.cumsum(pos.sum(axis=0)[::-1].astype(np.float64))
    falling = neg.sum(axis=0)[::-1].astype(np.float64)
    before = xp.concatenate([xp.zeros(1), rising[:-1]])
    area = (falling * (before + rising) / 2).sum()
    whole = rising[-1] * falling.sum()
    return (area / whole if whole else area * 0).reshape(1), pos, neg


def _counted(stat: Array, bucket: Array, num_thresholds: int, slide_steps: int) -> Array:
    xp = array_module(stat)
    counts = xp.bincount(bucket, minlength=num_thresholds + 1).astype(stat.dtype)
    if slide_steps == 0:
        return stat + counts.reshape(stat.shape)
    return xp.concatenate([stat.reshape(slide_steps, -1)[1:], counts[None]]).reshape(stat.shape)


@operator(
    "accuracy",
    "Out Indices Label -> Accuracy Correct Total",
    infer="Indices(..., _), Label(..., _) -> float32(1), int32(1), int32(1)",
    shares_lod=False,
)
def accuracy(out: Array, indices: Array, label: Array) -> tuple[Array, Array, Array]:
    """Return the accuracy Correct / Total, float32 (0 for no rows), and both counts, int32; each is (1,)."""
    same(indices.shape[:-1], label.shape[:-1], "the rows of Indices and Label")
    xp = array_module(out)
    correct = (indices == label).any(axis=-1).sum().reshape(1).astype(np.int32)
    total = xp.array([len(indices)], np.int32)
    share = correct / xp.maximum(total, 1)
    return share.astype(np.float32), correct, total
