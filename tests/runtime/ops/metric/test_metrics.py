# SPDX-License-Identifier: Apache-2.0
"""Metrics of rows and sequences, worked by hand, against all pairs and the textbook."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op


def _ids(values: list[int], lengths: list[int]) -> LoDArray:
    return LoDArray(np.array(values, np.int64)[:, None], offsets_of([lengths]))


def _levenshtein(a: list[int], b: list[int]) -> int:
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        before, row = row, [i] + [0] * len(b)
        for j, y in enumerate(b, 1):
            row[j] = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (x != y))
    return row[-1]


def test_distances_of_many_pairs_are_those_of_the_table() -> None:
    rng = np.random.default_rng(1)
    lengths = [[int(rng.integers(0, 7)) for _ in range(30)] for _ in range(2)]
    hyps, refs = (_ids(rng.integers(0, 3, sum(each)).tolist(), each) for each in lengths)
    out, count = run_op("edit_distance", {"Hyps": hyps, "Refs": refs})
    pairs = zip(pairwise(hyps.lod[0]), pairwise(refs.lod[0]), strict=True)
    expected = [
        _levenshtein(hyps.data[a:b, 0].tolist(), refs.data[c:d, 0].tolist()) for (a, b), (c, d) in pairs
    ]
    assert out[:, 0].tolist() == expected
    assert count.tolist() == [30]


def test_a_distance_over_the_length_of_nothing_is_refused() -> None:
    inputs = {"Hyps": _ids([1], [1]), "Refs": _ids([], [0])}
    with pytest.raises(ExecutionError, match="sequence 0 of Refs is empty"):
        run_op("edit_distance", inputs, {"normalized": True})


@pytest.mark.parametrize(
    ("scheme", "inference", "label", "counts"),
    [
        # Two types; B-0 I-0 B-1 I-1 are 0 1 2 3, outside is 4.
        ("IOB", [0, 1, 4, 2, 3, 3], [0, 1, 4, 2, 3, 4], [2, 2, 1]),
        ("IOB", [0, 0, 1, 4, 4, 4], [0, 0, 1, 4, 2, 4], [2, 3, 2]),
        # I-0 E-0 I-1 E-1.
        ("IOE", [0, 1, 1, 2, 3, 4], [0, 1, 1, 2, 2, 3], [3, 3, 2]),
        # B I E S of type 0 are 0 to 3, of type 1 they are 4 to 7, outside is 8.
        ("IOBES", [0, 1, 2, 3, 7, 8], [0, 1, 2, 3, 8, 8], [3, 2, 2]),
        # One tag a type.
        ("plain", [0, 0, 1, 2, 1, 1], [0, 0, 1, 2, 0, 1], [3, 4, 2]),
    ],
)
def test_chunks_are_right_if_type_and_both_ends_are(
    scheme: str, inference: list[int], label: list[int], counts: list[int]
) -> None:
    inputs = {"Inference": np.array(inference)[:, None], "Label": _ids(label, [3, 3])}
    attrs = {"num_chunk_types": 2, "chunk_scheme": scheme}
    *rates, found, wanted, right = run_op("chunk_eval", inputs, attrs)
    assert [found[0], wanted[0], right[0]] == counts
    precision, recall = counts[2] / counts[0], counts[2] / counts[1]
    np.testing.assert_allclose(
        [rate[0] for rate in rates],
        [precision, recall, 2 * precision * recall / (precision + recall)],
        rtol=1e-6,
    )


def test_types_that_are_left_out_do_not_count() -> None:
    inputs = {"Inference": np.array([[0], [2]]), "Label": _ids([0, 2], [2])}
    attrs = {"num_chunk_types": 2, "excluded_chunk_types": [1]}
    *_, found, wanted, right = run_op("chunk_eval", inputs, attrs)
    assert (found[0], wanted[0], right[0]) == (1, 1, 1)


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
