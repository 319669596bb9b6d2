# SPDX-License-Identifier: Apache-2.0
"""A job that goes on from a checkpoint ends with the bits of one that never stopped, on any number of servers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddle.optim.spec import OptimizerSpec
from paddle.pserver.recovery import Safety
from tests.runtime.pserver.durable.written_checkpoints import ADAGRAD, PERIOD, STEPS
from tests.runtime.pserver.in_process_job import Model
from tests.runtime.pserver.kept_job import DECAYED, MODEL, KeptJob, same_bits

MOMENTUM = Model({"w": (90, 50), "b": (64,), "table": (300, 8)}, sparse=["table"], momentum=0.9, l2=1e-3)


CASES = {
    "plain": (OptimizerSpec("momentum", learning_rate=0.1), MODEL),
    "adagrad": (ADAGRAD, DECAYED),
    "decayed_adagrad": (OptimizerSpec("decayed_adagrad", learning_rate=0.1), DECAYED),
    "sparse_momentum": (OptimizerSpec("sparse_momentum", learning_rate=0.01), MOMENTUM),
    "schedule": (
        OptimizerSpec("adagrad", learning_rate=0.1, schedule="poly", decay_a=0.01, decay_b=0.5), DECAYED
    ),
}  # fmt: skip


@pytest.mark.parametrize("servers", [(2, 0), (1, 0), (3, 0), (2, 2), (1, 3)])
@pytest.mark.parametrize("case", CASES)
def test_a_resumed_job_ends_with_the_same_bits(case: str, servers: tuple[int, int], tmp_path: Path) -> None:
    optimizer, model = CASES[case]
    job = KeptJob(Safety(checkpoints=tmp_path, period=PERIOD), optimizer, model)
    job.train(0, STEPS)
    expected = job.values()
    job.close()
    again = KeptJob(Safety(checkpoints=tmp_path, resume="latest"), optimizer, model, *servers)
    version = STEPS // PERIOD * PERIOD
    assert {engine.version for engine in again.engines} == {version}
    again.train(version, STEPS)
    assert same_bits(again.values(), expected)
    again.close()
