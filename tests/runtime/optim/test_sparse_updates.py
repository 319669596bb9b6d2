# SPDX-License-Identifier: Apache-2.0
"""Rows of sparse parameters against explicit loops over rows and batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.dense import DenseUpdater
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient

HEIGHT, WIDTH, BATCHES = 11, 3, 60
ROW_RULES = ["momentum", "adagrad", "decayed_adagrad", "adadelta", "rmsprop"]


def batches(seed: int, *, density: float = 0.3) -> list[RowGradient]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(BATCHES):
        rows = np.flatnonzero(rng.random(HEIGHT) < density).astype(np.int64)
        found.append(RowGradient(rows, rng.standard_normal((len(rows), WIDTH)).astype(np.float32)))
    return found


def start(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((HEIGHT, WIDTH)).astype(np.float32)


def spec(**more: Any) -> ParameterSpec:
    return ParameterSpec("emb", (HEIGHT, WIDTH), sparse=True, **more)


def one_row(
    rule: str, h: dict[str, float], s: dict[str, np.ndarray], g: np.ndarray, eta: float, k: int
) -> Any:
    """The step of one touched row in double precision; k batches passed since it was last touched."""
    first = not s
    zero = np.zeros_like(g)
    if rule == "momentum":
        return eta * g
    if rule == "adagrad":
        s["s"] = s.get("s", zero) + g**2
        return eta * g / np.sqrt(s["s"] + h["epsilon"])
    rho, eps = h["rho"], h["epsilon"]
    if rule == "adadelta":
        s["E"] = rho * s.get("E", zero) + (1 - rho) * g**2
        r = np.sqrt((s.get("D", zero) + eps) / (s["E"] + eps))
        s["D"] = rho * s.get("D", zero) + (1 - rho) * (g * r) ** 2
        return eta * r * g
    s["G"] = g**2 if first else rho**k * s["G"] + (1 - rho) * g**2
    s["F"] = rho**k * s.get("F", zero) + (1 - rho) * g
    variance = s["G"] - s["F"] ** 2 if rule == "rmsprop" else s["G"]
    return eta * g / np.sqrt(variance + eps)


def train_by_hand(
    optimizer: OptimizerSpec, parameter: ParameterSpec, table: np.ndarray, steps: list[RowGradient]
) -> np.ndarray:
    w = table.astype(np.float64)
    eta = optimizer.learning_rate * parameter.learning_rate
    for row in range(HEIGHT):
        state: dict[str, np.ndarray] = {}
        touched = 0
        for t, (rows, values) in enumerate(steps, 1):
            if row not in rows:
                continue
            g = values[rows.tolist().index(row)].astype(np.float64)
            g = np.clip(g, -parameter.clip, parameter.clip) if parameter.clip else g
            w[row] -= one_row(optimizer.rule, dict(optimizer.hyper), state, g, eta, t - touched)
            w[row] = shrunk(w[row], eta, parameter, t - touched)
            touched = t
        w[row] = shrunk(w[row], eta, parameter, len(steps) - touched)
    return w


def shrunk(w: np.ndarray, eta: float, parameter: ParameterSpec, k: int) -> np.ndarray:
    w = np.sign(w) * np.maximum(np.abs(w) - eta * parameter.l1 * k, 0)
    return w / (1 + eta * parameter.l2 * k)


@pytest.mark.parametrize(
    "more", [{}, {"l2": 0.02}, {"l1": 0.01}, {"l1": 0.01, "l2": 0.02, "learning_rate": 2.0}, {"clip": 0.5}]
)
@pytest.mark.parametrize("rule", ROW_RULES)
def test_rows_follow_the_rule_and_decay_for_the_batches_they_missed(
    rule: str, more: dict[str, float]
) -> None:
    optimizer, parameter = OptimizerSpec(rule, learning_rate=0.05), spec(**more)
    table = start()
    steps = batches(1)
    expected = train_by_hand(optimizer, parameter, table, steps)
    updater = SparseUpdater.of(optimizer, parameter, HEIGHT, WIDTH)
    for gradient in steps:
        updater.update(table, gradient, 0.05)
    updater.catch_up(table, 0.05)
    np.testing.assert_allclose(table, expected, rtol=1e-3, atol=1e-5)


def test_rows_touched_in_every_batch_learn_like_a_dense_parameter() -> None:
    optimizer, parameter = OptimizerSpec("adagrad"), spec()
    table, dense = start(), start().reshape(-1)
    sparse_updater = SparseUpdater.of(optimizer, parameter, HEIGHT, WIDTH)
    dense_updater = DenseUpdater(optimizer, ParameterSpec("w", dense.shape), dense.size)
    for gradient in batches(2, density=2.0):
        sparse_updater.update(table, gradient, 0.01)
        dense_updater.update(dense, gradient.values.reshape(-1), 0.01)
    assert np.array_equal(table.reshape(-1), dense)


def test_catching_up_twice_decays_once() -> None:
    table = start()
    updater = SparseUpdater.of(OptimizerSpec(), spec(l2=0.5), HEIGHT, WIDTH)
    for gradient in batches(3):
        updater.update(table, gradient, 0.1)
    updater.catch_up(table, 0.1)
    once = table.copy()
    updater.catch_up(table, 0.1)
    assert np.array_equal(table, once)


@pytest.mark.parametrize(
    ("rule", "more"),
    [("adagrad", {"l2": 0.5}), ("momentum", {"l1": 0.02, "l2": 0.1}), ("sparse_momentum", {"momentum": 0.9})],
)
def test_current_rows_are_those_of_catching_up_and_do_not_change_the_training(
    rule: str, more: dict[str, float]
) -> None:
    tables, read = [start(), start()], np.zeros(0)
    updaters = [SparseUpdater.of(OptimizerSpec(rule), spec(**more), HEIGHT, WIDTH) for _ in tables]
    for gradient in batches(3):
        for updater, table in zip(updaters, tables, strict=True):
            updater.update(table, gradient, 0.1)
        parts = [updaters[0].current(tables[0], 0.1, at, 4) for at in range(0, HEIGHT, 4)]
        read = np.concatenate(parts)
        assert np.array_equal(updaters[0].current(tables[0], 0.1), read)
    assert np.array_equal(tables[0], tables[1])
    assert not np.array_equal(read, tables[1])
    for updater, table in zip(updaters, tables, strict=True):
        updater.catch_up(table, 0.1)
        assert np.array_equal(table, read)
        assert np.array_equal(updater.current(table, 0.1), read)


def test_without_decay_untouched_rows_keep_their_bits() -> None:
    table = start()
    updater = SparseUpdater.of(OptimizerSpec("rmsprop"), spec(), HEIGHT, WIDTH)
    rows = np.array([2, 5], np.int64)
    updater.update(table, RowGradient(rows, np.ones((2, WIDTH), np.float32)), 0.1)
    updater.catch_up(table, 0.1)
    others = np.setdiff1d(np.arange(HEIGHT), rows)
    assert np.array_equal(table[others], start()[others])
    assert not np.array_equal(table[rows], start()[rows])


def test_sparse_momentum_equals_momentum_that_touches_every_row() -> None:
    mu, eta = 0.9, 0.05
    steps = batches(4) * 5  # long enough that the rows are folded back more than once
    w, m = start().astype(np.float64), np.zeros((HEIGHT, WIDTH))
    for rows, values in steps:
        g = np.zeros((HEIGHT, WIDTH))
        g[rows] = values
        m = mu * m - eta * g
        w += m
    table = start()
    updater = SparseUpdater.of(OptimizerSpec("sparse_momentum"), spec(momentum=mu), HEIGHT, WIDTH)
    for gradient in steps:
        updater.update(table, gradient, eta)
    updater.catch_up(table, eta)
    np.testing.assert_allclose(table, w, rtol=1e-4, atol=1e-5)


def test_sparse_momentum_with_decay_follows_its_recurrence() -> None:
    mu, eta, l2 = 0.8, 0.05, 0.1
    steps = batches(5)
    w = start().astype(np.float64)
    u, v, seen = np.zeros_like(w), w.copy(), np.zeros(HEIGHT, bool)
    alpha, beta, tau = 1.0, 1.0, -1.0
    for rows, values in steps:
        tau, alpha, beta = tau + beta / alpha, alpha / mu, beta / (1 + l2 * eta)
        for row, g in zip(rows, values.astype(np.float64), strict=True):
            seen[row] = True
            u[row] -= alpha * eta * g
            v[row] += tau * alpha * eta * g
        if alpha > 1e6:
            w[seen] = ((tau / beta + 1 / alpha) * u + v / beta)[seen]
            u, v = u / alpha, w.copy()
            alpha, beta, tau = 1.0, 1.0, -1.0
    w[seen] = ((tau / beta + 1 / alpha) * u + v / beta)[seen]
    table = start()
    updater = SparseUpdater.of(OptimizerSpec("sparse_momentum"), spec(momentum=mu, l2=l2), HEIGHT, WIDTH)
    for gradient in steps:
        updater.update(table, gradient, eta)
    updater.catch_up(table, eta)
    np.testing.assert_allclose(table, w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("rule", "more", "why"),
    [
        ("adam", {}, "adam cannot update single rows"),
        ("adamax", {}, "adamax cannot update single rows"),
        ("momentum", {"momentum": 0.9}, "momentum must be 0"),
        ("sparse_momentum", {}, "needs a momentum"),
        ("sparse_momentum", {"momentum": 1.0}, "between 0 and 1"),
    ],
)
def test_what_rows_cannot_do_is_refused_by_name(rule: str, more: dict[str, float], why: str) -> None:
    with pytest.raises(ConfigError, match=f"parameter emb.*{why}"):
        SparseUpdater.of(OptimizerSpec(rule), spec(**more), HEIGHT, WIDTH)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([-1, 2], "from 0 to 10, got -1"),
        ([2, 11], "from 0 to 10, got 11"),
        ([3, 3], "ascending row ids, got 3 before 3"),
        ([5, -(2**63)], "ascending"),
        ([4, 1], "ascending row ids, got 4 before 1"),
    ],
)
def test_wrong_rows_are_refused_and_change_nothing(rows: list[int], why: str) -> None:
    table = start()
    updater = SparseUpdater.of(OptimizerSpec(), spec(), HEIGHT, WIDTH)
    gradient = RowGradient(np.array(rows, np.int64), np.ones((len(rows), WIDTH), np.float32))
    with pytest.raises(ConfigError, match=why):
        updater.update(table, gradient, 0.1)
    assert np.array_equal(table, start())


def test_the_sum_of_steps_without_decay_is_what_plain_descent_adds_up_to() -> None:
    table = np.zeros((HEIGHT, WIDTH), np.float32)
    updater = SparseUpdater.of(OptimizerSpec(), spec(), HEIGHT, WIDTH)
    total = np.zeros((HEIGHT, WIDTH))
    for gradient in batches(6):
        updater.update(table, gradient, 0.5)
        total[gradient.rows] -= 0.5 * gradient.values.astype(np.float64)
    np.testing.assert_allclose(table, total, atol=1e-5)
    assert math.isfinite(float(table.sum()))
