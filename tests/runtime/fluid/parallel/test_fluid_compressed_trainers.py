# SPDX-License-Identifier: Apache-2.0
"""Trainers that send parts of gradients: with nothing left out they follow one process; they end with equal bits."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import paddle.fluid as fluid
from tests.runtime.collective.ranks import endpoints
from tests.runtime.fluid.parallel.test_fluid_nccl2 import trainers

SCRIPT = """
import hashlib, json, os, sys
import numpy as np
import paddle.fluid as fluid

rank, everyone, shares = int(sys.argv[1]), os.environ["PADDLE_TRAINER_ENDPOINTS"], json.loads(sys.argv[2])
count = len(everyone.split(","))
x, y = fluid.layers.data("x", [64]), fluid.layers.data("y", [1], dtype="int64")
hidden = fluid.layers.fc(x, 256, act="relu")
loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 3, act="softmax"), y))
rate = 0.05
optimizer = fluid.optimizer.DGCMomentumOptimizer(rate, 0.9, 0, 1, shares) if shares else fluid.optimizer.SGD(rate)
for each in fluid.default_main_program().global_block().all_parameters():
    if np.prod(each.shape) < 16384:  # would have momentum
        each.trainable, each.stop_gradient = False, True
optimizer.minimize(loss)
fluid.default_startup_program().random_seed = 5
exe = fluid.Executor(fluid.CPUPlace())
runner = fluid.CompiledProgram(fluid.default_main_program())
if count > 1:
    config = fluid.DistributeTranspilerConfig(mode="nccl2")
    fluid.DistributeTranspiler(config).transpile(rank, trainers=everyone, current_endpoint=everyone.split(",")[rank])
    runner.with_data_parallel(loss.name, num_trainers=count, trainer_id=rank)
exe.run(fluid.default_startup_program())
losses = []
for step in range(6):
    rng = np.random.default_rng(step)
    xs, ys = rng.standard_normal((8, 64)).astype("float32"), rng.integers(0, 3, (8, 1))
    part = slice(rank * 8 // count, (rank + 1) * 8 // count)
    losses.append(float(np.mean(exe.run(runner, {"x": xs[part], "y": ys[part]}, [loss.name])[0])))
bits = np.array(fluid.global_scope().get("fc_0.w_0")).tobytes()
print(json.dumps([losses, hashlib.sha256(bits).hexdigest()]))
"""


def run(count: int, shares: list[float]) -> list[Any]:
    ended = trainers(["-c", SCRIPT, "RANK", json.dumps(shares)], endpoints(count))
    assert [each.returncode for each in ended] == [0] * count, ended[0].stderr
    return [json.loads(each.stdout) for each in ended]


def test_nothing_left_out_is_one_process_and_much_left_out_ends_with_equal_bits() -> None:
    ((alone, _),) = run(1, [])
    whole = run(2, [0.0])
    np.testing.assert_allclose(np.mean([losses for losses, _ in whole], axis=0), alone, rtol=1e-5)
    parted = run(2, [0.99])
    assert parted[0][1] == parted[1][1] != whole[0][1]
    np.testing.assert_allclose(parted[0][0][0] + parted[1][0][0], 2 * alone[0], rtol=1e-5)


def test_parameter_servers_refuse_gradients_in_parts() -> None:
    x = fluid.layers.data("x", [64])
    loss = fluid.layers.mean(fluid.layers.fc(x, 512))
    fluid.optimizer.DGCMomentumOptimizer(0.1, 0.9, 0).minimize(loss)
    t = fluid.DistributeTranspiler()
    with pytest.raises(ValueError, match=r"DGCMomentumOptimizer trains without servers: .* mode='nccl2'"):
        t.transpile(0, pservers="127.0.0.1:6174", trainers=1)
