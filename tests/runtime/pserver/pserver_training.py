# SPDX-License-Identifier: Apache-2.0
"""A client of a server's process, and a few steps of training with it."""

from __future__ import annotations

import numpy as np

from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import SGD, Model
from tests.runtime.pserver.pserver_process import KEY, PserverProcess

MODEL = Model({"fc.w": (40, 50), "emb": (9, 2)}, sparse=["emb"])


def connect(
    server: PserverProcess, trainer: int = 0, num: int = 1, key: str | None = KEY, timeout_s: float = 20.0
) -> TrainerSession:
    return TrainerSession.connect(
        server.endpoints,
        server.sparse_endpoints,
        trainer_id=trainer,
        num_trainers=num,
        job_key=key,
        wire="curve" if key else "plain",
        timeout_s=timeout_s,
    )


def train(client: TrainerSession, trainer: int = 0, steps: int = 5) -> dict[str, np.ndarray]:
    out = MODEL.empty()
    client.configure(MODEL.parameters, SGD, MODEL.values() if trainer == 0 else {})
    client.start_pass()
    for step in range(steps):
        client.push_pull(MODEL.gradients(trainer, step), 1, {"fc.w": out["fc.w"]})
    client.finish_pass()
    client.pull(out)
    return out
