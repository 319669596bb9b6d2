# SPDX-License-Identifier: Apache-2.0
"""What operators on single elements, reductions, products and orders compute, against plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.ops.base.errors import OpError, ShapeError
from paddle.ops.base.registry import lookup
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(11)
_X = _RNG.standard_normal((3, 4))
_IMAGES = np.random.default_rng(12).standard_normal((2, 4, 6, 5))
_UNORDERED = np.random.default_rng(6).standard_normal((3, 4))


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize(
    ("op_type", "attrs", "expected"),
    [
        ("sigmoid", {}, 1 / (1 + np.exp(-_X))),
        ("relu", {}, np.maximum(_X, 0)),
        ("stanh", {}, 1.7159 * np.tanh(2 / 3 * _X)),
        ("soft_relu", {}, np.log(1 + np.exp(_X))),
        ("brelu", {}, _X.clip(0, 24)),
        ("leaky_relu", {}, np.where(_X > 0, _X, 0.02 * _X)),
        ("elu", {"alpha": 2.0}, np.where(_X > 0, _X, 2 * (np.exp(_X) - 1))),
        ("softsign", {}, _X / (1 + np.abs(_X))),
        ("relu6", {"threshold": 0.5}, _X.clip(0, 0.5)),
        ("pow", {"factor": 3.0}, _X**3),
        ("hard_sigmoid", {}, (0.2 * _X + 0.5).clip(0, 1)),
        ("swish", {}, _X / (1 + np.exp(-_X))),
        ("softmax", {}, _softmax(_X)),
        ("scale", {"scale": 2.0, "bias": 1.0}, 2 * _X + 1),
        ("scale", {"scale": 2.0, "bias": 1.0, "bias_after_scale": False}, 2 * (_X + 1)),
        ("mean", {}, [_X.mean()]),
        ("reduce_sum", {}, _X.sum(axis=0)),
        ("reduce_mean", {"dim": [1], "keep_dim": True}, _X.mean(axis=1, keepdims=True)),
        ("reduce_max", {"reduce_all": True}, [_X.max()]),
        ("reduce_prod", {"dim": [-1]}, _X.prod(axis=1)),
        ("arg_max", {}, _X.argmax(axis=1)),
        ("arg_min", {"axis": 0}, _X.argmin(axis=0)),
        ("logical_not", {}, np.zeros((3, 4), bool)),
        ("fill_zeros_like", {}, np.zeros((3, 4))),
    ],
)
def test_functions_of_one_value(op_type: str, attrs: dict[str, Any], expected: Any) -> None:
    np.testing.assert_allclose(run_op(op_type, {"X": _X}, attrs)[0], expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("op_type", "values", "expected"),
    [
        ("round", [-2.5, -0.4, 0.5, 1.5, 2.4], [-3, 0, 1, 2, 2]),
        # next to a half, and too large for one
        (
            "round",
            [np.nextafter(0.5, 0), -np.nextafter(0.5, 0), 2.0**52 + 1, -(2.0**52) - 1],
            [0, 0, 2.0**52 + 1, -(2.0**52) - 1],
        ),
        ("floor", [-1.5, 1.5], [-2, 1]),
        ("ceil", [-1.5, 1.5], [-1, 2]),
        ("sign", [-2.0, 0.0, 3.0], [-1, 0, 1]),
        ("logsigmoid", [0.0, -800.0], [-np.log(2), -800]),
        ("softplus", [0.0, 800.0], [np.log(2), 800]),
        ("reciprocal", [4.0], [0.25]),
    ],
)
def test_functions_worked_by_hand(op_type: str, values: list[float], expected: list[float]) -> None:
    np.testing.assert_allclose(run_op(op_type, {"X": np.array(values)})[0], expected, atol=1e-15)


def test_softmax_of_logits_far_apart_has_no_zero_and_no_overflow() -> None:
    (out,) = run_op("softmax", {"X": np.array([[0.0, -1e4, 1e4]], "float32")})
    assert out.min() == pytest.approx(np.exp(-64.0), rel=1e-5)
    (cost,) = run_op("cross_entropy", {"X": out, "Label": np.array([[1]])})
    np.testing.assert_allclose(cost, [[64.0]], rtol=1e-6)


@pytest.mark.parametrize(
    ("axis", "y"), [(-1, (4,)), (1, (4,)), (0, (3, 1)), (0, (3,)), (-1, (1,)), (-1, (3, 4)), (-1, (3, 1))]
)
def test_elementwise_spreads_y_over_a_run_of_x(axis: int, y: tuple[int, ...]) -> None:
    value = _RNG.standard_normal(y)
    spread = value.reshape(3, 1) if y[0] == 3 and y != (3, 4) else value
    np.testing.assert_allclose(
        run_op("elementwise_sub", {"X": _X, "Y": value}, {"axis": axis})[0], _X - spread
    )


def test_a_bias_per_channel_spreads_over_images() -> None:
    bias = np.arange(4.0)
    (out,) = run_op("elementwise_add", {"X": _IMAGES, "Y": bias}, {"axis": 1})
    np.testing.assert_allclose(out, _IMAGES + bias[:, None, None])


def test_whole_numbers_divide_towards_zero() -> None:
    (out,) = run_op("elementwise_div", {"X": np.array([7, -7]), "Y": np.array([2, 2])})
    assert out.tolist() == [3, -3]
    assert out.dtype == np.int64


def test_x_is_never_spread_over_y() -> None:
    with pytest.raises(OpError, match=r"Y \(3, 4\) .* X \(4,\)"):
        run_op("elementwise_add", {"X": np.zeros(4), "Y": _X})


def test_matmul_takes_batches_matrices_and_vectors() -> None:
    a, b = _RNG.standard_normal((2, 3, 4)), _RNG.standard_normal((2, 5, 4))
    out = run_op("matmul", {"X": a, "Y": b}, {"transpose_Y": True, "alpha": 2.0})[0]
    np.testing.assert_allclose(out, 2 * a @ b.swapaxes(1, 2))
    np.testing.assert_allclose(run_op("matmul", {"X": a, "Y": b[0, 0]})[0], a @ b[0, 0])
    np.testing.assert_allclose(run_op("matmul", {"X": b[0, 0], "Y": b[0, 1]})[0], [b[0, 0] @ b[0, 1]])


@pytest.mark.parametrize(
    ("x", "y", "turns", "expected"),
    [
        ((4,), (4,), "", (1,)),
        ((1,), (4,), "X Y", (4,)),
        ((4,), (5,), "X Y", (4, 5)),
        ((4,), (1,), "X", (4,)),
        ((4,), (1, 5), "X", (4, 5)),
        ((4,), (2, 1, 5), "X", (2, 4, 5)),
        ((1,), (2, 1, 5), "X", (2, 5)),
        ((3, 1), (4,), "Y", (3, 4)),
        ((2, 3, 1), (4,), "Y", (2, 3, 4)),
        ((1,), (4,), "Y", (4,)),
        ((0,), (5,), "X Y", (0, 5)),
        ((0,), (0,), "", (1,)),
    ],
)
def test_vectors_are_a_row_on_the_left_and_a_column_on_the_right_unless_transposed(
    x: tuple[int, ...], y: tuple[int, ...], turns: str, expected: tuple[int, ...]
) -> None:
    a, b = _RNG.standard_normal(x), _RNG.standard_normal(y)
    out = run_op("matmul", {"X": a, "Y": b}, {f"transpose_{slot}": True for slot in turns.split()})[0]
    left = a if a.ndim > 1 else a[:, None] if "X" in turns else a[None]
    right = b if b.ndim > 1 else b[None] if "Y" in turns else b[:, None]
    assert out.shape == expected
    np.testing.assert_allclose(out, (left @ right).reshape(expected), atol=1e-12)


def test_a_transposed_vector_that_does_not_fit_is_refused() -> None:
    with pytest.raises(OpError, match=r"with 1 columns .* 3 rows"):
        run_op("matmul", {"X": np.zeros(3), "Y": np.zeros(3)}, {"transpose_X": True})


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_numbers_are_divided_towards_zero_and_leave_a_rest_of_their_own_sign(dtype: str) -> None:
    x = np.array([[7, -7, 6, -6, 0, 1, -1]], dtype).T
    y = np.array([3, -3, 2, -7], dtype)
    inputs = {"X": np.repeat(x, 4, axis=1), "Y": y}
    quotient, rest = np.trunc(x / y), np.fmod(x, y)
    for op_type, expected in {"elementwise_floordiv": quotient, "elementwise_mod": rest}.items():
        (out,) = run_op(op_type, inputs)
        assert out.dtype == dtype
        np.testing.assert_array_equal(out, expected)


def test_large_whole_numbers_are_divided_exactly() -> None:
    x, y = np.array([2**62 + 1, -(2**62) - 1, -9]), np.array([3, 3, 2])
    quotients = [1537228672809129301, -1537228672809129301, -4]
    for op_type in ("elementwise_div", "elementwise_floordiv"):
        assert run_op(op_type, {"X": x, "Y": y})[0].tolist() == quotients
    assert run_op("elementwise_mod", {"X": x, "Y": y})[0].tolist() == [2, -2, -1]


def test_unsigned_numbers_are_divided_as_they_are() -> None:
    inputs = {"X": np.array([200, 7], "uint8"), "Y": np.array([3, 200], "uint8")}
    assert run_op("elementwise_floordiv", inputs)[0].tolist() == [66, 0]
    assert run_op("elementwise_mod", inputs)[0].tolist() == [2, 7]


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
    values, places = run_op("argsort", {"X": _UNORDERED}, {"axis": 0})
    np.testing.assert_array_equal(values, np.sort(_UNORDERED, axis=0))
    np.testing.assert_array_equal(places, np.argsort(_UNORDERED, axis=0))


def test_an_axis_turns_round() -> None:
    np.testing.assert_array_equal(run_op("reverse", {"X": _UNORDERED}, {"axis": [0]})[0], _UNORDERED[::-1])


@pytest.mark.parametrize(
    ("op_type", "shapes", "attrs"),
    [
        ("matmul", [(1, 2, 3), (4, 3, 2)], {"transpose_X": False, "transpose_Y": False, "alpha": 1.0}),
        ("cos_sim", [(1, 3), (4, 3)], {}),
        ("bilinear_tensor_product", [(1, 2), (4, 3), (5, 2, 3), None], {}),
        (
            "gru_unit",
            [(4, 6), (1, 2), (2, 6), None],
            {"activation": 2, "gate_activation": 1, "origin_mode": False},
        ),
        (
            "sample_logits",
            [(1, 9), (4, 1), None, None],
            {"num_samples": 3, "remove_accidental_hits": True, "rng": _RNG},
        ),
    ],
)
def test_one_row_that_stands_for_the_batch_is_not_repeated(
    op_type: str, shapes: list[tuple[int, ...] | None], attrs: dict[str, Any]
) -> None:
    arrays = [None if shape is None else np.zeros(shape) for shape in shapes]
    kernel = lookup(op_type)
    named = {"attrs": attrs} if "attrs" in kernel.keywords else attrs
    with pytest.raises(ShapeError):
        kernel.kernel(*arrays, **named)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_a_mean_of_whole_numbers_keeps_their_dtype_and_truncates(dtype: str) -> None:
    x = np.array([[-3, 2], [-4, 5]], dtype)
    for op_type, attrs, expected in (
        ("mean", {}, [0]),
        ("reduce_mean", {"dim": [0]}, [-3, 3]),
        ("reduce_mean", {"reduce_all": True}, [0]),
    ):
        (found,) = run_op(op_type, {"X": x}, attrs)
        assert (found.tolist(), found.dtype) == (expected, np.dtype(dtype))
