# SPDX-License-Identifier: Apache-2.0
"""Objects matched to boxes, targets and hard examples equal plain loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.detection.plain_boxes import sequences
from tests.runtime.ops.run_op import run_op


def _greedy(values: Any) -> tuple[list[int], list[float]]:
    rows, columns = values.shape
    match, dist = [-1] * columns, [0.0] * columns
    pairs = [(-values[i, j], j, i) for i in range(rows) for j in range(columns) if values[i, j] >= 1e-6]
    for value, column, row in sorted(pairs):
        if match[column] == -1 and row not in match:
            match[column], dist[column] = row, -value
    return match, dist


def _per_prediction(values: Any, threshold: float) -> tuple[list[int], list[float]]:
    match, dist = _greedy(values)
    for column in range(values.shape[1]):
        best = max(range(len(values)), key=lambda row: (values[row, column], -row)) if len(values) else -1
        if match[column] == -1 and best >= 0 and values[best, column] >= threshold:
            match[column], dist[column] = best, values[best, column]
    return match, dist


@pytest.mark.parametrize("seed", range(4))
def test_each_row_takes_a_column_and_columns_left_take_their_best(seed: int) -> None:
    rng = np.random.default_rng(seed)
    # Tenths, so that values are equal often; the third image has more rows than there are columns, the second none.
    values = rng.integers(0, 11, (13, 5)).astype("f") / 10
    given = sequences(values, 3, 0, 8, 2)
    for kind, threshold in (("bipartite", 0.5), ("per_prediction", 0.7)):
        attrs = {"match_type": kind, "dist_threshold": threshold}
        match, dist = run_op("bipartite_match", {"DistMat": given}, attrs)
        assert match.dtype == np.int32
        assert match.shape == (4, 5)
        for number, (start, end) in enumerate([(0, 3), (3, 3), (3, 11), (11, 13)]):
            part = values[start:end]
            expected = (
                _greedy(part) if kind == "bipartite" else _per_prediction(part, float(np.float32(threshold)))
            )
            assert match[number].tolist() == expected[0]
            np.testing.assert_array_equal(dist[number], np.array(expected[1], "f"))


def test_a_matrix_without_sequences_is_one_image() -> None:
    match, dist = run_op("bipartite_match", {"DistMat": np.array([[0.2, 0.9], [0.8, 0.85]], "f")})
    assert match.tolist() == [[1, 0]]
    np.testing.assert_array_equal(dist, np.array([[0.8, 0.9]], "f"))
    with pytest.raises((OpError, ExecutionError), match="match_type: expected"):
        run_op("bipartite_match", {"DistMat": np.zeros((1, 1), "f")}, {"match_type": "best"})


@pytest.mark.parametrize(("places", "dtype"), [(1, "int32"), (4, "float32")])
def test_targets_are_those_of_the_matched_objects(places: int, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 90, (5, places, 3)).astype(dtype)
    match = np.array([[1, -1, 0, 1], [-1, 2, -1, 0]], "int32")
    negative = sequences(np.array([[1], [0], [2]], "int32"), 1, 2)
    given = {"X": sequences(x, 2, 3), "MatchIndices": match}
    for extra in ({}, {"NegIndices": negative}):
        out, weight = run_op("target_assign", {**given, **extra}, {"mismatch_value": 7})
        assert (out.dtype, weight.dtype) == (np.dtype(dtype), np.float32)
        chosen = {(0, 1), (1, 0), (1, 2)} if extra else set()
        for image, place in np.ndindex(2, 4):
            row = match[image, place]
            expected = x[(0, 2)[image] + row, place % places] if row >= 0 else np.full(3, 7)
            np.testing.assert_array_equal(out[image, place], expected)
            assert weight[image, place, 0] == (row >= 0 or (image, place) in chosen)


def test_targets_of_objects_that_are_not_there_are_refused() -> None:
    given = {"X": sequences(np.zeros((2, 1, 4), "f"), 1, 1), "MatchIndices": np.array([[1], [0]], "int32")}
    with pytest.raises((OpError, ExecutionError), match="refers to object 1"):
        run_op("target_assign", given)


def _hard(loss: Any, match: Any, dist: Any, attrs: dict[str, Any]) -> tuple[list[int], list[int]]:
    hard = attrs["mining_type"] == "hard_example"
    places = [
        i for i in range(len(loss)) if hard or (match[i] == -1 and dist[i] < attrs["neg_dist_threshold"])
    ]
    places.sort(key=lambda i: -loss[i])
    positive = sum(each != -1 for each in match)
    picked = places[: attrs["sample_size"] if hard else int(positive * attrs["neg_pos_ratio"])]
    kept = [each if each == -1 or not hard or i in picked else -1 for i, each in enumerate(match)]
    return sorted(i for i in picked if match[i] == -1), kept


@pytest.mark.parametrize("kind", ["max_negative", "hard_example"])
def test_hard_examples_are_those_that_cost_most(kind: str) -> None:
    rng = np.random.default_rng(4)
    loss, place = rng.permutation(24).reshape(3, 8).astype("f"), rng.uniform(0, 9, (3, 8)).astype("f")
    match = rng.integers(-1, 2, (3, 8)).astype("int32")
    match[2] = -1
    dist = rng.uniform(0, 1, (3, 8)).astype("f")
    attrs = {"mining_type": kind, "neg_pos_ratio": 1.5, "neg_dist_threshold": 0.6, "sample_size": 4}
    inputs = {"ClsLoss": loss, "LocLoss": place, "MatchIndices": match, "MatchDist": dist}
    negative, updated = run_op("mine_hard_examples", inputs, attrs)
    total = loss + place if kind == "hard_example" else loss
    expected = [_hard(*each, attrs) for each in zip(total, match, dist, strict=True)]
    assert negative.data[:, 0].tolist() == [i for chosen, _ in expected for i in chosen]
    assert negative.lengths() == [[len(chosen) for chosen, _ in expected]]
    assert updated.tolist() == [kept for _, kept in expected]
    assert negative.dtype == updated.dtype == np.int32


@pytest.mark.parametrize(
    ("attrs", "text"),
    [
        ({"mining_type": "hard_example"}, "sample_size above 0"),
        ({"neg_pos_ratio": 0.0}, "neg_pos_ratio above 0"),
        ({"mining_type": "none"}, "mining_type: expected"),
    ],
)
def test_what_cannot_be_mined_is_refused(attrs: dict[str, Any], text: str) -> None:
    zeros = np.zeros((1, 2), "f")
    inputs = {"ClsLoss": zeros, "MatchIndices": zeros.astype("int32"), "MatchDist": zeros}
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op("mine_hard_examples", inputs, attrs)
