# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the server under `paddle.pserver.Client`: it is started again, and every push counts once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec, TensorOptions
from tests.beside import Outcomes, Scenarios
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.killed_pserver import PATIENCE_S, Killer, flags
from tests.runtime.pserver.neutral_job import run
from tests.runtime.pserver.own_servers import AT_ONCE, BESIDE_S, own_servers
from tests.runtime.pserver.pserver_process import PserverProcess

STEPS = 60
pytestmark = pytest.mark.timeout(BESIDE_S)

scenarios = Scenarios(own_servers, AT_ONCE)
outcomes = scenarios.fixture()

IDS = np.array([-7, 3, 2**40], np.int64)


def train(each: Client, trainer: int, step_done: Callable[[], None]) -> list[np.ndarray]:
    """Synchronous: a dense tensor, a table of known height and one that grows."""
    rng = np.random.default_rng(trainer)
    w, emb = np.ones((90, 30), np.float32), np.ones((20, 4), np.float32)
    users = GrowingTable(4, Initial("uniform", spread=1.0, seed=5))
    each.create(
        {"w": w, "emb": emb, "users": users},
        OptimizerSpec("lazy_adam", learning_rate=0.01),
        {"emb": TensorOptions(sparse=True)},
    )
    for step in range(STEPS):
        gradients: dict[str, Any] = {
            name: (ids, rng.standard_normal((len(ids), 4)).astype(np.float32))
            for name, ids in (("emb", rng.integers(0, 20, 6)), ("users", rng.integers(-9, 9, 6)))
        }
        dense = rng.standard_normal(w.shape).astype(np.float32)
        each.push_pull({"w": dense, **gradients}, {"w": w})
        if step % 20 == 19:
            each.barrier()
        step_done()
    each.pull({"emb": emb})
    return [w, emb, each.pull_rows("users", np.arange(-9, 9))]


def run_job(state: Path, seed: int | None) -> list[list[np.ndarray]]:
    state.mkdir()
    with PserverProcess(*flags(state, 2)) as process:
        if seed is None:
            return run(
                process, 2, lambda each, trainer: train(each, trainer, lambda: None), patience_s=PATIENCE_S
            )
        with Killer(process, seed, kills=2, steps=2 * STEPS) as killer:
            return run(
                process, 2, lambda each, trainer: train(each, trainer, killer.step), patience_s=PATIENCE_S
            )


@scenarios.add
def in_synchronous_training_values_are_bit_equal_to_those_of_a_quiet_run(folder: Path) -> None:
    quiet, killed = run_job(folder / "quiet", None), run_job(folder / "killed", 4)
    for mine, other in zip(quiet, killed, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(mine, other, strict=True))


@scenarios.add
def in_asynchronous_training_each_push_counts_exactly_once(folder: Path) -> None:
    pushes = 200

    def count(each: Client, trainer: int) -> tuple[float, float]:
        value = np.zeros(4, np.float32)
        each.create(
            {"w": value, "seen": GrowingTable(1)},
            OptimizerSpec("sgd", learning_rate=1.0, is_async=True, discard_ratio=1e6),
        )
        for _ in range(pushes):
            each.push({"w": np.full(4, -1.0, np.float32), "seen": (IDS, np.full((3, 1), -1.0, np.float32))})
            killer.step()
        each.barrier()
        each.pull({"w": value})
        return float(value[0]), float(each.pull_rows("seen", IDS)[1, 0])

    with PserverProcess(*flags(folder, 2)) as process, Killer(process, 6, 3, 2 * pushes) as killer:
        found = run(process, 2, count, patience_s=PATIENCE_S)
    assert found == [(2.0 * pushes, 2.0 * pushes)] * 2


@scenarios.add
def a_resumed_job_tells_its_trainers_where_it_goes_on(folder: Path) -> None:
    value = np.zeros(4, np.float32)

    def step(each: Client, trainer: int) -> None:
        each.create({"w": value}, OptimizerSpec("sgd", learning_rate=1.0))
        each.push({"w": np.full(4, -1.0, np.float32)})

    def begin(each: Client, trainer: int) -> None:
        step(each, trainer)
        assert each.resumed is None
        each.barrier()
        for _ in range(4):
            each.push({"w": np.full(4, -1.0, np.float32)})
        # 5 batches; an open job keeps its server from ending before the checkpoint is whole
        wait_for("the checkpoint", lambda: list(folder.glob("v*5*/part-*")), 20)

    def go_on(each: Client, trainer: int) -> float:
        step(each, trainer)
        assert each.resumed is not None
        assert (each.resumed.version, each.resumed.in_pass, each.barriers) == (5, 4, 1)
        each.pull({"w": value})
        return float(value[0])

    kept = (f"--checkpoint_dir={folder}", "--port=0", "--num_gradient_servers=1", "--state_dir=")
    with PserverProcess(*kept, "--checkpoint_period=5") as process:
        run(process, 1, begin)
    with PserverProcess(*kept, "--resume=latest") as process:
        assert run(process, 1, go_on) == [6.0]


@pytest.mark.parametrize("scenario", scenarios)
def test_beside_each_other(scenario: str, outcomes: Outcomes) -> None:
    outcomes.of(scenario)
