# SPDX-License-Identifier: Apache-2.0
"""What operators that few programs have compute: against plain numpy, element by element, and what they refuse."""

from __future__ import annotations

import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from paddle.graph import Executor, Program, Scope, append_backward
from paddle.graph.errors import ExecutionError
from paddle.ops.base.errors import OpError
from paddle.ops.base.lod import LoDArray, offsets_of
from tests.runtime.ops.run_op import run_op

Array = np.ndarray[Any, Any]


def drawn(*shape: int, seed: int = 3) -> Array:
    return np.random.default_rng(seed).standard_normal(shape)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-13), ("float32", 1e-6), ("float16", 2e-3)])
def test_gelu_is_that_of_the_error_function(dtype: str, rtol: float) -> None:
    x = np.concatenate([np.linspace(-9, 9, 181), [0.0, -0.0, 1e-8, np.inf]]).astype(dtype)
    (out,) = run_op("gelu", {"X": x})
    expected = [each * 0.5 * (1 + math.erf(each / math.sqrt(2))) for each in x.astype(float).tolist()]
    assert out.dtype == dtype
    np.testing.assert_allclose(out, expected, rtol=rtol, atol=rtol)
    assert np.isnan(run_op("gelu", {"X": np.array([np.nan])})[0]).all()


def test_a_circular_convolution_takes_its_neighbours_around_the_edge() -> None:
    x, y = drawn(2, 5), drawn(2, 3, seed=4)
    (out,) = run_op("conv_shift", {"X": x, "Y": y})
    for row, i in product(range(2), range(5)):
        assert out[row, i] == pytest.approx(sum(x[row, (i + j - 1) % 5] * y[row, j] for j in range(3)))
    with pytest.raises(OpError, match="must be odd"):
        run_op("conv_shift", {"X": x, "Y": y[:, :2]})


@pytest.mark.parametrize("ratio", [0.25, 0.4])
def test_frames_take_channels_of_their_neighbours(ratio: float) -> None:
    x = drawn(6, 5, 2, 1)
    (out,) = run_op("temporal_shift", {"X": x}, {"seg_num": 3, "shift_ratio": ratio})
    for frame, channel in product(range(6), range(5)):
        step = -1 if channel < int(5 * ratio) else 1 if channel < int(10 * ratio) else 0
        at = frame % 3 + step
        expected = x[frame + step, channel] if 0 <= at < 3 else np.zeros((2, 1))
        np.testing.assert_array_equal(out[frame, channel], expected)


def test_a_grid_sees_the_four_pixels_around_and_zeros_outside() -> None:
    x, grid = drawn(1, 2, 3, 4), drawn(1, 2, 3, 2, seed=5)
    (out,) = run_op("grid_sampler", {"X": x, "Grid": grid})
    for row, column in product(range(2), range(3)):
        across, down = (grid[0, row, column] + 1) / 2 * [3, 2]
        expected = np.zeros(2)
        for i, j in product(range(3), range(4)):
            share = max(1 - abs(i - down), 0) * max(1 - abs(j - across), 0)
            expected += share * x[0, :, i, j]
        np.testing.assert_allclose(out[0, :, row, column], expected, atol=1e-12)


def test_the_grid_of_an_unmoved_image_gives_the_image_again() -> None:
    x, still = drawn(2, 3, 4, 5), np.tile([[[1.0, 0, 0], [0, 1, 0]]], (2, 1, 1))
    (grid,) = run_op("affine_grid", {"Theta": still}, {"output_shape": [2, 3, 4, 5]})
    assert grid[0, 0, 0].tolist() == [-1, -1]
    assert grid[0, 3, 4].tolist() == [1, 1]
    np.testing.assert_allclose(run_op("grid_sampler", {"X": x, "Grid": grid})[0], x, atol=1e-12)
    (told,) = run_op("affine_grid", {"Theta": still, "OutputShape": np.array([2, 3, 4, 5], "int32")})
    np.testing.assert_array_equal(told, grid)


@pytest.mark.parametrize("sides", [2, 3])
def test_a_maximum_is_found_again_by_its_number(sides: int) -> None:
    x = np.floor(drawn(2, 2, *(5, 4, 3)[:sides]) * 2)  # with equal ones
    moved = {"ksize": [3, 2, 2][:sides], "strides": [2, 1, 2][:sides], "paddings": [1, 1, 0][:sides]}
    out, mask = run_op(f"max_pool{sides}d_with_index", {"X": x}, moved)
    assert mask.dtype == np.int32
    np.testing.assert_array_equal(
        np.take_along_axis(x.reshape(2, 2, -1), mask.reshape(2, 2, -1), 2), out.reshape(2, 2, -1)
    )
    plain = run_op(f"pool{sides}d", {"X": x}, {**moved, "pooling_type": "max"})[0]
    np.testing.assert_array_equal(out, plain)
    for place in np.ndindex(*out.shape[2:]):
        at = zip(place, moved["strides"], moved["paddings"], moved["ksize"], x.shape[2:], strict=True)
        cells = [range(max(p * s - pad, 0), min(p * s - pad + k, size)) for p, s, pad, k, size in at]
        first = max(
            product(*cells), key=lambda cell: (x[(0, 0, *cell)], -np.ravel_multi_index(cell, x.shape[2:]))
        )
        assert mask[(0, 0, *place)] == np.ravel_multi_index(first, x.shape[2:])


def test_unpooling_puts_maxima_back_where_they_were() -> None:
    x = drawn(2, 3, 4, 6)
    attrs = {"ksize": [2, 2], "strides": [2, 2]}
    out, mask = run_op("max_pool2d_with_index", {"X": x}, attrs)
    (back,) = run_op("unpool", {"X": out, "Indices": mask}, {**attrs, "unpooling_type": "max"})
    assert back.shape == x.shape
    np.testing.assert_array_equal(back[back != 0], x[back != 0])
    assert (back != 0).sum() == out.size
    with pytest.raises(ExecutionError, match=r"Indices: .* 0 to 23, got 9 to 31"):
        run_op("unpool", {"X": out, "Indices": mask + 9}, {**attrs, "unpooling_type": "max"})


@pytest.mark.parametrize("kind", ["max", "avg"])
@pytest.mark.parametrize("size", [(8, 8), (5, 7), (4, 3)])
def test_a_pyramid_pools_the_cells_of_each_level(kind: str, size: tuple[int, int]) -> None:
    x, begin = drawn(2, 3, *size), 0
    (out,) = run_op("spp", {"X": x}, {"pyramid_height": 3, "pooling_type": kind})
    for bins in (1, 2, 4):
        level = out[:, begin : begin + 3 * bins * bins].reshape(2, 3, bins, bins)
        begin += 3 * bins * bins
        kernel = [-(-each // bins) for each in size]
        pads = [(k * bins - each + 1) // 2 for k, each in zip(kernel, size, strict=True)]
        for i, j in product(range(bins), range(bins)):
            rows, columns = (
                slice(max(at * k - pad, 0), max(at * k - pad + k, 0))
                for at, k, pad in zip((i, j), kernel, pads, strict=True)
            )
            part = x[:, :, rows, columns]
            if part.size:
                expected = part.max(axis=(2, 3)) if kind == "max" else part.mean(axis=(2, 3))
                np.testing.assert_allclose(level[:, :, i, j], expected)
    assert begin == out.shape[1]


def test_a_window_of_a_tree_weighs_nodes_by_depth_and_place() -> None:
    nodes, filters = drawn(1, 6, 2), drawn(2, 3, 4, 2, seed=8)
    edges = np.array([[[1, 2], [1, 3], [2, 4], [2, 5], [0, 0]]], "int32")
    (out,) = run_op(
        "tree_conv", {"NodesVector": nodes, "EdgeSet": edges, "Filter": filters}, {"max_depth": 3}
    )
    windows = {  # root: (node, depth, number among its siblings, siblings)
        1: [(1, 0, 1, 1), (2, 1, 1, 2), (3, 1, 2, 2), (4, 2, 1, 2), (5, 2, 2, 2)],
        2: [(2, 0, 1, 1), (4, 1, 1, 2), (5, 1, 2, 2)],
        3: [(3, 0, 1, 1)],
        4: [(4, 0, 1, 1)],
        5: [(5, 0, 1, 1)],
    }
    expected = np.zeros((6, 4, 2))
    for root, members in windows.items():
        for node, depth, number, count in members:
            top = (3 - depth) / 3
            left = (1 - top) * (0.5 if count == 1 else (number - 1) / (count - 1))
            weights = left, (1 - top) * (1 - left), top
            for eta, matrix in zip(weights, filters.transpose(1, 0, 2, 3), strict=True):
                expected[root - 1] += eta * np.tensordot(nodes[0, node - 1], matrix, 1)
    np.testing.assert_allclose(out[0], expected)
    with pytest.raises(ExecutionError, match=r"EdgeSet: .* got 1 to 9"):
        run_op("tree_conv", {"NodesVector": nodes, "EdgeSet": np.array([[[1, 9]]]), "Filter": filters})


def test_the_greatest_similarities_are_chosen_one_of_each_row_and_column() -> None:
    x = np.zeros((1, 2, 2, 3))
    x[0, 1] = [[0.9, 0.8, 0.1], [0.7, 0.95, 0.2]]
    (mask,) = run_op("similarity_focus", {"X": x}, {"axis": 1, "indexes": [1]})
    np.testing.assert_array_equal(mask[0], [[[1, 0, 0], [0, 1, 0]]] * 2)
    turned = np.moveaxis(x, 1, 3)
    (other,) = run_op("similarity_focus", {"X": turned}, {"axis": 3, "indexes": [0, 1]})
    zeros = run_op("similarity_focus", {"X": x}, {"axis": 1, "indexes": [0]})[0]
    np.testing.assert_array_equal(np.moveaxis(other, 3, 1), np.maximum(mask, zeros))
    with pytest.raises(OpError, match="below 2"):
        run_op("similarity_focus", {"X": x}, {"axis": 1, "indexes": [2]})


def test_places_become_sines_and_cosines() -> None:
    x, lengths = drawn(5, 6), [[2, 3]]
    (out,) = run_op(
        "add_position_encoding", {"X": LoDArray(x, offsets_of(lengths))}, {"alpha": 0.5, "beta": 2.0}
    )
    assert out.lengths() == lengths
    for row, place in enumerate([0, 1, 0, 1, 2]):
        for k in range(3):
            angle = place / 10000 ** (k / 2)
            assert out.data[row, k] == pytest.approx(0.5 * x[row, k] + 2 * math.sin(angle))
            assert out.data[row, 3 + k] == pytest.approx(0.5 * x[row, 3 + k] + 2 * math.cos(angle))


def test_a_click_and_a_score_each_have_a_cross_entropy() -> None:
    x = np.array([[0.3], [-0.7], [1.2], [0.4], [20.0]])
    label = np.array([[-2.0], [-1.0], [0.6], [1.25], [0.0]])
    (out,) = run_op("teacher_student_sigmoid_loss", {"X": x, "Label": label})

    def entropy(row: int, target: float) -> float:
        p = sigmoid(x[row, 0])
        return float(-target * np.log(p) - (1 - target) * np.log1p(-p))

    expected = [
        entropy(0, 0),
        entropy(1, 1),
        entropy(2, 0) + entropy(2, 0.6),
        entropy(3, 1) + entropy(3, 0.25),
    ]
    np.testing.assert_allclose(out[:4, 0], expected)
    assert out[4, 0] == pytest.approx(40)


def test_statistics_of_all_data_scale_the_columns_and_take_in_the_batch() -> None:
    program = Program()
    block = program.global_block()
    feed = {
        "x": drawn(4, 2),
        "size": np.array([9.0, 9]),
        "sum": np.array([3.0, -3]),
        "squares": np.array([4.0, 1]),
    }
    for name, value in feed.items():
        block.create_var(name, value.shape, value.dtype)
    names = {"X": "x", "BatchSize": "size", "BatchSum": "sum", "BatchSquareSum": "squares"}
    block.append_op("data_norm", names, {"Y": "y", "Means": "means", "Scales": "scales"}, {"epsilon": 1e-3})
    block.append_op("reduce_sum", {"X": "y"}, {"Out": "loss"}, {"reduce_all": True})
    append_backward(block.var("loss"), ["x", "size", "sum", "squares"])
    fetched = ["y", *(f"{name}@GRAD" for name in feed)]
    y, dx, *added = Executor().run(program, feed, fetched, Scope(), step=0)
    means, scales = np.array([1 / 3, -1 / 3]), np.array([1.5, 3])
    np.testing.assert_allclose(y, (feed["x"] - means) * scales)
    np.testing.assert_allclose(dx, np.tile(scales, (4, 1)))
    squares = ((feed["x"] - means) ** 2).sum(axis=0) + 4 * 1e-3
    for found, expected in zip(added, ([4, 4], feed["x"].sum(axis=0), squares), strict=True):
        np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize(("shape", "dim"), [((4, 3), 0), ((2, 3, 2, 2), 1)])
def test_a_weight_over_its_greatest_singular_value_has_one_of_1(shape: tuple[int, ...], dim: int) -> None:
    weight = drawn(*shape)
    width = weight.size // shape[dim]
    inputs = {"Weight": weight, "U": drawn(shape[dim]), "V": drawn(width)}
    (out,) = run_op("spectral_norm", inputs, {"dim": dim, "power_iters": 200})
    matrix = np.moveaxis(out, dim, 0).reshape(shape[dim], width)
    assert np.linalg.svd(matrix, compute_uv=False)[0] == pytest.approx(1)
    np.testing.assert_allclose(out / weight, np.full(shape, (out / weight).flat[0]))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_intersections_over_unions_are_counted_class_by_class(dtype: str) -> None:
    rng = np.random.default_rng(2)
    found, wanted = (rng.integers(0, 4, (3, 5)).astype(dtype) for _ in range(2))
    wrongs, corrects = np.arange(5, dtype="int32"), np.arange(5, 0, -1, dtype="int32")
    mean, wrong, correct = run_op("mean_iou", {"Predictions": found, "Labels": wanted}, {"num_classes": 5})
    shares = [
        (both := ((found == each) & (wanted == each)).sum()) / union
        for each in range(5)
        if (union := ((found == each) | (wanted == each)).sum())
    ]
    assert both is not None
    assert (mean.dtype, wrong.dtype, correct.dtype) == ("float32", "int32", "int32")
    assert mean[0] == pytest.approx(np.mean(shares))
    inputs = {"Predictions": found, "Labels": wanted, "InWrongs": [wrongs, wrongs], "InCorrects": [corrects]}
    more, *counts = run_op(
        "mean_iou", {**inputs, "InMeanIou": [np.array([0.5], "float32")]}, {"num_classes": 5}
    )
    np.testing.assert_array_equal(counts, [wrong + 2 * wrongs, correct + corrects])
    assert more[0] == pytest.approx(0.5 + (counts[1] / (counts[0] + counts[1])).mean())
    with pytest.raises(ExecutionError, match=r"row 0 of Predictions: class 3 is not in \[0, 3\)"):
        run_op("mean_iou", {"Predictions": found, "Labels": wanted}, {"num_classes": 3})


def test_precision_and_recall_are_those_of_the_classes_and_of_all() -> None:
    rng = np.random.default_rng(6)
    found, wanted = (rng.integers(0, 3, (20, 1)).astype("int32") for _ in range(2))
    weights, states = (
        rng.uniform(0.5, 2, (20, 1)).astype("float32"),
        rng.uniform(0, 9, (4, 4)).astype("float32"),
    )
    inputs = {
        "MaxProbs": weights,
        "Indices": found,
        "Labels": wanted,
        "Weights": weights,
        "StatesInfo": states,
    }
    batch, total, counts = run_op("precision_recall", inputs, {"class_number": 4})
    own = np.zeros((4, 4))
    for each in range(4):
        said, is_so = found == each, wanted == each
        for column, where in enumerate((said & is_so, said & ~is_so, ~said & ~is_so, ~said & is_so)):
            own[each, column] = weights[where].sum()
    np.testing.assert_allclose(counts, own + states, rtol=1e-5)
    for metrics, table in ((batch, own), (total, own + states)):
        assert metrics.dtype == "float64"
        hits, extra, _, missed = table.T
        rates = []
        for other in (extra, missed):
            rates.append(np.mean([h / (h + o) if h + o else 1.0 for h, o in zip(hits, other, strict=True)]))
        rates.extend(hits.sum() / (hits + other).sum() for other in (extra, missed))
        f1 = [2 * p * r / (p + r) for p, r in (rates[:2], rates[2:])]
        np.testing.assert_allclose(metrics, [*rates[:2], f1[0], *rates[2:], f1[1]], rtol=1e-5)


def test_pairs_of_a_query_are_counted_by_their_order() -> None:
    rng = np.random.default_rng(4)
    score, weight = np.round(rng.standard_normal((20, 2)), 1), rng.uniform(0, 2, (20, 1))
    label, query = rng.integers(0, 3, (20, 1)).astype(float), rng.integers(0, 4, (20, 1))
    before = {name: np.array([float(at)]) for at, name in enumerate(("Positive", "Negative", "Neutral"))}
    earlier = {f"Accumulate{name}Pair": value for name, value in before.items()}
    inputs = {"Score": score, "Label": label, "QueryID": query, "Weight": weight, **earlier}
    found = run_op("positive_negative_pair", inputs, {"column": 1})
    counts = np.array([0.0, 1, 2])
    for i, j in combinations(range(20), 2):
        if query[i] == query[j] and label[i] != label[j]:
            order = (score[i, 1] - score[j, 1]) * (label[i, 0] - label[j, 0])
            counts[0 if order > 0 else 1 if order < 0 else 2] += (weight[i, 0] + weight[j, 0]) / 2
    np.testing.assert_allclose(np.concatenate(found), counts)
    del inputs["AccumulateNeutralPair"]
    with pytest.raises(ExecutionError, match="or none"):
        run_op("positive_negative_pair", inputs)


@pytest.mark.parametrize("use_cvm", [True, False])
@pytest.mark.parametrize("lengths", [(), ((1, 0, 2),)])
def test_counts_become_logarithms_and_come_back_as_gradients(use_cvm: bool, lengths: Any) -> None:
    x, counts = np.abs(drawn(3, 4)), np.array([[5.0, 1], [6, 2], [7, 3]])
    program = Program()
    block = program.global_block()
    value = LoDArray(x, offsets_of(lengths)) if lengths else x
    block.create_var("x", x.shape, x.dtype, lod_level=len(lengths))
    block.create_var("counts", counts.shape, counts.dtype, stop_gradient=True)
    block.append_op("cvm", {"X": "x", "CVM": "counts"}, {"Y": "y"}, {"use_cvm": use_cvm})
    block.append_op("reduce_sum", {"X": "y"}, {"Out": "loss"}, {"reduce_all": True})
    append_backward(block.var("loss"), ["x"])
    y, dx = Executor().run(program, {"x": value, "counts": counts}, ["y", "x@GRAD"], Scope(), step=0)
    logs = np.log(x[:, :1] + 1), np.log(x[:, 1:2] + 1) - np.log(x[:, :1] + 1)
    expected = np.concatenate([*logs, x[:, 2:]], axis=1) if use_cvm else x[:, 2:]
    np.testing.assert_allclose(y.data if lengths else y, expected)
    rows = [0, 2, 2] if lengths else [0, 1, 2]
    np.testing.assert_array_equal(dx, np.concatenate([counts[rows], np.ones((3, 2))], axis=1))


def test_values_of_an_array_are_joined_and_their_gradients_parted() -> None:
    program = Program()
    block = program.global_block()
    feed = {"a": drawn(2, 3), "b": drawn(2, 1, seed=7), "w": drawn(2, 4, seed=8)}
    for name, value in feed.items():
        block.create_var(name, value.shape, value.dtype, stop_gradient=name == "w")
    for at, name in enumerate("ab"):
        number = {"shape": [1], "dtype": "int64", "value": float(at)}
        block.append_op("fill_constant", {}, {"Out": f"at{at}"}, number)
        before = {"Array": f"array{at - 1}"} if at else {}
        block.append_op(
            "write_to_array", {"X": name, "I": f"at{at}", **before}, {"Out": f"array{at}", "Place": f"p{at}"}
        )
    block.append_op(
        "tensor_array_to_tensor", {"X": "array1"}, {"Out": "all", "OutIndex": "sizes"}, {"axis": 1}
    )
    block.append_op("elementwise_mul", {"X": "all", "Y": "w"}, {"Out": "weighed"})
    block.append_op("reduce_sum", {"X": "weighed"}, {"Out": "loss"}, {"reduce_all": True})
    append_backward(block.var("loss"), ["a", "b"])
    joined, sizes, da, db = Executor().run(
        program, feed, ["all", "sizes", "a@GRAD", "b@GRAD"], Scope(), step=0
    )
    np.testing.assert_array_equal(joined, np.concatenate([feed["a"], feed["b"]], axis=1))
    assert (sizes.tolist(), sizes.dtype) == ([3, 1], "int32")
    np.testing.assert_array_equal(da, feed["w"][:, :3])
    np.testing.assert_array_equal(db, feed["w"][:, 3:])


def test_random_parts_are_parts_of_their_samples() -> None:
    x = np.arange(3 * 2 * 5 * 6).reshape(3, 2, 5, 6)
    outputs = [
        run_op("random_crop", {"X": x, "Seed": np.array([seed])}, {"shape": [3, 4]}) for seed in (7, 7, 8)
    ]
    (first, following), (again, _), (other, _) = outputs
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (following.shape, following.dtype) == ((1,), "int64")
    corners = set()
    for sample, channel in product(range(3), range(2)):
        row, column = divmod(int(first[sample, channel, 0, 0]) % 30, 6)
        corners.add((row, column))
        np.testing.assert_array_equal(
            first[sample, channel], x[sample, channel, row : row + 3, column : column + 4]
        )
    assert len(corners) > 1
    with pytest.raises(OpError, match=r"got \(6, 4\)"):
        run_op("random_crop", {"X": x, "Seed": np.array([1])}, {"shape": [6, 4]})


@pytest.mark.parametrize(("dtype", "found"), [(-1, "float32"), (3, "int64"), (0, "bool")])
def test_a_value_takes_the_shape_of_another(dtype: int, found: str) -> None:
    (out,) = run_op("fill_any_like", {"X": np.zeros((2, 0, 3), "float32")}, {"value": 1.0, "dtype": dtype})
    assert (out.shape, out.dtype) == ((2, 0, 3), found)
    (ones,) = run_op("fill_any_like", {"X": np.zeros(3, "float32")}, {"value": 1.0, "dtype": dtype})
    assert ones.tolist() == [1, 1, 1]
