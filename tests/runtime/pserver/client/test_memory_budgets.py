# SPDX-License-Identifier: Apache-2.0
"""Tables with a memory budget, from a program of any framework: rows leave by score, and shows and clicks count."""

from __future__ import annotations

import numpy as np
import pytest

from paddle.errors import ConfigError
from paddle.pserver import SGD, Client, GrowingTable
from tests.runtime.pserver.neutral_job import run, server

WIDTH, ROW = 4, 4 * 5 + 21  # a row of four values and its score
CLICKED, SEEN = np.arange(10), np.arange(10, 40)


def train(each: Client, trainer: int) -> np.ndarray:
    table = GrowingTable(WIDTH, memory=30 * ROW, evict="score", decay=0.5, click=100.0)
    each.create({"emb": table, "plain": GrowingTable(WIDTH)}, SGD(lr=1.0))
    ids = np.concatenate((CLICKED, SEEN)) if trainer == 0 else CLICKED
    g = np.ones((len(ids), WIDTH), np.float32)
    each.push_pull({"emb": (ids, g, np.ones(len(ids)), ids < 10), "plain": (ids, g)}, {})
    batch = each.batch("emb", 1000 * (1 + trainer) + np.arange(12))
    batch.grad = np.ones((12, WIDTH), np.float32)
    batch.count(np.ones(12), np.zeros(12))
    each.push_pull({"emb": batch}, {})
    with pytest.raises(
        ConfigError, match=r"expected shows and clicks of shape \(12,\), like its ids, got \(3,\)"
    ):
        batch.count(np.ones(3), np.ones(3))
    with pytest.raises(ConfigError, match=r"expected \(12, 4\) float32, got \(12, 6\)"):
        each.push_pull({"plain": (batch.ids, batch.grad, np.ones(12), np.ones(12))}, {})
    return each.pull_rows("emb", np.concatenate((CLICKED, SEEN, 1000 + np.arange(12), 2000 + np.arange(12))))


def test_rows_that_were_clicked_stay() -> None:
    with server(2) as process:
        one, other = run(process, 2, train)
    np.testing.assert_array_equal(one, other)
    assert (one[:10] == -2.0).all()  # two trainers' gradients
    fresh = one[40:]
    assert (fresh != 0).any(axis=1).sum() > 10
    assert (one[10:40] != 0).any(axis=1).sum() < 20
