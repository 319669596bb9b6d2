# SPDX-License-Identifier: Apache-2.0
"""A script for both roles whose environment says how parameters are cut, placed and trained; prints each loss.

SYNC and SLICED are 0 or 1, METHOD is RoundRobin or HashName, WIDTH that of the dense layer, STEPS the number of steps.
With FAILS=1 the dense layer's first values have another size: who gives them to it ends by an error.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import numpy as np

import paddle.fluid as fluid
from paddle.fluid.transpiler import DistributeTranspilerConfig, HashName, RoundRobin

IN, WORDS = 128, 3000
METHODS = {"RoundRobin": RoundRobin, "HashName": HashName}


def net(width: int) -> Any:
    """A dense layer and a sparse table, both large enough to be cut; first values do not depend on how."""
    x, y = fluid.layers.data("x", [IN]), fluid.layers.data("y", [1])
    ids = fluid.layers.data("ids", [1], dtype="int64")
    first = np.random.default_rng(1).uniform(-0.1, 0.1, (IN, 256)).astype("float32")
    known = fluid.initializer.NumpyArrayInitializer(first[:3] if os.environ.get("FAILS") else first)
    dense = fluid.ParamAttr("dense", known if width == 256 else fluid.initializer.Constant(0.01))
    begin = fluid.initializer.Constant(0.02)
    hidden = fluid.layers.fc(x, width, act="tanh", param_attr=dense, bias_attr=fluid.ParamAttr("b"))
    rows = fluid.layers.embedding(
        ids, [WORDS, 8], is_sparse=True, param_attr=fluid.ParamAttr("embedding", begin)
    )
    guess = fluid.layers.fc(
        [hidden, rows], 1, param_attr=[fluid.ParamAttr(f"w{at}", begin) for at in range(2)]
    )
    loss = fluid.layers.mean(fluid.layers.square_error_cost(guess, y))
    rule = fluid.optimizer.Adam if width == 256 else fluid.optimizer.SGD
    rule(fluid.layers.exponential_decay(0.002, 4, 0.8)).minimize(loss)
    return loss


def batch() -> dict[str, Any]:
    """The batch of every step."""
    rng = np.random.default_rng(6)
    x = rng.standard_normal((16, IN)).astype("float32")
    return {"x": x, "ids": rng.integers(0, WORDS, (16, 1)), "y": x[:, :2].sum(1, keepdims=True)}


def main() -> None:
    env = os.environ
    rank, trainers = int(env["PADDLE_TRAINER_ID"]), int(env["PADDLE_TRAINERS_NUM"])
    loss = net(int(env["WIDTH"]))
    t = fluid.DistributeTranspiler(
        DistributeTranspilerConfig(slice_var_up=env["SLICED"] == "1", split_method=METHODS[env["METHOD"]])
    )
    servers = env["PADDLE_PSERVERS_IP_PORT_LIST"]
    t.transpile(rank, pservers=servers, trainers=trainers, sync_mode=env["SYNC"] == "1")
    exe = fluid.Executor(fluid.CPUPlace())
    if env["TRAINING_ROLE"] == "PSERVER":
        program, startup = t.get_pserver_programs(env["PADDLE_CURRENT_ENDPOINT"])
        exe.run(startup)
        exe.run(program)
        return
    program = t.get_trainer_program()
    exe.run(fluid.default_startup_program())
    mine = {name: value[rank::trainers] for name, value in batch().items()}
    for _ in range(int(env["STEPS"])):
        (value,) = exe.run(program, feed=mine, fetch_list=[loss])
        sys.stdout.write(f"{float(value[0])}\n")
    exe.close()


if __name__ == "__main__":
    main()
