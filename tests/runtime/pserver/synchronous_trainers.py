# SPDX-License-Identifier: Apache-2.0
"""A trainer of a synchronous job, whose model and gradients only the seed decides."""

from __future__ import annotations

import numpy as np

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.client.session import TrainerSession
from tests.runtime.pserver.in_process_job import Model

MODEL = Model({"_fc0.w0": (60, 50), "_fc0.wbias": (1, 50), "_fc1.w0": (7,)}, l2=1e-3, clip=2.0)


STEPS = 8


def train(
    client: TrainerSession, trainer: int, optimizer: OptimizerSpec, steps: int = STEPS
) -> dict[str, np.ndarray]:
    out = MODEL.empty()
    client.configure(MODEL.parameters, optimizer, MODEL.values() if trainer == 0 else {})
    client.pull(out)
    client.start_pass()
    for step in range(steps):
        client.push_pull(MODEL.gradients(trainer, step), 10 + trainer, out)
    client.finish_pass()
    client.pull(out)
    return out
