# SPDX-License-Identifier: Apache-2.0
"""A script as the manual writes it: one file for both roles, told apart by the environment.

Prints each loss, on a line of its own. With WAIT_PORT=0 a trainer does not wait for ports. Without STEPS it says that
it is ready, waits for a line, and trains for ever. With HOLD it says that it is done and waits for a line.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator

import numpy as np

import paddle.fluid as fluid


def main() -> None:
    role = os.environ["TRAINING_ROLE"]
    trainer_id = int(os.environ["PADDLE_TRAINER_ID"])
    pserver_endpoints = os.environ["PADDLE_PSERVERS_IP_PORT_LIST"]
    current_endpoint = os.environ["PADDLE_CURRENT_ENDPOINT"]
    trainers = int(os.environ["PADDLE_TRAINERS_NUM"])
    steps = int(os.environ.get("STEPS", "0"))

    fluid.default_main_program().random_seed = fluid.default_startup_program().random_seed = 1
    x, y = fluid.layers.data("x", [64]), fluid.layers.data("y", [1])
    hidden = fluid.layers.fc(x, 64, act="tanh")
    loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(hidden, 1), y))
    fluid.optimizer.SGD(0.02).minimize(loss)

    if role == "TRAINER":
        fluid.memory_optimize(fluid.default_main_program(), skip_grads=True, skip_opt_set={loss.name})
    t = fluid.DistributeTranspiler()
    t.transpile(trainer_id, pservers=pserver_endpoints, trainers=trainers, slice_var_up=False)
    exe = fluid.Executor(fluid.CPUPlace())
    if role == "PSERVER":
        pserver_prog = t.get_pserver_program(current_endpoint)
        pserver_startup = t.get_startup_program(current_endpoint, pserver_prog)
        exe.run(pserver_startup)
        exe.run(pserver_prog)
    elif role == "TRAINER":
        trainer_prog = t.get_trainer_program(wait_port=os.environ.get("WAIT_PORT") != "0")
        exe.run(fluid.default_startup_program())
        if not steps:
            say("ready")
            sys.stdin.readline()
        train_loop(exe, trainer_prog, loss, trainer_id, trainers, steps)
        if os.environ.get("HOLD"):
            say("done")
            sys.stdin.readline()


def train_loop(
    exe: fluid.Executor,
    program: fluid.Program,
    loss: fluid.framework.Variable,
    rank: int,
    ranks: int,
    steps: int,
) -> None:
    for xs, ys in batches(steps):
        mine = slice(rank * len(xs) // ranks, (rank + 1) * len(xs) // ranks)
        (value,) = exe.run(program, feed={"x": xs[mine], "y": ys[mine]}, fetch_list=[loss])
        say(str(float(value[0])))


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def batches(steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    for _ in range(steps) if steps else itertools.count():
        x = rng.standard_normal((8, 64)).astype("float32")
        yield x, x[:, :2].sum(1, keepdims=True)


if __name__ == "__main__":
    main()
