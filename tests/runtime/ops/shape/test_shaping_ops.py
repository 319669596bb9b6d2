# SPDX-License-Identifier: Apache-2.0
"""What operators that move elements around compute, and what all operators refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from tests.runtime.ops.run_op import run_op

_X = np.random.default_rng(11).standard_normal((3, 4))
_IMAGES = np.random.default_rng(12).standard_normal((2, 4, 6, 5))
_IMAGE = np.arange(12.0).reshape(1, 1, 3, 4)


@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("reshape", {"shape": [2, -1]}, _X.reshape(2, 6)),
        ("reshape2", {"shape": [0, 2, 2]}, _X.reshape(3, 2, 2)),
        ("unsqueeze2", {"axes": [1]}, _X[:, None]),
        ("flatten2", {"axis": 0}, _X.reshape(1, 12)),
        ("transpose2", {"axis": [1, 0]}, _X.T),
        ("expand", {"expand_times": [2, 1]}, np.concatenate([_X, _X])),
        (
            "pad",
            {"paddings": [0, 1, 2, 0], "pad_value": 9.0},
            np.pad(_X, ((0, 1), (2, 0)), constant_values=9),
        ),
        ("crop", {"offsets": [1, 1], "shape": [2, 2]}, _X[1:3, 1:3]),
        ("crop", {"offsets": [1, 1], "shape": [-1, 2]}, _X[1:, 1:3]),
        ("maxout", {"groups": 2}, np.maximum(_X[:, ::2], _X[:, 1::2])),
        ("increment", {"step": 2.0}, _X + 2),
        ("cast", {"in_dtype": "float64", "out_dtype": "int64"}, _X.astype(int)),
    ],
)
def test_shapes_and_parts(op_type: str, attrs: dict[str, Any], expected: Any) -> None:
    np.testing.assert_array_equal(run_op(op_type, {"X": _X}, attrs)[0], expected)


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "expected"),
    [
        ("slice", {"Input": _X}, {"axes": [1], "starts": [-2], "ends": [100]}, _X[:, 2:]),
        ("slice", {"Input": _X}, {"axes": [0], "starts": [1], "ends": [2], "decrease_axis": [0]}, _X[1]),
        ("gather", {"X": _X, "Index": np.array([2, 0, 2])}, {}, _X[[2, 0, 2]]),
        ("stack", {"X": [_X, _X]}, {"axis": 1}, np.stack([_X, _X], axis=1)),
        ("concat", {"X": [_X, _X]}, {"axis": -1}, np.concatenate([_X, _X], axis=1)),
        ("one_hot", {"X": np.array([[1], [0]])}, {"depth": 3}, [[0, 1, 0], [1, 0, 0]]),
        ("less_than", {"X": np.array([1, 5]), "Y": np.array([3, 3])}, {}, [True, False]),
        ("equal", {"X": np.array([[1, 3]]), "Y": np.array([3])}, {}, [[False, True]]),
        ("logical_xor", {"X": np.array([True, True]), "Y": np.array([True, False])}, {}, [False, True]),
        (
            "fill_constant_batch_size_like",
            {"Input": _X},
            {"shape": [-1, 2], "value": 7.0, "dtype": "int64"},
            np.full((3, 2), 7),
        ),
        (
            "scatter",
            {"X": np.zeros((3, 1)), "Ids": np.array([2, 2]), "Updates": np.array([[1.0], [5.0]])},
            {"overwrite": False},
            [[0], [0], [6]],
        ),
    ],
)
def test_operators_of_several_inputs(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], expected: Any
) -> None:
    np.testing.assert_array_equal(run_op(op_type, inputs, attrs)[0], expected)


def test_split_cuts_into_the_given_sections() -> None:
    left, right = run_op("split", {"X": _X}, {"sections": [1, 3], "axis": 1}, parts=2)
    np.testing.assert_array_equal(left, _X[:, :1])
    np.testing.assert_array_equal(right, _X[:, 1:])


@pytest.mark.parametrize(
    ("op_type", "inputs", "attrs", "text"),
    [
        ("one_hot", {"X": np.array([[3]])}, {"depth": 3}, r"number 3 is not in \[0, 3\)"),
        ("gather", {"X": _X, "Index": np.array([0, 3])}, {}, r"row number 3 is not in \[0, 3\)"),
        ("gather", {"X": _X, "Index": np.array([-1])}, {}, r"row number -1 is not in \[0, 3\)"),
        (
            "reshape",
            {"X": _X},
            {"shape": [5, -1]},
            r"\(3, 4\) has 12 elements, which cannot be divided into shape \(5, -1\)",
        ),
        ("squeeze", {"X": _X}, {"axes": [0]}, "must have size 1"),
        ("squeeze", {"X": _X[:, :1]}, {"axes": [3]}, "from -2 to 1.*got 3"),
        ("split", {"X": _X}, {"num": 3, "axis": 1}, "4 cannot be split into 3 equal parts"),
        ("concat", {"X": [_X, _X.T]}, {"axis": 0}, r"except along axis 0.*\(3, 4\) and \(3, 3\)"),
        ("softmax", {"X": _X}, {"axis": 2}, "an axis from -2 to 1 for a value of 2 dimensions, got 2"),
        ("pool2d", {"X": _IMAGES}, {"pooling_type": "sum", "ksize": [2, 2]}, "'max' or 'avg', got 'sum'"),
        ("conv2d", {"Input": _IMAGES, "Filter": np.zeros((2, 3, 2, 2))}, {}, "with 3 channels.*got Input"),
        ("conv2d", {"Input": _IMAGES, "Filter": np.zeros((2, 4, 9, 9))}, {}, "is smaller than the extent"),
        ("dropout", {"X": _X}, {"dropout_prob": 1.5}, r"dropout_prob: .*0 to 1.*1.5"),
        (
            "batch_norm",
            {"X": _X, **{s: np.zeros(3) for s in ("Scale", "Bias", "Mean", "Variance")}},
            {},
            "Scale .3,.",
        ),
        ("top_k", {"X": _X}, {"k": 5}, "got 5"),
    ],
)
def test_what_does_not_fit_is_refused(
    op_type: str, inputs: dict[str, Any], attrs: dict[str, Any], text: str
) -> None:
    with pytest.raises((OpError, ExecutionError), match=text):
        run_op(op_type, inputs, attrs, parts=3)


@pytest.mark.parametrize("mode", ["reflect", "edge"])
def test_a_border_is_numpys(mode: str) -> None:
    (out,) = run_op("pad2d", {"X": _IMAGE}, {"paddings": [1, 2, 0, 3], "mode": mode})
    np.testing.assert_allclose(out, np.pad(_IMAGE, ((0, 0), (0, 0), (1, 2), (0, 3)), mode=mode))  # type: ignore[call-overload]


def test_values_are_asked_about() -> None:
    odd = np.array([1.0, np.inf, np.nan])
    answers = {
        op: [bool(run_op(op, {"X": x})[0][0]) for x in (_X, odd)] for op in ("isfinite", "isinf", "isnan")
    }
    assert answers == {"isfinite": [True, False], "isinf": [False, True], "isnan": [False, True]}
    assert run_op("is_empty", {"X": np.zeros((0, 3))})[0].tolist() == [True]
    assert run_op("shape", {"Input": _X})[0].tolist() == [3, 4]


def test_ids_that_are_not_whole_numbers_are_refused() -> None:
    x = [np.ones((2, 3)), np.zeros((2, 3))]
    with pytest.raises(ExecutionError, match=r"Ids: .* float64"):
        run_op("multiplex", {"Ids": np.array([[0.5], [1.0]]), "X": x})
