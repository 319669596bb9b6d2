# SPDX-License-Identifier: Apache-2.0
"""A folder of checkpoints that a job wrote, and how often it wrote them."""

from __future__ import annotations

from pathlib import Path

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.kept_job import DECAYED, KeptJob

STEPS, PERIOD = 22, 5


ADAGRAD = OptimizerSpec("adagrad", learning_rate=0.1, hyper={"epsilon": 1e-6})


def written(tmp_path: Path, steps: int = 17) -> None:
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), ADAGRAD, DECAYED)
    job.train(0, steps)
    job.close()
