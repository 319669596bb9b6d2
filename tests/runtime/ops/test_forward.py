# SPDX-License-Identifier: Apache-2.0
"""What operators compute, against plain numpy or worked by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paddle.graph.errors import ExecutionError
from paddle.ops.errors import OpError
from tests.runtime.ops.run_op import run_op

_RNG = np.random.default_rng(11)
_X = _RNG.standard_normal((3, 4))
_IMAGES = _RNG.standard_normal((2, 4, 6, 5))


def _softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _convolved(x: Any, filters: Any, stride: int, pad: int, dilation: int, groups: int) -> Any:
    """Convolution by its definition, one output element at a time."""
    n, _, height, width = x.shape
    count, per_group, kh, kw = filters.shape
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    down = (height + 2 * pad - dilation * (kh - 1) - 1) // stride + 1
    across = (width + 2 * pad - dilation * (kw - 1) - 1) // stride + 1
    out = np.zeros((n, count, down, across))
    for image, f, i, j in np.ndindex(out.shape):
        first = f // (count // groups) * per_group
        window = padded[
            image,
            first : first + per_group,
            i * stride : i * stride + dilation * (kh - 1) + 1 : dilation,
            j * stride : j * stride + dilation * (kw - 1) + 1 : dilation,
        ]
        out[image, f, i, j] = (window * filters[f]).sum()
    return out


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
    with pytest.raises(OpError, match=r"Y \(3, 4\) does not fit X \(4,\)"):
        run_op("elementwise_add", {"X": np.zeros(4), "Y": _X})


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pad", [0, 1])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_convolution_is_what_its_definition_says(stride: int, pad: int, dilation: int, groups: int) -> None:
    filters = _RNG.standard_normal((6, 4 // groups, 2, 2))
    attrs = {
        "strides": [stride, stride],
        "paddings": [pad, pad],
        "dilations": [dilation, dilation],
        "groups": groups,
    }
    (out,) = run_op("conv2d", {"Input": _IMAGES, "Filter": filters}, attrs)
    np.testing.assert_allclose(out, _convolved(_IMAGES, filters, stride, pad, dilation, groups), atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 3, 9, 9), (40, 3, 9, 9), (2, 3, 6, 6)])
def test_many_images_and_small_images_are_convolved_alike(shape: tuple[int, ...]) -> None:
    images, filters = _RNG.standard_normal(shape), _RNG.standard_normal((4, 3, 3, 3))
    (out,) = run_op("conv2d", {"Input": images, "Filter": filters})
    np.testing.assert_allclose(out, _convolved(images, filters, 1, 0, 1, 1), atol=1e-12)


def test_a_transposed_convolution_grows_what_a_convolution_shrinks() -> None:
    filters = np.ones((1, 1, 2, 2))
    attrs = {"strides": [2, 2]}
    (out,) = run_op("conv2d_transpose", {"Input": np.array([[[[1.0, 2.0]]]]), "Filter": filters}, attrs)
    np.testing.assert_allclose(out, [[[[1, 1, 2, 2], [1, 1, 2, 2]]]])


@pytest.mark.parametrize(
    ("attrs", "expected"),
    [
        ({"pooling_type": "max", "ksize": [2, 2], "strides": [2, 2]}, [[5, 7], [13, 15]]),
        ({"pooling_type": "avg", "ksize": [2, 2], "strides": [2, 2]}, [[2.5, 4.5], [10.5, 12.5]]),
        (
            {"pooling_type": "max", "ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            [[10, 11], [14, 15]],
        ),
        (
            {"pooling_type": "avg", "ksize": [3, 3], "strides": [2, 2], "ceil_mode": True},
            [[5, 6.5], [11, 12.5]],
        ),
        (
            {
                "pooling_type": "avg",
                "ksize": [2, 2],
                "strides": [3, 3],
                "paddings": [1, 1],
                "exclusive": False,
            },
            [[0, 1.25], [5, 12.5]],
        ),
        (
            {"pooling_type": "avg", "ksize": [2, 2], "strides": [3, 3], "paddings": [1, 1]},
            [[0, 2.5], [10, 12.5]],
        ),
        ({"pooling_type": "max", "ksize": [1, 1], "global_pooling": True}, [[15]]),
        ({"pooling_type": "avg", "ksize": [1, 1], "global_pooling": True}, [[7.5]]),
    ],
)
def test_pooling_worked_by_hand(attrs: dict[str, Any], expected: Any) -> None:
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    np.testing.assert_allclose(run_op("pool2d", {"X": image}, attrs)[0][0, 0], expected)


def test_a_window_of_nothing_but_padding_gives_zero() -> None:
    attrs = {"ksize": [2, 2], "strides": [2, 2], "paddings": [1, 1], "ceil_mode": True}
    for kind in ("max", "avg"):
        (out,) = run_op("pool2d", {"X": np.full((1, 1, 5, 5), -3.0)}, {"pooling_type": kind, **attrs})
        assert out.shape == (1, 1, 4, 4)
        assert not out[0, 0, 3].any()
        assert (out[0, 0, :3, :3] == -3).all()


def test_lrn_worked_by_definition() -> None:
    out, mid = run_op("lrn", {"X": _IMAGES}, {"n": 3, "k": 1.0, "alpha": 0.5, "beta": 0.75})
    squares = np.pad(_IMAGES**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    expected = 1 + 0.5 * (squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:])
    np.testing.assert_allclose(mid, expected)
    np.testing.assert_allclose(out, _IMAGES * expected**-0.75)


def test_batch_norm_gives_each_channel_mean_bias_and_deviation_scale() -> None:
    channels = {
        "Scale": np.full(4, 2.0),
        "Bias": np.full(4, 5.0),
        "Mean": np.zeros(4),
        "Variance": np.zeros(4),
    }
    y, mean, variance, saved_mean, saved_variance = run_op("batch_norm", {"X": _IMAGES, **channels})
    np.testing.assert_allclose(y.mean(axis=(0, 2, 3)), 5, atol=1e-12)
    np.testing.assert_allclose(y.std(axis=(0, 2, 3)), 2, rtol=1e-4)
    np.testing.assert_allclose(mean, 0.1 * _IMAGES.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(variance, 0.1 * _IMAGES.var(axis=(0, 2, 3)))
    np.testing.assert_allclose(saved_mean, _IMAGES.mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(saved_variance, 1 / np.sqrt(_IMAGES.var(axis=(0, 2, 3)) + 1e-5))


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


def test_matmul_takes_batches_matrices_and_vectors() -> None:
    a, b = _RNG.standard_normal((2, 3, 4)), _RNG.standard_normal((2, 5, 4))
    out = run_op("matmul", {"X": a, "Y": b}, {"transpose_Y": True, "alpha": 2.0})[0]
    np.testing.assert_allclose(out, 2 * a @ b.swapaxes(1, 2))
    np.testing.assert_allclose(run_op("matmul", {"X": a, "Y": b[0, 0]})[0], a @ b[0, 0])
    np.testing.assert_allclose(run_op("matmul", {"X": b[0, 0], "Y": b[0, 1]})[0], [b[0, 0] @ b[0, 1]])


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
        ("one_hot", {"X": np.array([[3]])}, {"depth": 3}, r"numbers in \[0, 3\), got 3..3"),
        ("gather", {"X": _X, "Index": np.array([0, 3])}, {}, r"row numbers in \[0, 3\), got 0..3"),
        ("gather", {"X": _X, "Index": np.array([-1])}, {}, r"row numbers in \[0, 3\), got -1"),
        (
            "reshape",
            {"X": _X},
            {"shape": [5, -1]},
            r"\(3, 4\) has 12 elements, which shape \(5, -1\) cannot divide",
        ),
        ("squeeze", {"X": _X}, {"axes": [0]}, "must have size 1"),
        ("split", {"X": _X}, {"num": 3, "axis": 1}, "4 cannot be split into 3 equal parts"),
        ("concat", {"X": [_X, _X.T]}, {"axis": 0}, r"except along axis 0.*\(3, 4\) and \(3, 3\)"),
        ("softmax", {"X": _X}, {"axis": 2}, "axis 2 is outside of a value of 2 dimensions"),
        ("pool2d", {"X": _IMAGES}, {"pooling_type": "sum", "ksize": [2, 2]}, "'max' or 'avg', got 'sum'"),
        ("conv2d", {"Input": _IMAGES, "Filter": np.zeros((2, 3, 2, 2))}, {}, "has 4 channels.*takes 3"),
        ("conv2d", {"Input": _IMAGES, "Filter": np.zeros((2, 4, 9, 9))}, {}, "has no room"),
        ("dropout", {"X": _X}, {"dropout_prob": 1.5}, "expected a probability, got 1.5"),
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
