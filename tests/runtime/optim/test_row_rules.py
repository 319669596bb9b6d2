# SPDX-License-Identifier: Apache-2.0
"""Rules that keep one number for a whole row, against their formula in float64."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.optim.dense import DenseUpdater
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient

HEIGHT = 7


@pytest.mark.parametrize("width", [1, 2, 33])
@pytest.mark.parametrize("start", [0.0, 0.3])
def test_row_adagrad_follows_its_formula_over_many_steps(width: int, start: float) -> None:
    rng = np.random.default_rng(width)
    optimizer = OptimizerSpec("row_adagrad", {"initial_accumulator_value": start, "epsilon": 1e-4})
    updater = SparseUpdater.of(optimizer, ParameterSpec("t", (HEIGHT, width), sparse=True), HEIGHT, width)
    assert updater.columns["s_row"].shape == (HEIGHT, 1)
    table = rng.standard_normal((HEIGHT, width)).astype(np.float32)
    w, s = table.astype(np.float64), np.full(HEIGHT, start)
    for t in range(20):
        rows = np.flatnonzero(rng.integers(0, 2, HEIGHT))
        grad = rng.standard_normal((len(rows), width)).astype(np.float32)
        updater.update(table, RowGradient(rows, grad), 0.5 / (1 + t))
        g = grad.astype(np.float64)
        s[rows] += (g**2).mean(axis=1)
        w[rows] -= 0.5 / (1 + t) * g / (np.sqrt(s[rows]) + 1e-4)[:, None]
    np.testing.assert_allclose(table, w, rtol=2e-4, atol=2e-5)


def test_a_dense_parameter_cannot_use_it() -> None:
    with pytest.raises(ConfigError, match="parameter b: row_adagrad stores one number per row"):
        DenseUpdater(OptimizerSpec("row_adagrad"), ParameterSpec("b", (3,)), 3)
