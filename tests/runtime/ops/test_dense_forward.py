# SPDX-License-Identifier: Apache-2.0
"""Norms, orders, ranking losses and questions about values, against numpy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(6).standard_normal((3, 4))


def test_rows_have_mean_0_and_variance_1_before_they_are_scaled() -> None:
    out, mean, variance = run_op("layer_norm", {"X": _X, "Scale": np.full(4, 2.0), "Bias": np.ones(4)})
    expected = 2 * (_X - _X.mean(1, keepdims=True)) / np.sqrt(_X.var(1, keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(out, expected)
    np.testing.assert_allclose(mean, _X.mean(1))
    np.testing.assert_allclose(variance, _X.var(1))


def test_groups_of_channels_are_normalised_together() -> None:
    x = np.random.default_rng(0).standard_normal((2, 4, 3))
    out, *_ = run_op("group_norm", {"X": x}, {"groups": 2, "epsilon": 0.0})
    np.testing.assert_allclose(out.reshape(4, 6).mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(out.reshape(4, 6).var(1), 1)


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({}, [1, 3, 6]),
        ({"exclusive": True}, [0, 1, 3]),
        ({"reverse": True}, [6, 5, 3]),
        ({"exclusive": True, "reverse": True}, [5, 3, 0]),
    ],
)
def test_running_sums_start_at_either_end(attrs: dict[str, bool], expected: list[float]) -> None:
    assert run_op("cumsum", {"X": np.array([1.0, 2, 3])}, attrs)[0].tolist() == expected


def test_sorting_tells_where_values_were() -> None:
    values, places = run_op("argsort", {"X": _X}, {"axis": 0})
    np.testing.assert_array_equal(values, np.sort(_X, axis=0))
    np.testing.assert_array_equal(places, np.argsort(_X, axis=0))


def test_an_axis_turns_round() -> None:
    np.testing.assert_array_equal(run_op("reverse", {"X": _X}, {"axis": [0]})[0], _X[::-1])


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


def test_values_are_asked_about() -> None:
    odd = np.array([1.0, np.inf, np.nan])
    answers = {
        op: [bool(run_op(op, {"X": x})[0][0]) for x in (_X, odd)] for op in ("isfinite", "isinf", "isnan")
    }
    assert answers == {"isfinite": [True, False], "isinf": [False, True], "isnan": [False, True]}
    assert run_op("is_empty", {"X": np.zeros((0, 3))})[0].tolist() == [True]
    assert run_op("shape", {"Input": _X})[0].tolist() == [3, 4]


def test_rows_of_random_numbers_are_as_many_as_those_of_the_input() -> None:
    like = np.zeros((500, 2))
    for op, low, high in (("uniform_random", -1.0, 1.0), ("gaussian_random", -9.0, 9.0)):
        (out,) = run_op(f"{op}_batch_size_like", {"Input": like}, {"shape": [-1, 3]})
        assert (out.shape, out.dtype) == ((500, 3), np.float32)
        assert low <= out.min() < -0.5
        assert 0.5 < out.max() <= high


def test_columns_are_drawn_by_their_chances() -> None:
    (drawn,) = run_op("sampling_id", {"X": np.tile([0.0, 0.75, 0.25], (2000, 1))})
    np.testing.assert_allclose(np.bincount(drawn, minlength=3) / 2000, [0, 0.75, 0.25], atol=0.04)


def test_numbers_are_spaced_evenly() -> None:
    assert run_op("range", {"Start": np.array([1]), "End": np.array([8]), "Step": np.array([3])})[
        0
    ].tolist() == [1, 4, 7]
    inputs = {"Start": np.array([0.0]), "Stop": np.array([1.0]), "Num": np.array([5])}
    assert run_op("linspace", inputs)[0].tolist() == [0, 0.25, 0.5, 0.75, 1]


def test_each_row_comes_from_the_input_its_id_names() -> None:
    x = [np.full((3, 2), float(number)) for number in range(3)]
    (out,) = run_op("multiplex", {"Ids": np.array([[2], [0], [1]]), "X": x})
    assert out[:, 0].tolist() == [2, 0, 1]


def test_whole_numbers_are_divided_down() -> None:
    inputs = {"X": np.array([7, -7]), "Y": np.array([2, 2])}
    assert run_op("elementwise_mod", inputs)[0].tolist() == [1, 1]
    assert run_op("elementwise_floordiv", inputs)[0].tolist() == [3, -4]


def test_windows_of_an_image_are_rows_of_its_sequence() -> None:
    x = np.arange(12.0).reshape(1, 1, 3, 4)
    (out,) = run_op("im2sequence", {"X": x}, {"kernels": [2, 2], "strides": [1, 2]})
    assert out.data.tolist() == [[0, 1, 4, 5], [2, 3, 6, 7], [4, 5, 8, 9], [6, 7, 10, 11]]
    assert out.lengths() == [[4]]
