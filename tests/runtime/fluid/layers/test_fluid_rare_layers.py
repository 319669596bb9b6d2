# SPDX-License-Identifier: Apache-2.0
"""Layers of operators that few programs have: their shapes before a run and in it, their parameters, their training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from paddle.fluid import layers

_RNG = np.random.default_rng(5)
_IMAGES = _RNG.standard_normal((4, 6, 4, 8)).astype("float32")


def started() -> fluid.Executor:
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    return exe


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda x: layers.temporal_shift(x, 2), (4, 6, 4, 8)),
        (lambda x: layers.relu(layers.lrn(x, n=3)), (4, 6, 4, 8)),
        (lambda x: layers.fsp_matrix(x, layers.conv2d(x, 3, 1)), (4, 6, 3)),
        (lambda x: layers.similarity_focus(x, 1, [0, 2]), (4, 6, 4, 8)),
        (lambda x: layers.adaptive_pool2d(x, [3, 2]), (4, 6, 3, 2)),
        (lambda x: layers.adaptive_pool2d(x, 2, require_index=True)[1], (4, 6, 2, 2)),
        (lambda x: layers.adaptive_pool3d(layers.unsqueeze(x, [1]), [2, 3, 4], "avg"), (4, 1, 2, 3, 4)),
        (
            lambda x: layers.adaptive_pool3d(layers.unsqueeze(x, [1]), 2, require_index=True)[0],
            (4, 1, 2, 2, 2),
        ),
        (lambda x: layers.random_crop(x, [4, 2, 3]), (4, 4, 2, 3)),
        (lambda x: layers.random_crop(x, [2, 3], seed=5), (4, 6, 2, 3)),
        (lambda x: layers.pad_constant_like(x, layers.random_crop(x, [2, 3]), 1.0), (4, 6, 4, 8)),
        (lambda x: layers.add_position_encoding(layers.reshape(x, [0, 24, 8]), 1.0, 0.5), (4, 24, 8)),
        (lambda x: layers.grid_sampler(x, layers.affine_grid(_moved(x), [4, 6, 2, 3])), (4, 6, 2, 3)),
        (
            lambda x: layers.conv2d_transpose(x, 6, filter_size=2, stride=2, groups=6, use_cudnn=False),
            (4, 6, 8, 16),
        ),
        (lambda x: layers.data_norm(layers.reshape(x, [0, 192]), act="relu"), (4, 192)),
        (lambda x: layers.continuous_value_model(layers.abs(_rows(x)), _counts(x)), (4, 192)),
        (lambda x: layers.continuous_value_model(layers.abs(_rows(x)), _counts(x), False), (4, 190)),
    ],
)
def test_a_layer_gives_its_shape(layer: Callable[[Any], Any], shape: tuple[int, ...]) -> None:
    out = layer(layers.data("images", [6, 4, 8]))
    (value,) = started().run(feed={"images": _IMAGES}, fetch_list=[out])
    assert value.shape == shape
    assert len(out.shape) == len(shape)
    assert all(declared in (-1, size) for declared, size in zip(out.shape, shape, strict=True))


def _rows(x: Any) -> Any:
    return layers.reshape(x, [0, 192])


def _counts(x: Any) -> Any:
    return layers.fill_constant_batch_size_like(x, [-1, 2], "float32", 1.0)


def _moved(x: Any) -> Any:
    return layers.reshape(layers.fc(x, 6), [-1, 2, 3])


def test_a_depthwise_layer_back_has_the_operator_of_the_original() -> None:
    x = layers.data("x", [4, 3, 3])
    layers.conv2d_transpose(x, 4, filter_size=2, groups=4, use_cudnn=False)
    layers.conv2d_transpose(x, 4, filter_size=2, groups=4)
    kinds = [op.type for op in fluid.default_main_program().global_block().ops if "conv2d" in op.type]
    assert kinds == ["depthwise_conv2d_transpose", "conv2d_transpose"]


def test_crops_differ_from_run_to_run_and_begin_at_the_seed() -> None:
    def parts() -> list[Any]:
        with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
            out = layers.random_crop(layers.data("x", [40]), [3], seed=11)
            exe = fluid.Executor(fluid.CPUPlace())
            feed = {"x": np.tile(np.arange(40, dtype="float32"), (2, 1))}
            return [exe.run(feed=feed, fetch_list=[out])[0][:, 0].tolist() for _ in range(4)]

    first = parts()
    assert first == parts()
    assert len({tuple(each) for each in first}) > 1
    word: Any = "7"
    with pytest.raises(TypeError, match="a whole number or a variable"):
        layers.random_crop(layers.data("x", [4]), [3], seed=word)


def test_only_maxima_have_places() -> None:
    with pytest.raises(ValueError, match="require_index=True"):
        layers.adaptive_pool2d(layers.data("x", [1, 4, 4]), 2, "avg", require_index=True)
    with pytest.raises(ValueError, match="'max' or 'avg'"):
        layers.adaptive_pool3d(layers.data("v", [1, 4, 4, 4]), 2, "mean")


def test_the_mean_of_intersections_over_unions_is_measured() -> None:
    found, wanted = (layers.data(name, [3], dtype="int64") for name in ("found", "wanted"))
    out = layers.mean_iou(found, wanted, 3)
    feed = {"found": np.array([[0, 1, 2]]), "wanted": np.array([[0, 1, 1]])}
    mean, wrong, correct = started().run(feed=feed, fetch_list=list(out))
    assert mean[0] == pytest.approx((1 + 0.5 + 0) / 3)
    assert (wrong.tolist(), correct.tolist()) == ([0, 1, 1], [1, 1, 0])


@pytest.mark.parametrize("batch", [-1, 6])
def test_pairs_cost_what_their_similarities_say(batch: int) -> None:
    anchor, positive, labels = (
        layers.data(name, [batch, *shape], append_batch_size=False)
        for name, shape in (("anchor", [3]), ("positive", [3]), ("labels", []))
    )
    loss = layers.npair_loss(anchor, positive, labels, l2_reg=0.1)
    a, p = (_RNG.standard_normal((6, 3)).astype("float32") for _ in range(2))
    kinds = np.array([0, 1, 0, 2, 1, 0], "float32")
    (found,) = started().run(feed={"anchor": a, "positive": p, "labels": kinds}, fetch_list=[loss])
    similar = a @ p.T
    alike = (kinds[:, None] == kinds).astype(float)
    targets = alike / alike.sum(axis=1, keepdims=True)
    logs = similar - np.log(np.exp(similar).sum(axis=1, keepdims=True))
    entropy = -(targets * logs).sum(axis=1, keepdims=True)
    norms = (a**2).sum(axis=1).mean() + (p**2).sum(axis=1).mean()
    expected = (targets * entropy).sum(axis=0).mean() + 0.25 * 0.1 * norms
    assert found.item() == pytest.approx(expected, rel=1e-5)


def _trained(loss: Any, feed: dict[str, Any], steps: int = 40) -> list[float]:
    fluid.default_startup_program().random_seed = 3
    fluid.optimizer.Adam(0.05).minimize(loss)
    exe = started()
    return [float(exe.run(feed=feed, fetch_list=[loss])[0].item()) for _ in range(steps)]


@pytest.mark.parametrize("both_ways", [False, True])
def test_layers_of_lstms_learn_to_add_up(both_ways: bool) -> None:
    ways = 1 + both_ways
    x = layers.data("x", [5, -1, 2], append_batch_size=False)
    target = layers.data("target", [1])
    states = [layers.data(name, [2 * ways, -1, 4], append_batch_size=False) for name in "hc"]
    out, last_h, last_c = layers.lstm(x, *states, 5, 4, 2, is_bidirec=both_ways)
    assert (out.shape, last_h.shape) == ((5, -1, 4 * ways), (2 * ways, -1, 4))
    guess = layers.fc(layers.concat([last_h, last_c], axis=2), 1, num_flatten_dims=2)
    loss = layers.mean(layers.square_error_cost(layers.reduce_mean(guess, dim=0), target))
    rows = _RNG.standard_normal((5, 12, 2)).astype("float32")
    zeros = np.zeros((2 * ways, 12, 4), "float32")
    losses = _trained(loss, {"x": rows, "target": rows.sum(axis=(0, 2))[:, None], "h": zeros, "c": zeros}, 60)
    assert losses[-1] < 0.3 * losses[0]


def test_a_net_over_trees_learns() -> None:
    nodes, edges = layers.data("nodes", [5, 3]), layers.data("edges", [4, 2], dtype="int32")
    target = layers.data("target", [1])
    out = layers.tree_conv(nodes, edges, 4, num_filters=2)
    assert out.shape == (-1, 5, 4, 2)
    guess = layers.fc(layers.reduce_max(out, dim=1), 1)
    loss = layers.mean(layers.square_error_cost(guess, target))
    rows = _RNG.standard_normal((6, 5, 3)).astype("float32")
    tree = np.tile(np.array([[1, 2], [1, 3], [2, 4], [2, 5]], "int32"), (6, 1, 1))
    losses = _trained(loss, {"nodes": rows, "edges": tree, "target": rows.max(axis=(1, 2))[:, None]}, 60)
    assert losses[-1] < 0.2 * losses[0]


def test_an_image_is_turned_by_what_a_net_learns() -> None:
    """A spatial transformer finds how an image was moved."""
    x, target = (layers.data(name, [1, 6, 6]) for name in ("x", "target"))
    theta = layers.create_parameter(
        [1, 2, 3],
        "float32",
        default_initializer=fluid.initializer.NumpyArrayInitializer(
            np.array([[[1, 0, 0], [0, 1, 0]]], "float32")
        ),
    )
    seen = layers.grid_sampler(x, layers.affine_grid(theta, [1, 1, 6, 6]))
    loss = layers.mean(layers.square_error_cost(seen, target))
    image = np.add.outer(np.arange(6), 2 * np.arange(6)).astype("float32")[None, None] / 10
    losses = _trained(loss, {"x": image, "target": image[:, :, ::-1].copy()}, 120)
    assert losses[-1] < 0.05 * losses[0]


def test_a_normalised_weight_and_statistics_are_parameters() -> None:
    fluid.default_startup_program().random_seed = (
        1  # 30 rounds are too few where two singular values are close
    )
    w = layers.create_parameter([3, 4], "float32", name="w")
    normed = layers.spectral_norm(w, power_iters=30)
    layers.data_norm(layers.data("x", [2]), name="stats", param_attr={"batch_size": 4.0, "batch_square": 1.0})
    first, last = (fluid.default_main_program().global_block().all_parameters()[at] for at in (1, 2))
    assert (first.shape, last.shape, first.trainable, last.stop_gradient) == ((3,), (4,), False, True)
    (value,) = started().run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[normed])
    assert np.linalg.svd(value, compute_uv=False)[0] == pytest.approx(1, rel=1e-4)
    scope: Any = fluid.global_scope()
    names = ("stats.batch_size", "stats.batch_sum", "stats.batch_square_sum")
    assert [np.array(scope.find_var(name).get_tensor())[0] for name in names] == [4, 0, 1]


def test_values_of_an_array_are_joined() -> None:
    x = layers.data("x", [2])
    array = layers.create_array("float32")
    for at in range(3):
        layers.array_write(layers.scale(x, float(at)), layers.fill_constant([1], "int64", at), array)
    joined, sizes = layers.tensor_array_to_tensor(array)
    found, counts = started().run(feed={"x": np.ones((1, 2), "float32")}, fetch_list=[joined, sizes])
    assert found.tolist() == [[0, 0, 1, 1, 2, 2]]
    assert counts.tolist() == [2, 2, 2]


def test_a_teacher_and_clicks_teach_one_score() -> None:
    x, label = layers.data("x", [2]), layers.data("label", [1])
    loss = layers.mean(layers.teacher_student_sigmoid_loss(layers.fc(x, 1), label))
    rows = _RNG.standard_normal((16, 2)).astype("float32")
    clicked = rows[:, :1] > 0
    losses = _trained(loss, {"x": rows, "label": np.where(clicked, 2.0, 0.0).astype("float32")}, 60)
    assert losses[-1] < 0.4 * losses[0]


def test_an_array_becomes_a_diagonal() -> None:
    matrix = layers.diag(np.array([3, 4], "int32"))
    (found,) = fluid.Executor(fluid.CPUPlace()).run(fetch_list=[matrix])
    assert (found.tolist(), found.dtype) == ([[3, 0], [0, 4]], np.dtype("int32"))
