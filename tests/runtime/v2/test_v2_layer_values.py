# SPDX-License-Identifier: Apache-2.0
"""Values of activations and of layers without images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import paddle.v2 as paddle
from paddle.v2.topology import Topology
from tests.runtime.v2.layer_cases import (
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
    values,
)


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
