# SPDX-License-Identifier: Apache-2.0
"""Values of layers: costs, activations, convolution, pooling and what else works on images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology
from paddle.v2.training.gradient_machine import GradientMachine
from tests.runtime.v2.layers.layer_cases import (
    ACTIVATIONS,
    LAYERS,
    OTHER,
    ROWS,
    WEIGHT,
    act,
    attr,
    data_type,
    dense,
    layer,
    sigmoid,
    values,
)

IMAGE = np.random.default_rng(3).normal(size=(2, 3, 5, 4)).astype(np.float32)


def softmax_cost(p: np.ndarray, ids: list[int]) -> np.ndarray:
    return np.asarray(-np.log(p[np.arange(len(ids)), ids])[:, None])


IDS = [2, 0, 3]
P = ACTIVATIONS["Softmax"](ROWS)
RAW = np.abs(ROWS) + 0.1
BITS = (OTHER > 0).astype(np.float32)
R = np.abs(ROWS - OTHER)
A = WEIGHT * np.array([[1], [-1], [1]])


COSTS: dict[str, tuple[Callable[..., LayerOutput], np.ndarray, list[object]]] = {
    "classification": (
        lambda: layer.classification_cost(layer.addto(dense("x", 4), act.Softmax()), ids4()),
        softmax_cost(P, IDS),
        [ROWS, IDS],
    ),
    "classification, weighted": (
        lambda: layer.classification_cost(layer.addto(dense("x", 4), act.Softmax()), ids4(), dense("w", 1)),
        softmax_cost(P, IDS) * WEIGHT,
        [ROWS, IDS, WEIGHT],
    ),
    "cross_entropy of numbers": (
        lambda: layer.cross_entropy_cost(dense("x", 4), ids4()),
        softmax_cost(RAW, IDS),
        [RAW, IDS],
    ),
    "selfnorm": (
        lambda: layer.cross_entropy_with_selfnorm_cost(dense("x", 4), ids4(), softmax_selfnorm_alpha=0.3),
        softmax_cost(RAW / RAW.sum(1, keepdims=True), IDS) + 0.3 * np.log(RAW.sum(1, keepdims=True)) ** 2,
        [RAW, IDS],
    ),
    "multi binary behind a sigmoid": (
        lambda: layer.multi_binary_label_cross_entropy_cost(
            layer.addto(dense("x", 4), act.Sigmoid()), dense("y", 4)
        ),
        -(BITS * np.log(sigmoid(ROWS)) + (1 - BITS) * np.log(1 - sigmoid(ROWS))).sum(1, keepdims=True),
        [ROWS, BITS],
    ),
    "multi binary": (
        lambda: layer.multi_binary_label_cross_entropy_cost(dense("x", 4), dense("y", 4)),
        -(BITS * np.log(P) + (1 - BITS) * np.log(1 - P)).sum(1, keepdims=True),
        [P, BITS],
    ),
    "square_error": (
        lambda: layer.square_error_cost(dense("x", 4), dense("y", 4)),
        ((ROWS - OTHER) ** 2).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "sum": (lambda: layer.sum_cost(dense("x", 4)), ROWS.sum(1, keepdims=True), [ROWS]),
    "rank": (
        lambda: layer.rank_cost(dense("l", 1), dense("r", 1), dense("y", 1)),
        np.log1p(np.exp(ROWS[:, :1] - OTHER[:, :1])) - BITS[:, :1] * (ROWS[:, :1] - OTHER[:, :1]),
        [ROWS[:, :1], OTHER[:, :1], BITS[:, :1]],
    ),
    "huber_regression": (
        lambda: layer.huber_regression_cost(dense("x", 4), dense("y", 4), delta=0.7),
        np.where(R <= 0.7, R**2 / 2, 0.7 * (R - 0.35)).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "smooth_l1": (
        lambda: layer.smooth_l1_cost(dense("x", 4), dense("y", 4)),
        np.where(R < 1, R**2 / 2, R - 0.5).sum(1, keepdims=True),
        [ROWS, OTHER],
    ),
    "huber_classification": (
        lambda: layer.huber_classification_cost(dense("x", 1), layer.data("l", data_type.integer_value(2))),
        np.where(A < -1, -4 * A, np.where(A < 1, (1 - A) ** 2, 0)),
        [WEIGHT, [1, 0, 1]],
    ),
}


def ids4() -> LayerOutput:
    return layer.data("ids", data_type.integer_value(4))


@pytest.mark.parametrize("name", COSTS)
def test_costs_have_one_value_per_row(name: str) -> None:
    declare, want, columns = COSTS[name]
    np.testing.assert_allclose(values(declare(), *columns), want, rtol=1e-5, atol=1e-6)


def test_probabilities_next_to_their_cost_are_the_softmax() -> None:
    probabilities = layer.addto(dense("x", 4), act.Softmax(), name="p")
    cost = layer.classification_cost(probabilities, ids4())
    machine = GradientMachine(Topology(cost).network, paddle.parameters.create(cost), [cost.name])
    step = machine.test({"x": ROWS, "ids": np.array([IDS]).T}, ["p"])
    np.testing.assert_allclose(step.values["p"], P, rtol=1e-5)
    assert step.cost == pytest.approx(softmax_cost(P, IDS).sum(), rel=1e-5)


def image_layer() -> LayerOutput:
    return layer.data("image", data_type.dense_vector(60), height=5, width=4)


def test_convolution_is_cross_correlation_over_channels() -> None:
    out = layer.img_conv(image_layer(), 3, 2, name="c", stride=2, padding=1, act=act.Linear())
    w = np.random.default_rng(4).normal(size=(2, 3, 3, 3)).astype(np.float32)
    b = np.array([[0.5], [-1.0]], np.float32)
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)))
    want = np.zeros((2, 2, 3, 2), np.float32)
    for i in range(3):
        for j in range(2):
            window = padded[:, :, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
            want[:, :, i, j] = np.einsum("ncij,fcij->nf", window, w) + b.T
    found = values(out, IMAGE, parameters={"_c.w0": w.reshape(1, -1), "_c.wbias": b})
    np.testing.assert_allclose(found, want.reshape(2, -1), rtol=1e-4, atol=1e-5)


def test_convolution_in_groups_with_a_bias_per_pixel() -> None:
    image = layer.data("image", data_type.dense_vector(4 * 9), height=3, width=3)
    out = layer.img_conv(image, 1, 4, name="c", groups=2, act=act.Linear(), shared_biases=False)
    w = np.arange(8, dtype=np.float32).reshape(4, 2)
    b = np.arange(36, dtype=np.float32).reshape(36, 1)
    x = np.random.default_rng(5).normal(size=(2, 4, 9)).astype(np.float32)
    halves = [np.einsum("fc,ncp->nfp", w[2 * g : 2 * g + 2], x[:, 2 * g : 2 * g + 2]) for g in (0, 1)]
    want = np.concatenate(halves, axis=1).reshape(2, 36) + b.T
    found = values(out, x.reshape(2, -1), parameters={"_c.w0": w.reshape(1, 8), "_c.wbias": b})
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("pool", "reduce"), [(paddle.pooling.Max(), np.max), (paddle.pooling.Avg(), np.mean), (None, np.max)]
)
def test_pooling_rounds_up_and_averages_what_is_there(
    pool: paddle.pooling.BasePoolingType | None, reduce: Callable[..., np.ndarray]
) -> None:
    found = values(layer.img_pool(image_layer(), 2, stride=2, pool_type=pool), IMAGE)
    want = np.empty((2, 3, 3, 2), np.float32)
    for i in range(3):
        for j in range(2):
            want[:, :, i, j] = reduce(IMAGE[:, :, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2], axis=(2, 3))
    np.testing.assert_allclose(found, want.reshape(2, -1), rtol=1e-5)


def test_response_normalisation_divides_the_scale_by_the_size() -> None:
    found = values(layer.img_cmrnorm(image_layer(), 3, scale=0.3, power=0.5), IMAGE)
    squares = np.pad(IMAGE**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    total = squares[:, :3] + squares[:, 1:4] + squares[:, 2:]
    np.testing.assert_allclose(found, (IMAGE / (1 + 0.1 * total) ** 0.5).reshape(2, -1), rtol=1e-5)


def test_maxout_pad_and_crop_keep_the_image() -> None:
    image = layer.data("image", data_type.dense_vector(4 * 6), height=3, width=2)
    x = np.random.default_rng(6).normal(size=(2, 4, 3, 2)).astype(np.float32)
    want = x.reshape(2, 2, 2, 3, 2).max(axis=2)
    out = layer.maxout(image, 2)
    np.testing.assert_allclose(values(out, x), want.reshape(2, -1))
    padded = layer.pad(out, pad_c=(1, 0), pad_w=(0, 2))
    full = np.pad(want, ((0, 0), (1, 0), (0, 0), (0, 2)))
    np.testing.assert_allclose(values(padded, x), full.reshape(2, -1))
    cut = layer.crop(padded, [1, 1], axis=2, shape=[0, 3, 2, 2])
    np.testing.assert_allclose(values(cut, x), full[:, :, 1:3, 1:3].reshape(2, -1))
    assert (cut.num_filters, cut.height, cut.width) == (3, 2, 2)


def test_batch_norm_trains_on_the_batch_and_tests_on_moving_statistics() -> None:
    out = layer.batch_norm(image_layer(), act.Linear(), name="bn", moving_average_fraction=0.75)
    cost = layer.sum_cost(layer.fc(out, 1, act.Linear(), name="f"))
    parameters = paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(cost, parameters, paddle.optimizer.Momentum(momentum=0, learning_rate=0))
    flat = [(image.reshape(-1),) for image in IMAGE]
    mean, var = IMAGE.mean(axis=(0, 2, 3)), IMAGE.var(axis=(0, 2, 3))
    seen: list[np.ndarray] = []

    def look(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            value = event.gm.getLayerOutputs("bn")["bn"]["value"]
            assert value is not None
            seen.append(value)

    trainer.train(lambda: iter([flat]), num_passes=1, event_handler=look)
    want = (IMAGE - mean[:, None, None]) / np.sqrt(var + 1e-5)[:, None, None]
    np.testing.assert_allclose(seen[0], want.reshape(2, -1), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(parameters["_bn.w1"][0], 0.25 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(parameters["_bn.w2"][0], 0.25 * var, rtol=1e-4)
    tested = paddle.infer(out, parameters, flat)
    moved = (IMAGE - 0.25 * mean[:, None, None]) / np.sqrt(0.25 * var + 1e-5)[:, None, None]
    np.testing.assert_allclose(tested, moved.reshape(2, -1), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str) -> None:
    out = layer.addto(dense("x", 4), act=getattr(act, name)())
    np.testing.assert_allclose(values(out, ROWS), ACTIVATIONS[name](ROWS), rtol=2e-6)


@pytest.mark.parametrize(("name", "formula"), [("Log", np.log), ("Sqrt", np.sqrt)])
def test_activations_of_positive_numbers(name: str, formula: Callable[[np.ndarray], np.ndarray]) -> None:
    out = layer.addto(dense("x", 4), act=getattr(act, name)())
    np.testing.assert_allclose(values(out, np.abs(ROWS)), formula(np.abs(ROWS)), rtol=1e-6)


def test_fc_sums_its_inputs_and_adds_a_bias() -> None:
    out = layer.fc([dense("x", 4), dense("y", 4)], 2, name="out")
    w = {f"_out.w{i}": np.random.default_rng(i).normal(size=(4, 2)).astype(np.float32) for i in range(2)}
    b = np.array([[0.5, -0.25]], np.float32)
    want = np.tanh(ROWS @ w["_out.w0"] + OTHER @ w["_out.w1"] + b)
    np.testing.assert_allclose(values(out, ROWS, OTHER, parameters={**w, "_out.wbias": b}), want, rtol=1e-5)


def test_fc_of_a_sparse_vector_is_that_of_the_dense_one() -> None:
    w = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    share = attr.Param(name="w")
    sparse = layer.data("s", data_type.sparse_float_vector(50))
    binary = layer.data("b", data_type.sparse_binary_vector(50))
    out = layer.fc([sparse, binary], 3, act.Linear(), param_attr=[share, share], bias_attr=False)
    batch = [([(3, 2.0), (49, -1.0)], [7, 3]), ([], [0])]
    found = values(out, *zip(*batch, strict=True), parameters={"w": w})
    want = np.stack([2 * w[3] - w[49] + w[7] + w[3], w[0]])
    np.testing.assert_allclose(found, want, rtol=1e-5)


def test_factorization_machine_takes_dense_and_sparse_rows() -> None:
    v = np.random.default_rng(0).normal(size=(4, 2)).astype(np.float32)
    want = 0.5 * ((ROWS @ v) ** 2 - ROWS**2 @ v**2).sum(axis=1, keepdims=True)
    out = layer.factorization_machine(dense("x", 4), 2, param_attr=attr.Param(name="v"))
    np.testing.assert_allclose(values(out, ROWS, parameters={"v": v}), want, rtol=1e-5)
    source = layer.data("s", data_type.sparse_float_vector(4))
    out = layer.factorization_machine(source, 2, param_attr=attr.Param(name="v"))
    sparse = [[(column, float(value)) for column, value in enumerate(row)] for row in ROWS]
    np.testing.assert_allclose(values(out, sparse, parameters={"v": v}), want, rtol=1e-5)


def test_tables_and_projections() -> None:
    ids = layer.data("ids", data_type.integer_value(6))
    x = dense("x", 4)
    table = np.arange(24, dtype=np.float32).reshape(6, 4)
    scale = np.array([[3.0]], np.float32)
    vector = np.array([[1.0, -1.0, 2.0, 0.5]], np.float32)
    matrix = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32)
    out = layer.mixed(
        4,
        [
            layer.table_projection(ids, 4, attr.Param(name="table")),
            layer.identity_projection(x),
            layer.scaling_projection(x, attr.Param(name="scale")),
            layer.dotmul_projection(x, attr.Param(name="vector")),
            layer.trans_full_matrix_projection(x, 4, attr.Param(name="matrix")),
            layer.dotmul_operator(x, x, scale=2.0),
            layer.slice_projection(x, [(2, 4), (0, 2)]),
        ],
    )
    picked = [5, 0, 3]
    want = (
        table[picked]
        + ROWS
        + 3 * ROWS
        + ROWS * vector
        + ROWS @ matrix.T
        + 2 * ROWS**2
        + ROWS[:, [2, 3, 0, 1]]
    )
    parameters = {"table": table, "scale": scale, "vector": vector, "matrix": matrix}
    np.testing.assert_allclose(values(out, picked, ROWS, parameters=parameters), want, rtol=1e-5)


def test_concat_of_projections_puts_them_side_by_side() -> None:
    x = dense("x", 4)
    parts = [layer.identity_projection(x, offset=1, size=2), layer.identity_projection(x)]
    out = layer.concat(parts, bias_attr=attr.Param(name="b", initial_std=0, initial_mean=1))
    np.testing.assert_allclose(values(out, ROWS), np.concatenate([ROWS[:, 1:3], ROWS], axis=1) + 1)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_without_images(name: str) -> None:
    declare, want = LAYERS[name]
    x, y, w = dense("x", 4), dense("y", 4), dense("w", 1)
    out = declare(x, y, w)
    topology = [kind for kind, _ in Topology(out).data_type()]
    columns = {"x": ROWS, "y": OTHER, "w": WEIGHT}
    found = values(out, *[columns[kind] for kind in topology])
    if want.size:
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)
    assert found.shape[1] == (3 if name == "trans" else out.size)


def test_power_raises_positive_rows() -> None:
    out = layer.power(dense("x", 4), dense("w", 1))
    np.testing.assert_allclose(values(out, np.abs(ROWS), WEIGHT), np.abs(ROWS) ** WEIGHT, rtol=1e-5)


def test_multiplex_chooses_rows_and_max_id_columns() -> None:
    index, x, y = layer.data("i", data_type.integer_value(2)), dense("x", 4), dense("y", 4)
    out = layer.multiplex([index, x, y])
    np.testing.assert_allclose(values(out, [1, 0, 1], ROWS, OTHER), np.stack([OTHER[0], ROWS[1], OTHER[2]]))
    best = layer.max_id(x)
    assert best.size == x.size
    found = paddle.infer(best, paddle.parameters.create(best), [(row,) for row in ROWS], field=["id", "prob"])
    assert found[0].tolist() == [2, 3, 1]
    assert found[0].dtype == np.int32
    np.testing.assert_allclose(found[1], ROWS.max(axis=1, keepdims=True))


def test_a_table_behind_max_id_has_a_row_for_each_of_its_ids() -> None:
    out = layer.embedding(layer.max_id(dense("x", 4)), 3, param_attr=attr.Param(name="table"))
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_allclose(values(out, ROWS, parameters={"table": table}), table[[2, 3, 1]])
