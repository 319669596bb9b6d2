# SPDX-License-Identifier: Apache-2.0
"""Metrics of single rows, worked by hand and against all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from tests.runtime.ops.run_op import run_op


def test_accuracy_counts_rows_whose_label_is_among_the_k() -> None:
    indices, label = np.array([[0, 2], [1, 3], [2, 0]]), np.array([[2], [0], [2]])
    share, correct, total = run_op("accuracy", {"Out": np.zeros((3, 2)), "Indices": indices, "Label": label})
    np.testing.assert_allclose(share, [2 / 3], rtol=1e-6)
    assert (correct.tolist(), total.tolist(), share.dtype) == ([2], [3], np.float32)


@pytest.mark.parametrize(
    ("scores", "labels", "expected"),
    [
        ([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1], 0.75),
        ([0.9, 0.8, 0.2, 0.1], [1, 1, 0, 0], 1.0),
        ([0.5, 0.5], [0, 1], 0.5),
        ([0.5, 0.5], [1, 1], 0.0),
    ],
)
def test_auc_is_the_share_of_pairs_in_the_right_order(
    scores: list[float], labels: list[int], expected: float
) -> None:
    stat = np.zeros((1, 101), "int64")
    inputs = {"Predict": np.stack([1 - np.array(scores), scores], axis=1), "Label": np.array(labels)[:, None]}
    area, pos, neg = run_op("auc", {**inputs, "StatPos": stat, "StatNeg": stat}, {"num_thresholds": 100})
    assert area[0] == pytest.approx(expected)
    assert (pos.sum(), neg.sum()) == (sum(labels), len(labels) - sum(labels))


def test_auc_forgets_batches_beyond_its_steps() -> None:
    old = np.array([[5, 0], [0, 7]])
    inputs = {"Predict": np.array([[0.0, 1.0]]), "Label": np.array([[1]])}
    attrs = {"num_thresholds": 1, "slide_steps": 2}
    _, pos, neg = run_op("auc", {**inputs, "StatPos": old, "StatNeg": old}, attrs)
    assert pos.tolist() == [[0, 7], [0, 1]]
    assert neg.tolist() == [[0, 7], [0, 0]]


def test_auc_refuses_what_is_no_probability() -> None:
    stat = np.zeros((1, 11), "int64")
    inputs = {"Predict": np.array([[0.0, 1.5]]), "Label": np.array([[1]]), "StatPos": stat, "StatNeg": stat}
    with pytest.raises(ExecutionError, match=r"within \[0, 1\], got 1.5"):
        run_op("auc", inputs, {"num_thresholds": 10})
