# SPDX-License-Identifier: Apache-2.0
"""Growing tables in checkpoints: the same rows on any number of servers, entry counts and evictions included."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.inproc import InprocServers
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.options import EngineOptions
from paddle.pserver.sparse.spec import TableSpec

DENSE = ParameterSpec("w", (40, 3))
ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})
TABLE = ParameterSpec("ids", (1, 4), sparse=True, l2=1e-3)
TABLES = {
    "plain": TableSpec(TABLE),
    "entry and age": TableSpec(TABLE, entry=2, max_age=9),
}
IDS = np.random.default_rng(1).integers(-(2**62), 2**62, 300)
STEPS, PERIOD = 23, 4


class Job:
    """One trainer and servers with keepers."""

    def __init__(self, safety: Safety, table: TableSpec, servers: int) -> None:
        names = [f"d{i}" for i in range(servers)]
        keepers = [Safekeeper(safety) for _ in names]
        self.engines = [Engine(EngineOptions(1), i, keeper=keeper) for i, keeper in enumerate(keepers, 1)]
        for keeper, engine in zip(keepers, self.engines, strict=True):
            keeper.recover(engine)
        links = InprocServers(dict(zip(names, self.engines, strict=True))).connect(names)
        self.client = TrainerSession(links, 0, trainer_id=0, num_trainers=1)
        values = {"w": np.zeros((40, 3), np.float32)}
        self.client.configure([DENSE], ADAGRAD, values, tables=[table])
        self.client.start_pass()

    def train(self, first: int, last: int) -> None:
        for number in range(first, last):
            rng = np.random.default_rng(number)
            ids = np.unique(rng.choice(IDS, 30))
            rows = RowGradient(ids, rng.standard_normal((len(ids), 4)).astype(np.float32))
            w = rng.standard_normal((40, 3)).astype(np.float32)
            self.client.push_pull({"w": w, "ids": rows}, 4, {"w": np.empty_like(w)})
            if number % PERIOD != 1:  # now and then a step comes while a copy is under way
                deadline = time.monotonic() + 10
                while any(engine.background() < 1e9 for engine in self.engines):
                    assert time.monotonic() < deadline
                    time.sleep(0.001)

    def rows(self) -> np.ndarray:
        return self.client.pull_rows("ids", IDS)


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("case", TABLES)
def test_a_resumed_job_has_the_same_rows(case: str, servers: int, tmp_path: Path) -> None:
    table = TABLES[case]
    job = Job(Safety(checkpoints=tmp_path, period=PERIOD), table, 2)
    job.train(0, STEPS)
    expected = job.rows()
    job.client.close()
    again = Job(Safety(checkpoints=tmp_path, resume="latest"), table, servers)
    version = STEPS // PERIOD * PERIOD
    assert {engine.version for engine in again.engines} == {version}
    again.train(version, STEPS)
    assert np.array_equal(again.rows().view(np.uint32), expected.view(np.uint32))
    again.client.close()
