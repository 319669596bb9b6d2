# SPDX-License-Identifier: Apache-2.0
"""What losses, top_k and metrics compute, against plain numpy or worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(11).standard_normal((3, 4))


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"),
    [
        ("square_error_cost", {"X": [[3.0]], "Y": [[1.0]]}, {}, [[4.0]]),
        ("hinge_loss", {"Logits": [[0.5], [-2.0]], "Labels": [[1.0], [0.0]]}, {}, [[0.5], [0.0]]),
        ("rank_loss", {"Label": [[1.0]], "Left": [[2.0]], "Right": [[2.0]]}, {}, [[np.log(2)]]),
        ("log_loss", {"Predicted": [[0.5]], "Labels": [[1.0]]}, {"epsilon": 0.0}, [[np.log(2)]]),
        ("sigmoid_cross_entropy_with_logits", {"X": [[0.0]], "Label": [[0.3]]}, {}, [[np.log(2)]]),
        (
            "sigmoid_cross_entropy_with_logits",
            {"X": [[0.0], [0.0]], "Label": [[1.0], [-100.0]]},
            {},
            [[np.log(2)], [0.0]],
        ),
        ("cross_entropy", {"X": [[0.25, 0.75]], "Label": np.array([[1]])}, {}, [[-np.log(0.75)]]),
        ("cross_entropy", {"X": [[0.0, 1.0]], "Label": np.array([[0]])}, {}, [[1e20]]),
        ("cross_entropy", {"X": [[0.0, 1.0]], "Label": np.array([[-100]])}, {}, [[0.0]]),
        ("cross_entropy", {"X": [[0.5, 0.5]], "Label": [[0.3, 0.7]]}, {"soft_label": True}, [[np.log(2)]]),
    ],
)
def test_losses_worked_by_hand(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: Any
) -> None:
    arrays = {slot: np.array(value) for slot, value in inputs.items()}
    np.testing.assert_allclose(run_op(op_type, arrays, attrs)[-1], expected, atol=1e-15)


def test_huber_loss_is_straight_beyond_delta() -> None:
    residual, out = run_op(
        "huber_loss", {"X": np.zeros((2, 1)), "Y": np.array([[0.5], [3.0]])}, {"delta": 1.0}
    )
    np.testing.assert_allclose(residual, [[0.5], [3.0]])
    np.testing.assert_allclose(out, [[0.125], [2.5]])


def test_smooth_l1_adds_up_each_row() -> None:
    x = np.array([[0.5, 3.0], [0.0, -2.0]])
    _, out = run_op("smooth_l1_loss", {"X": x, "Y": np.zeros((2, 2))}, {"sigma": 1.0})
    np.testing.assert_allclose(out, [[0.125 + 2.5], [1.5]])


def test_softmax_with_cross_entropy_is_the_pair() -> None:
    label = np.array([[1], [3], [0]])
    probabilities, loss = run_op("softmax_with_cross_entropy", {"Logits": _X, "Label": label})
    np.testing.assert_allclose(probabilities, _softmax(_X))
    np.testing.assert_allclose(loss, -np.log(np.take_along_axis(_softmax(_X), label, 1)))


def test_a_label_outside_of_the_classes_is_named() -> None:
    with pytest.raises(ExecutionError, match=r"label 4 at row 1 is not in \[0, 4\)"):
        run_op("cross_entropy", {"X": _softmax(_X), "Label": np.array([[0], [4], [1]])})


def test_top_k_is_descending_and_takes_the_first_of_equal_values() -> None:
    values, indices = run_op("top_k", {"X": np.array([[1.0, 5.0, 5.0, 3.0]])}, {"k": 3})
    assert values.tolist() == [[5.0, 5.0, 3.0]]
    assert indices.tolist() == [[1, 2, 3]]
    assert run_op("top_k", {"X": np.array([[1.0, 5.0, 5.0]])})[1].tolist() == [[1]]


@pytest.mark.parametrize("k", [1, 2, 5, 9])
def test_top_k_agrees_with_a_stable_sort_where_many_values_are_equal(k: int) -> None:
    x = np.random.default_rng(k).integers(0, 4, (2, 20, 9)).astype("float32")
    values, indices = run_op("top_k", {"X": x}, {"k": k})
    expected = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(indices, expected)
    np.testing.assert_array_equal(values, np.take_along_axis(x, expected, -1))


def test_top_k_of_an_empty_batch_and_of_rows_with_nan_keeps_its_shape() -> None:
    assert run_op("top_k", {"X": np.zeros((0, 4))}, {"k": 2})[1].shape == (0, 2)
    assert run_op("top_k", {"X": np.full((2, 4), np.nan)}, {"k": 2})[1].shape == (2, 2)


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
