# SPDX-License-Identifier: Apache-2.0
"""What losses compute, sampled ones too, against plain numpy or worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(11).standard_normal((3, 4))
_RNG = np.random.default_rng(4)


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


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
@pytest.mark.parametrize("soft", [False, True])
def test_softmax_with_cross_entropy_goes_along_any_axis(axis: int, soft: bool) -> None:
    rng = np.random.default_rng(6)
    logits, shape = rng.standard_normal((3, 4, 2)), [3, 4, 2]
    shape[axis] = 1
    label: Any = rng.random((3, 4, 2)) if soft else rng.integers(0, 2, shape)
    attrs = {"axis": axis, "soft_label": soft, "ignore_index": 1}
    probabilities, loss = run_op("softmax_with_cross_entropy", {"Logits": logits, "Label": label}, attrs)
    powers = np.exp(logits)
    expected = powers / powers.sum(axis, keepdims=True)
    np.testing.assert_allclose(probabilities, expected)
    if soft:
        np.testing.assert_allclose(loss, -(label * np.log(expected)).sum(axis, keepdims=True))
    else:
        costs = -np.log(np.take_along_axis(expected, label, axis))
        np.testing.assert_allclose(loss, np.where(label == 1, 0, costs))


def test_labels_that_do_not_fit_the_axis_are_refused() -> None:
    inputs = {"Logits": np.zeros((3, 4, 2)), "Label": np.zeros((3, 4, 1), int)}
    with pytest.raises(OpError, match=r"with axis 1 as the last one: .*\(\.\.\., 1\)"):
        run_op("softmax_with_cross_entropy", inputs, {"axis": 1})


def test_a_label_outside_of_the_classes_is_named() -> None:
    with pytest.raises(ExecutionError, match=r"row 1 of Label: label 4 is not in \[0, 4\)"):
        run_op("cross_entropy", {"X": _softmax(_X), "Label": np.array([[0], [4], [1]])})


def test_a_margin_is_lost_where_the_order_is_wrong() -> None:
    inputs = {"Label": np.array([1.0, -1.0]), "X1": np.array([3.0, 3.0]), "X2": np.array([1.0, 1.0])}
    out, activated = run_op("margin_rank_loss", inputs, {"margin": 0.5})
    assert (out.tolist(), activated.tolist()) == ([0.0, 2.5], [0.0, 1.0])


def test_bpr_compares_the_label_with_every_other_class() -> None:
    label = np.array([[2], [0], [3]])
    (out,) = run_op("bpr_loss", {"X": _X, "Label": label})
    for row in range(3):
        others = [j for j in range(4) if j != label[row, 0]]
        margins = _X[row, label[row, 0]] - _X[row, others]
        np.testing.assert_allclose(out[row, 0], np.log1p(np.exp(-margins)).mean())


def test_distances_go_row_by_row() -> None:
    _, out = run_op("squared_l2_distance", {"X": _X, "Y": _X[:1]})
    np.testing.assert_allclose(out[:, 0], ((_X - _X[0]) ** 2).sum(1))


def test_labels_are_smoothed_evenly() -> None:
    (out,) = run_op("label_smooth", {"X": np.array([[0.0, 1.0]])}, {"epsilon": 0.2})
    np.testing.assert_allclose(out, [[0.1, 0.9]])


def test_the_way_to_a_class_goes_along_the_bits_of_its_code() -> None:
    x, w, bias = _RNG.standard_normal((1, 2)), _RNG.standard_normal((5, 2)), _RNG.standard_normal((5, 1))
    inputs = {"X": x, "W": w, "Label": np.array([[4]]), "Bias": bias}
    cost, pre, _ = run_op("hierarchical_sigmoid", inputs, {"num_classes": 6})
    z = np.array([w[node] @ x[0] + bias[node, 0] for node in (4, 1, 0)])
    np.testing.assert_allclose(pre[0], z)
    np.testing.assert_allclose(cost[0, 0], np.log1p(np.exp(z)).sum() - z[1])


def test_places_behind_the_end_of_a_way_cost_ln_2_each() -> None:
    inputs = {"X": np.ones((1, 1)), "W": np.zeros((4, 1)), "Label": np.array([[0]])}
    cost, _, _ = run_op("hierarchical_sigmoid", inputs, {"num_classes": 5})
    np.testing.assert_allclose(cost[0, 0], 3 * np.log(2))


@pytest.mark.parametrize("sampler", [0, 1])
def test_nce_weighs_true_classes_against_drawn_ones(sampler: int) -> None:
    x, w, label = _RNG.standard_normal((5, 2)), _RNG.standard_normal((7, 2)), _RNG.integers(0, 7, (5, 1))
    attrs = {"num_total_classes": 7, "num_neg_samples": 3, "sampler": sampler}
    cost, o, samples = run_op("nce", {"Input": x, "Label": label, "Weight": w}, attrs)
    assert samples[:, 0].tolist() == label[:, 0].tolist()
    assert samples.min() >= 0
    assert samples.max() < 7
    np.testing.assert_allclose(o, 1 / (1 + np.exp(-np.einsum("nd,nsd->ns", x, w[samples]))))
    chance = np.log((samples + 2) / (samples + 1)) / np.log(8) if sampler else np.full(samples.shape, 1 / 7)
    q = 3 * chance
    expected = -np.log(o[:, :1] / (o + q)[:, :1]) - np.log(q / (o + q))[:, 1:].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(cost, expected)


def test_drawn_classes_follow_their_distribution() -> None:
    rows, probs = 400, np.array([0.5, 0.3, 0.2, 0.0])
    inputs = {"Input": np.ones((rows, 1)), "Label": np.zeros((rows, 1), int), "Weight": np.ones((4, 1))}
    attrs = {"num_total_classes": 4, "num_neg_samples": 50}
    for sampler, expected in ((2, probs), (1, np.log(np.arange(2, 6) / np.arange(1, 5)) / np.log(5))):
        given = {**inputs, "CustomDistProbs": probs} if sampler == 2 else inputs
        _, _, samples = run_op("nce", given, {**attrs, "sampler": sampler})
        share = np.bincount(samples[:, 1:].reshape(-1), minlength=4) / (rows * 50)
        np.testing.assert_allclose(share, expected, atol=0.02)
