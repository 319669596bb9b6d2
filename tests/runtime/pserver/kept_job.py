# SPDX-License-Identifier: Apache-2.0
"""A job inside the test process whose servers write checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.recovery import Safekeeper, Safety
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.inproc import InprocServers

BACKGROUND_S = 60.0
SPARSE_ROWS = 300
MODEL = Model({"w": (90, 50), "b": (64,), "table": (SPARSE_ROWS, 8)}, sparse=["table"])
DECAYED = Model({"w": (90, 50), "b": (64,), "table": (SPARSE_ROWS, 8)}, sparse=["table"], l2=1e-3)


class KeptJob:
    """One trainer, and servers with keepers; `step` is synchronous with everything that goes on behind."""

    def __init__(
        self,
        safety: Safety,
        optimizer: OptimizerSpec,
        model: Model = MODEL,
        num_dense: int = 2,
        num_sparse: int = 0,
        clock: Callable[[], float] = time.monotonic,
        host: str = "",
    ) -> None:
        """Start; `host`, such as "127.0.0.1:", puts all servers on one machine."""
        names = [f"d{i}" for i in range(num_dense)] + [f"s{i}" for i in range(num_sparse)]
        self.keepers = [
            Safekeeper(safety if safety.state is None else replace(safety, state=safety.state / name), clock)
            for name in names
        ]
        self.engines = [
            Engine(EngineOptions(1), stamp, keeper=keeper) for stamp, keeper in enumerate(self.keepers, 1)
        ]
        for keeper, engine in zip(self.keepers, self.engines, strict=True):
            keeper.recover(engine)
        endpoints = [host + name for name in names]
        servers = InprocServers(dict(zip(endpoints, self.engines, strict=True)))
        self.model = model
        self.client = TrainerSession(servers.connect(endpoints), num_sparse, trainer_id=0, num_trainers=1)
        self.client.configure(model.parameters, optimizer, model.values(3))
        self.client.start_pass()
        self._out = {name: array for name, array in model.empty().items() if name != "table"}

    @staticmethod
    def revived(safety: Safety, num_dense: int) -> list[Engine]:
        """Engines as the next process of the servers would have them."""
        engines = []
        for stamp, name in enumerate((f"d{i}" for i in range(num_dense)), 1):
            assert safety.state is not None
            keeper = Safekeeper(replace(safety, state=safety.state / name))
            engine = Engine(EngineOptions(1), stamp, keeper=keeper)
            keeper.recover(engine)
            engines.append(engine)
        return engines

    def step(self, number: int) -> None:
        rng = np.random.default_rng(number)
        rows = np.unique(rng.integers(0, SPARSE_ROWS, 20))
        values = rng.standard_normal((len(rows), 8)).astype(np.float32)
        gradients: dict[str, Any] = {**self.model.gradients(number), "table": RowGradient(rows, values)}
        self.client.push_pull(gradients, 4, self._out)

    def train(self, first: int, last: int) -> None:
        """Steps first .. last-1, each checkpoint finished before the next step."""
        for number in range(first, last):
            self.step(number)
            self.finish_background()

    def finish_background(self) -> None:
        deadline = time.monotonic() + BACKGROUND_S
        while any(engine.background() < 1e9 for engine in self.engines):
            assert time.monotonic() < deadline, "the background does not end"
            time.sleep(0.001)

    def values(self) -> dict[str, np.ndarray]:
        found = self.model.empty()
        self.client.pull(found)
        return found

    def close(self) -> None:
        self.client.close()
        for keeper in self.keepers:
            keeper.close()


def same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return all(np.array_equal(one[name].view(np.uint32), other[name].view(np.uint32)) for name in one)
