# SPDX-License-Identifier: Apache-2.0
"""positive_negative_pair: counts correctly and incorrectly ranked pairs of a query's documents."""

from __future__ import annotations

import numpy as np

from paddle.backend import Array, from_host, to_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.registry import operator


@operator(
    "positive_negative_pair",
    "Score Label QueryID AccumulatePositivePair? AccumulateNegativePair? AccumulateNeutralPair? Weight? -> "
    "PositivePair NegativePair NeutralPair",
    infer="-> Score(1, lod=0), Score(1, lod=0), Score(1, lod=0)",
    shares_lod=False,
)
def positive_negative_pair(
    score: Array,
    label: Array,
    query: Array,
    positive: Array | None,
    negative: Array | None,
    neutral: Array | None,
    weight: Array | None,
    *,
    column: int = -1,
) -> tuple[Array, Array, Array]:
    """Return the numbers of correctly ordered, wrongly ordered and equally scored pairs of documents, (1,) each.

    Two documents of one query with different labels are a pair, weighted by the mean of their weights.

    Args:
        score: (rows, width); only `column` is used.
        label: (rows, 1).
        query: (rows, 1) int64.
        positive, negative, neutral: (1,) earlier counts, all or none of them.
        weight: (rows, 1), one per document; None means 1 each.

    Raises:
        InputError: only some of the earlier counts are given.
    """
    before = positive, negative, neutral
    if any(each is None for each in before) and not all(each is None for each in before):
        raise InputError(
            "give all of AccumulatePositivePair, AccumulateNegativePair and AccumulateNeutralPair, or none"
        )
    scores, labels, queries = (
        to_host(score)[:, column],
        to_host(label).reshape(-1),
        to_host(query).reshape(-1),
    )
    weights = np.ones(len(scores)) if weight is None else to_host(weight).reshape(-1)
    counts = np.zeros(3)
    for each in np.unique(queries):
        rows = np.flatnonzero(queries == each)
        left, right = rows[np.array(np.triu_indices(len(rows), 1))]
        by_label, by_score = labels[left] - labels[right], scores[left] - scores[right]
        order = by_label * by_score
        shares = (weights[left] + weights[right]) / 2 * (by_label != 0)
        kinds = (order > 0, (order < 0) & (by_score != 0), by_score == 0)
        counts += [shares[kind].sum() for kind in kinds]
    found = [
        np.full(1, count, score.dtype) + (0 if earlier is None else to_host(earlier).reshape(1))
        for count, earlier in zip(counts, before, strict=True)
    ]
    return tuple(from_host(each.astype(score.dtype), score) for each in found)
