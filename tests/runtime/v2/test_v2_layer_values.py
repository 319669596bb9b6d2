# SPDX-License-Identifier: Apache-2.0
"""What layers compute, against numpy, and their gradients against differences of the cost."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.errors import UsageError
from paddle.v2.gradient_machine import GradientMachine
from paddle.v2.layer.output import LayerOutput
from paddle.v2.topology import Topology

layer, attr, data_type, act = paddle.layer, paddle.attr, paddle.data_type, paddle.activation

ROWS = np.array([[0.5, -1.0, 2.0, 0.25], [1.5, 0.75, -0.5, 3.0], [-2.0, 1.0, 0.1, 0.4]], np.float32)
OTHER = np.array([[1.0, 2.0, -1.0, 0.5], [0.5, 0.5, 0.5, -2.0], [3.0, 0.1, -0.7, 1.2]], np.float32)
WEIGHT = np.array([[0.5], [2.0], [-1.5]], np.float32)


def dense(name: str, dim: int) -> LayerOutput:
    return layer.data(name, data_type.dense_vector(dim))


def values(
    out: LayerOutput, *columns: np.ndarray, parameters: dict[str, np.ndarray] | None = None
) -> np.ndarray:
    made = paddle.parameters.create(out)
    for name, value in (parameters or {}).items():
        made[name] = value
    found: np.ndarray = paddle.infer(out, made, list(zip(*columns, strict=True)))
    return found


def sigmoid(x: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-x)))


ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "Tanh": np.tanh,
    "Sigmoid": sigmoid,
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True),
    "Linear": lambda x: x,
    "Identity": lambda x: x,
    "Exp": np.exp,
    "Relu": lambda x: np.maximum(x, 0),
    "BRelu": lambda x: np.clip(x, 0, 24),
    "SoftRelu": lambda x: np.log1p(np.exp(x)),
    "STanh": lambda x: 1.7159 * np.tanh(2 * x / 3),
    "Abs": np.abs,
    "Square": np.square,
    "Reciprocal": lambda x: 1 / x,
    "SoftSign": lambda x: x / (1 + np.abs(x)),
}


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
    found = values(out, *zip(*batch, strict=True), parameters={"w": w})  # type: ignore[arg-type]
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
    np.testing.assert_allclose(values(out, sparse, parameters={"v": v}), want, rtol=1e-5)  # type: ignore[arg-type]


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
    np.testing.assert_allclose(values(out, picked, ROWS, parameters=parameters), want, rtol=1e-5)  # type: ignore[arg-type]


def test_concat_of_projections_puts_them_side_by_side() -> None:
    x = dense("x", 4)
    parts = [layer.identity_projection(x, offset=1, size=2), layer.identity_projection(x)]
    out = layer.concat(parts, bias_attr=attr.Param(name="b", initial_std=0, initial_mean=1))
    np.testing.assert_allclose(values(out, ROWS), np.concatenate([ROWS[:, 1:3], ROWS], axis=1) + 1)


def cosine(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray((a * b).sum(-1) / np.linalg.norm(a, axis=-1) / np.linalg.norm(b, axis=-1))


LAYERS: dict[str, tuple[Callable[[LayerOutput, LayerOutput, LayerOutput], LayerOutput], np.ndarray]] = {
    "addto": (lambda x, y, w: layer.addto([x, y]), ROWS + OTHER),
    "concat": (lambda x, y, w: layer.concat([x, y]), np.concatenate([ROWS, OTHER], axis=1)),
    "cos_sim": (lambda x, y, w: layer.cos_sim(x, y, scale=5), 5 * cosine(ROWS, OTHER)[:, None]),
    "cos_sim of parts": (
        lambda x, y, w: layer.cos_sim(x, layer.concat([y, x]), size=2),
        np.stack([cosine(ROWS, OTHER), np.ones(3)], axis=1),
    ),
    "dot_prod": (lambda x, y, w: layer.dot_prod(x, y), (ROWS * OTHER).sum(axis=1, keepdims=True)),
    "out_prod": (lambda x, y, w: layer.out_prod(x, y), np.einsum("ni,nj->nij", ROWS, OTHER).reshape(3, 16)),
    "l2_distance": (
        lambda x, y, w: layer.l2_distance(x, y),
        np.linalg.norm(ROWS - OTHER, axis=1, keepdims=True),
    ),
    "scaling": (lambda x, y, w: layer.scaling(x, w), ROWS * WEIGHT),
    "interpolation": (lambda x, y, w: layer.interpolation([x, y], w), WEIGHT * ROWS + (1 - WEIGHT) * OTHER),
    "slope_intercept": (lambda x, y, w: layer.slope_intercept(x, slope=2, intercept=-1), 2 * ROWS - 1),
    "scale_shift": (
        lambda x, y, w: layer.scale_shift(x, None, attr.Param(initial_mean=3, initial_std=0)),
        3 * ROWS,
    ),
    "prelu": (lambda x, y, w: layer.prelu(x, partial_sum=2), np.where(ROWS > 0, ROWS, 0.25 * ROWS)),
    "clip": (lambda x, y, w: layer.clip(x, -0.6, 0.6), np.clip(ROWS, -0.6, 0.6)),
    "sum_to_one_norm": (lambda x, y, w: layer.sum_to_one_norm(x), ROWS / ROWS.sum(axis=1, keepdims=True)),
    "row_l2_norm": (lambda x, y, w: layer.row_l2_norm(x), ROWS / np.linalg.norm(ROWS, axis=1, keepdims=True)),
    "trans": (lambda x, y, w: layer.trans(x), ROWS.T),
    "resize": (lambda x, y, w: layer.resize(x, 2), ROWS.reshape(6, 2)),
    "repeat rows": (lambda x, y, w: layer.repeat(x, 2), np.tile(ROWS, 2)),
    "repeat columns": (lambda x, y, w: layer.repeat(x, 2, as_row_vector=False), np.repeat(ROWS, 2, axis=1)),
    "linear_comb": (
        lambda x, y, w: layer.linear_comb(x, layer.concat([y, x])),
        np.einsum("nm,nms->ns", ROWS, np.concatenate([OTHER, ROWS], axis=1).reshape(3, 4, 2)),
    ),
    "gated_unit": (
        lambda x, y, w: layer.dot_prod(layer.gated_unit(x, 5), layer.gated_unit(x, 5)),
        np.empty(0),
    ),
    "x + 2": (lambda x, y, w: x + 2, ROWS + 2),
    "2 - x": (lambda x, y, w: 2 - x, 2 - ROWS),
    "x - 2": (lambda x, y, w: x - 2, ROWS - 2),
    "x - y": (lambda x, y, w: x - y, ROWS - OTHER),
    "x * 3": (lambda x, y, w: x * 3, ROWS * 3),
    "x * w": (lambda x, y, w: x * w, ROWS * WEIGHT),
    "x + w": (lambda x, y, w: x + w, ROWS + WEIGHT),
    "-x": (lambda x, y, w: -x, -ROWS),
    "op.square": (lambda x, y, w: paddle.op.square(x), ROWS**2),
    "op.softmax": (lambda x, y, w: paddle.op.softmax(x), ACTIVATIONS["Softmax"](ROWS)),
}


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
    np.testing.assert_allclose(values(out, [1, 0, 1], ROWS, OTHER), np.stack([OTHER[0], ROWS[1], OTHER[2]]))  # type: ignore[arg-type]
    best = layer.max_id(x)
    found = paddle.infer(best, paddle.parameters.create(best), [(row,) for row in ROWS], field=["id", "prob"])
    assert found[0].tolist() == [2, 3, 1]
    assert found[0].dtype == np.int32
    np.testing.assert_allclose(found[1], ROWS.max(axis=1, keepdims=True))


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
    np.testing.assert_allclose(values(declare(), *columns), want, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]


def test_probabilities_next_to_their_cost_are_the_softmax() -> None:
    probabilities = layer.addto(dense("x", 4), act.Softmax(), name="p")
    cost = layer.classification_cost(probabilities, ids4())
    machine = GradientMachine(Topology(cost).network, paddle.parameters.create(cost), [cost.name])
    step = machine.test({"x": ROWS, "ids": np.array([IDS]).T}, ["p"])
    np.testing.assert_allclose(step.values["p"], P, rtol=1e-5)
    assert step.cost == pytest.approx(softmax_cost(P, IDS).sum(), rel=1e-5)


IMAGE = np.random.default_rng(3).normal(size=(2, 3, 5, 4)).astype(np.float32)


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
    pool: paddle.pooling.BasePool | None, reduce: Callable[..., np.ndarray]
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


GRADIENT_OF = [name for name in LAYERS if name not in ("trans",)]


@pytest.mark.parametrize("name", GRADIENT_OF)
def test_gradients_agree_with_differences_of_the_cost(name: str) -> None:
    source = dense("source", 3)
    x, y = (layer.fc(source, 4, act.Tanh(), name=f"in{i}") for i in range(2))
    w = layer.fc(source, 1, act.Sigmoid(), name="inw")
    out = LAYERS[name][0](x, y, w)
    check_gradients(layer.sum_cost(layer.fc(out, 1, act.Tanh(), name="end")))


IMAGE_LAYERS: dict[str, Callable[[LayerOutput], LayerOutput]] = {
    "img_conv": lambda image: layer.img_conv(image, 3, 2, padding=1, act=act.Tanh()),
    "img_pool": lambda image: layer.img_pool(image, 2, stride=2, pool_type=paddle.pooling.Avg()),
    "img_cmrnorm": lambda image: layer.img_cmrnorm(image, 3),
    "maxout": lambda image: layer.maxout(image, 2),
    "pad": lambda image: layer.pad(image, pad_h=(1, 1)),
    "crop": lambda image: layer.crop(image, [1, 1], axis=2, shape=[0, 4, 2, 2]),
    "concat": lambda image: layer.concat([image, image]),
}


@pytest.mark.parametrize("name", IMAGE_LAYERS)
def test_gradients_of_image_layers_agree_with_differences(name: str) -> None:
    source = dense("source", 3)
    pixels = layer.fc(source, 36, act.Tanh(), name="pixels")
    image = layer.img_conv(pixels, 1, 4, num_channels=4, name="image", act=act.Linear())
    check_gradients(layer.sum_cost(layer.fc(IMAGE_LAYERS[name](image), 1, act.Tanh(), name="end")))


def check_gradients(cost: LayerOutput) -> None:
    parameters = paddle.parameters.create(cost)
    machine = GradientMachine(Topology(cost).network, parameters, [cost.name])
    feed = {"source": np.random.default_rng(2).normal(size=(5, 3)).astype(np.float32)}
    step = machine.train(feed, 0)
    rng = np.random.default_rng(7)
    for name, gradient in step.gradients.items():
        assert isinstance(gradient, np.ndarray)
        direction = rng.normal(size=gradient.shape).astype(np.float32)
        value, epsilon = machine.flat(name), 5e-4
        start = value.copy()
        costs = []
        for sign in (1, -1):
            value[...] = start + sign * epsilon * direction
            costs.append(machine.test(feed).cost)
        value[...] = start
        slope = (costs[0] - costs[1]) / (2 * epsilon)
        assert slope == pytest.approx(
            float(gradient @ direction), rel=0.03, abs=5e-3 * math.sqrt(direction.size)
        ), name


def test_sparse_vectors_are_refused_where_numbers_are_needed() -> None:
    out = layer.addto(layer.data("s", data_type.sparse_binary_vector(9)))
    with pytest.raises(UsageError, match="cannot take 's'"):
        paddle.infer(out, paddle.parameters.create(out), [([1],)])


def test_infer_stacks_outputs_and_gives_fields_in_order() -> None:
    x = dense("x", 4)
    a, b, c = layer.addto(x), x * 2, layer.fc(x, 3)
    parameters = paddle.parameters.create([a, b, c])
    samples = [(row,) for row in ROWS]
    np.testing.assert_allclose(paddle.infer([a, b], parameters, samples), np.concatenate([ROWS, 2 * ROWS]))
    assert paddle.infer(a, parameters, []) == []
    with pytest.raises(TypeError, match="list or tuple of samples, got generator"):
        paddle.infer(a, parameters, (sample for sample in samples))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="differ in width"):
        paddle.infer([a, c], parameters, samples)
    inference = paddle.inference.Inference(parameters, [a, c])
    kept = inference.infer(samples, flatten_result=False)
    assert [array.shape for array in kept] == [(3, 4), (3, 3)]
    with pytest.raises(ValueError, match="no field 'id'"):
        paddle.infer(a, parameters, samples, field="id")
    with pytest.raises(ValueError, match="lack"):
        paddle.infer(c, paddle.parameters.create(a), samples)
    with pytest.raises(ValueError, match="output_layer or fileobj"):
        paddle.inference.Inference(parameters)
