# SPDX-License-Identifier: Apache-2.0
"""What servers keep is saved by trainer 0 under the names of one machine, and loaded from there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from tests.ports import free_endpoints
from tests.runtime.fluid.transpiled_job import Feed, TranspiledJob, built, halves, one_process

PREDICTION = "fc_0.tmp_1"


def net() -> Any:
    ids = fluid.layers.data("ids", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [2100, 8], is_sparse=True, param_attr="table")
    guess = fluid.layers.fc(rows, 1, param_attr="w", bias_attr="b")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, fluid.layers.data("y", [1])))
    fluid.optimizer.Adam(fluid.layers.exponential_decay(0.01, 2, 0.5)).minimize(loss)
    return loss


def feeds(count: int) -> list[Feed]:
    rng = np.random.default_rng(7)
    return [
        {"ids": rng.integers(0, 2100, (8, 1)), "y": rng.standard_normal((8, 1)).astype("float32")}
        for _ in range(count)
    ]


@pytest.fixture
def trained(tmp_path: Path) -> tuple[list[float], TranspiledJob]:
    """Two trainers that saved after 3 of 6 steps; what one machine loses in all 6."""
    expected, first = one_process(net, feeds(6))
    job = TranspiledJob(net, first=first)

    def train(rank: int) -> None:
        _, main, startup, _ = job.transpiled(rank)
        exe = fluid.Executor(fluid.CPUPlace())
        with fluid.scope_guard(fluid.Scope()):
            exe.run(startup)
            for feed in feeds(3):
                exe.run(main, halves(feed, rank, 2))
            fluid.io.save_persistables(exe, tmp_path / f"trainer{rank}", main)
            if rank == 0:
                fluid.io.save_inference_model(
                    tmp_path / "model", ["ids"], [main.global_block().var(PREDICTION)], exe, main
                )
        exe.close()

    job.run(train)
    return expected, job


def test_one_machine_goes_on_from_what_trainer_0_saved(
    trained: tuple[list[float], TranspiledJob], tmp_path: Path
) -> None:
    expected, _ = trained
    main, startup, loss = built(net)
    exe = fluid.Executor(fluid.CPUPlace())
    with fluid.scope_guard(fluid.Scope()):
        exe.run(startup)
        fluid.io.load_persistables(exe, tmp_path / "trainer0", main)
        losses = [float(exe.run(main, feed, [loss])[0][0]) for feed in feeds(6)[3:]]
    np.testing.assert_allclose(losses, expected[3:], rtol=1e-5)
    assert not (tmp_path / "trainer1" / "table").exists()


def test_other_servers_go_on_from_what_trainer_0_saved(
    trained: tuple[list[float], TranspiledJob], tmp_path: Path
) -> None:
    expected, _ = trained

    class Resumed(TranspiledJob):
        def serve(self, endpoint: str) -> None:
            t = self.transpiled(0)[0]
            main, startup = t.get_pserver_programs(endpoint)
            exe = fluid.Executor(fluid.CPUPlace())
            with fluid.scope_guard(fluid.Scope()):
                exe.run(startup)
                fluid.io.load_persistables(exe, tmp_path / "trainer0", main)
                exe.run(main)

    job = Resumed(net, servers=1, endpoints=free_endpoints(1))
    losses = job.run(lambda rank: job.train(rank, [halves(feed, rank, 2) for feed in feeds(6)[3:]]))
    np.testing.assert_allclose(np.mean(losses, axis=0), expected[3:], rtol=1e-5)


def test_a_model_for_inference_has_the_servers_rows(
    trained: tuple[list[float], TranspiledJob], tmp_path: Path
) -> None:
    exe = fluid.Executor(fluid.CPUPlace())
    ids = np.arange(2100)[:, None]
    with fluid.scope_guard(fluid.Scope()):
        program, names, targets = fluid.io.load_inference_model(tmp_path / "model", exe)
        (guessed,) = exe.run(program, {names[0]: ids}, targets)
        assert "distributed_lookup_table" not in [op.type for op in program.global_block().ops]
    main, _, _ = built(net)
    with fluid.scope_guard(fluid.Scope()):
        fluid.io.load_persistables(exe, tmp_path / "trainer0", main)
        scope = fluid.global_scope()
        expected = np.array(scope.get("table")) @ np.array(scope.get("w")) + np.array(scope.get("b"))
    np.testing.assert_allclose(guessed, expected, rtol=1e-5)
