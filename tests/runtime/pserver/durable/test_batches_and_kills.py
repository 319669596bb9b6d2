# SPDX-License-Identifier: Apache-2.0
"""kill -9 of a server while rows come with answers to pushes, a table is shrunk, and tensors have own optimizers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paddle.pserver import (
    Adagrad,
    Client,
    GrowingTable,
    Initial,
    OptimizerSpec,
    RowWiseAdagrad,
    TensorOptions,
)
from tests.runtime.pserver.killed_pserver import Killer, flags
from tests.runtime.pserver.neutral_job import run
from tests.runtime.pserver.pserver_process import PserverProcess

pytestmark = pytest.mark.timeout(180)

TRAINERS, STEPS, WIDTH, KILLS = 2, 30, 8, 3
IDS = np.random.default_rng(1).zipf(1.2, (TRAINERS, STEPS + 1, 200)) % 2000


def train(each: Client, trainer: int, step: Callable[[], None]) -> dict[str, np.ndarray]:
    values = {"w": np.ones((300, 5), np.float32), "emb": np.ones((2000, WIDTH), np.float32)}
    initial, rule = Initial("normal", spread=0.5), RowWiseAdagrad(lr=0.2)
    grown = GrowingTable(WIDTH, initial, entry=2, evict="lfu", optimizer=rule)
    own = {"emb": TensorOptions(sparse=True, optimizer=Adagrad(lr=0.1))}
    each.create({**values, "grown": grown}, OptimizerSpec("fluid_adam"), own)
    dense = {"w": values["w"]}
    batches = each.batch(dict.fromkeys(("emb", "grown"), IDS[trainer, 0]))
    for at in range(STEPS):
        rng = np.random.default_rng((trainer, at))
        for batch in batches.values():
            found = batch.rows[
                batch.inverse
            ]  # a trainer that was given other rows changes the end of the job
            drawn = rng.standard_normal(found.shape).astype(np.float32)
            batch.grad = batch.total(drawn + np.float32(0.1) * found)
        following = each.batch(dict.fromkeys(batches, IDS[trainer, at + 1]))
        of_w = rng.standard_normal(dense["w"].shape).astype(np.float32) + dense["w"]
        each.push_pull({**batches, "w": of_w}, dense, ahead=following)
        batches = following
        if at % 8 == 7:
            each.shrink("grown", min_score=at / 8)
        step()
    each.barrier()
    each.pull(values)
    return {**values, "grown": each.pull_rows("grown", np.arange(2000))}


def job(state: Path, seed: int | None) -> list[dict[str, np.ndarray]]:
    state.mkdir()
    with PserverProcess(*flags(state, TRAINERS, "--ports_num_for_sparse=1")) as process:
        if seed is None:
            return run(process, TRAINERS, lambda each, i: train(each, i, lambda: None), patience_s=60.0)
        with Killer(process, seed, KILLS, TRAINERS * STEPS) as killer:
            return run(process, TRAINERS, lambda each, i: train(each, i, killer.step), patience_s=60.0)


def test_a_job_by_batches_ends_with_the_same_bits_whenever_its_server_is_killed(tmp_path: Path) -> None:
    undisturbed = job(tmp_path / "undisturbed", None)
    for found in job(tmp_path / "killed", 3):
        for name, expected in undisturbed[0].items():
            np.testing.assert_array_equal(found[name].view(np.uint32), expected.view(np.uint32), err_msg=name)
