# SPDX-License-Identifier: Apache-2.0
"""Fluid's rules on rows: only touched rows move, and what they owe is paid when they are touched or caught up."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.rules.table import RULES
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient

HEIGHT, WIDTH, BATCHES, RATE = 9, 3, 80, 0.05
ROW_RULES = ["sgd", "fluid_adagrad", "lazy_adam"]


def batches() -> list[RowGradient]:
    rng = np.random.default_rng(8)
    found = []
    for _ in range(BATCHES):
        rows = np.flatnonzero(rng.random(HEIGHT) < 0.3).astype(np.int64)
        found.append(RowGradient(rows, rng.standard_normal((len(rows), WIDTH)).astype(np.float32)))
    return found


def by_hand(rule: str, table: np.ndarray, l2: float) -> np.ndarray:
    """Row after row in double precision; t counts all batches, whoever is touched."""
    h = RULES[rule].defaults()
    w = table.astype(np.float64)
    for row in range(HEIGHT):
        m = v = np.zeros(WIDTH)
        touched = 0
        for t, (rows, values) in enumerate(batches(), 1):
            if row not in rows:
                continue
            g = values[rows.tolist().index(row)].astype(np.float64)
            if rule == "sgd":
                w[row] -= RATE * g
            elif rule == "fluid_adagrad":
                v = v + g**2
                w[row] -= RATE * g / (np.sqrt(v) + h["epsilon"])
            else:
                m = h["beta1"] * m + (1 - h["beta1"]) * g
                v = h["beta2"] * v + (1 - h["beta2"]) * g**2
                rate = RATE * np.sqrt(1 - h["beta2"] ** t) / (1 - h["beta1"] ** t)
                w[row] -= rate * m / (np.sqrt(v) + h["epsilon"])
            w[row] /= 1 + RATE * l2 * (t - touched)
            touched = t
        w[row] /= 1 + RATE * l2 * (BATCHES - touched)
    return w


@pytest.mark.parametrize("l2", [0.0, 0.03])
@pytest.mark.parametrize("rule", ROW_RULES)
def test_rows_follow_the_rule_and_decay_for_the_batches_they_missed(rule: str, l2: float) -> None:
    table = np.random.default_rng(0).standard_normal((HEIGHT, WIDTH)).astype(np.float32)
    expected = by_hand(rule, table, l2)
    parameter = ParameterSpec("emb", (HEIGHT, WIDTH), l2=l2, sparse=True)
    updater = SparseUpdater.of(OptimizerSpec(rule), parameter, HEIGHT, WIDTH)
    for gradient in batches():
        updater.update(table, gradient, RATE)
    updater.catch_up(table, RATE)
    np.testing.assert_allclose(table, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    "rule",
    [
        "fluid_momentum",
        "lars_momentum",
        "fluid_decayed_adagrad",
        "fluid_adadelta",
        "fluid_rmsprop",
        "fluid_adam",
        "fluid_adamax",
        "ftrl",
        "lamb",
    ],
)
def test_a_rule_that_moves_untouched_rows_is_refused_for_sparse_parameters(rule: str) -> None:
    with pytest.raises(ConfigError, match=f"emb is sparse: {rule} cannot update single rows"):
        SparseUpdater.of(OptimizerSpec(rule), ParameterSpec("emb", (4, 2), sparse=True), 4, 2)
