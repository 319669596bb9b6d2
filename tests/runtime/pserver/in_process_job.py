# SPDX-License-Identifier: Apache-2.0
"""A job inside the test process: engines without sockets, one thread for each trainer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.client.session import TrainerSession
from paddle.pserver.server.engine import Engine
from paddle.pserver.server.service import EngineOptions
from paddle.pserver.wire.message import CHUNK
from tests.runtime.pserver.inproc import InprocServers

DEADLINE_S = 60.0


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class InProcessJob:
    """Servers `d0..` for dense and `s0..` for sparse parameters, and clients that reach them.

    Each is a machine of its own, unless `host`, such as "127.0.0.1:", begins the endpoints of all.
    """

    def __init__(
        self, num_trainers: int, num_dense: int = 2, num_sparse: int = 0, host: str = "", **options: Any
    ) -> None:
        self.num_trainers, self.num_sparse = num_trainers, num_sparse
        names = [f"d{i}" for i in range(num_dense)] + [f"s{i}" for i in range(num_sparse)]
        self.endpoints = [host + name for name in names]
        self.clock = Clock()
        engine_options = EngineOptions(num_trainers, **options)
        self.servers = InprocServers(
            {name: Engine(engine_options, stamp, self.clock) for stamp, name in enumerate(self.endpoints, 1)}
        )

    def client(self, trainer_id: int, timeout_s: float = DEADLINE_S) -> TrainerSession:
        return TrainerSession(
            self.servers.connect(self.endpoints),
            self.num_sparse,
            trainer_id=trainer_id,
            num_trainers=self.num_trainers,
            timeout_s=timeout_s,
        )

    def run(
        self, trainer: Callable[[TrainerSession, int], Any], trainers: Sequence[int] | None = None
    ) -> list[Any]:
        """Run `trainer(client, trainer_id)` in a thread for each trainer; return results or raise the first error."""
        ids = range(self.num_trainers) if trainers is None else trainers
        results: dict[int, Any] = {}
        errors: dict[int, BaseException] = {}

        def work(trainer_id: int) -> None:
            try:
                with self.client(trainer_id) as client:
                    results[trainer_id] = trainer(client, trainer_id)
            except Exception as error:  # noqa: BLE001 - raised again below, in the test's thread
                errors[trainer_id] = error

        threads = [threading.Thread(target=work, args=(i,), name=f"trainer-{i}", daemon=True) for i in ids]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        hanging = [thread.name for thread in threads if thread.is_alive()]
        assert not hanging, f"still waiting after {DEADLINE_S} s: {hanging}; errors of others: {errors}"
        if errors:
            raise errors[min(errors)]
        return [results[i] for i in ids]


class Model:
    """Parameters with values and gradients that only the seed decides."""

    def __init__(self, shapes: dict[str, tuple[int, ...]], sparse: Sequence[str] = (), **more: Any) -> None:
        self.parameters = [
            ParameterSpec(name, shape, sparse=name in sparse, **more) for name, shape in shapes.items()
        ]

    def values(self, seed: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        return {p.name: _drawn(rng, p.shape) for p in self.parameters}

    def gradients(self, *key: int) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(key)
        return {p.name: _drawn(rng, p.shape) for p in self.parameters if not p.sparse}

    def empty(self) -> dict[str, np.ndarray]:
        return {p.name: np.zeros(p.shape, np.float32) for p in self.parameters}


def _drawn(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers between -2 and 2; normal ones take five times as long, more than all else in jobs of several chunks."""
    return rng.random(shape, np.float32) * 4 - 2


SGD = OptimizerSpec("momentum", learning_rate=0.1)

LARGE = Model({"a": (2 * CHUNK + 7,), "b": (31,), "c": (CHUNK,), "d": (5, 3)})
"""Parameters that take several chunks, some of them together."""

SMALL = Model({"fc.w": (40, 50), "fc.b": (50,), "emb": (20, 3)}, sparse=["emb"])
LOOKED_AT = Model({"w": (70, 40), "b": (7,), "emb": (30, 3)}, sparse=["emb"], l2=0.01)
"""The model of the jobs that readers look at."""


def bad(shape: tuple[int, ...], value: float) -> np.ndarray:
    """A gradient that is wrong in its last element alone."""
    array = np.zeros(shape, np.float32)
    array.reshape(-1)[-1] = value
    return array
