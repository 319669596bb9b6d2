# SPDX-License-Identifier: Apache-2.0
"""A Fluid script that learns a line with pservers, and in which one trainer may come to grief on the way.

--steps=N --pause=S    how long it takes
--die=RANK:STEP        that trainer is killed in that step of its first life
--early=1              a pserver ends at once
"""

import os
import signal
import sys
import time

import numpy as np

import paddle.fluid as fluid

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
environ = os.environ
role, rank, life = (
    environ["TRAINING_ROLE"],
    int(environ["PADDLE_TRAINER_ID"]),
    environ["PADDLE_RESTART_COUNT"],
)
victim, die_at = flags.get("die", "-1:0").split(":")


def say(text: str) -> None:
    sys.stdout.write(f"{role} {rank} {text}\n")
    sys.stdout.flush()


x = fluid.layers.data(name="x", shape=[4])
y = fluid.layers.data(name="y", shape=[1])
loss = fluid.layers.mean(fluid.layers.square_error_cost(fluid.layers.fc(x, size=1), y))
fluid.optimizer.SGD(learning_rate=0.1).minimize(loss)
transpiler = fluid.DistributeTranspiler()
transpiler.transpile(
    rank,
    pservers=environ["PADDLE_PSERVERS_IP_PORT_LIST"],
    trainers=int(environ["PADDLE_TRAINERS_NUM"]),
    sync_mode=flags.get("async") != "1",
)
executor = fluid.Executor(fluid.CPUPlace())
if role == "PSERVER":
    if flags.get("early"):
        sys.exit(0)
    here = environ["PADDLE_CURRENT_ENDPOINT"]
    program = transpiler.get_pserver_program(here)
    executor.run(transpiler.get_startup_program(here, program))
    say(f"serves at {here}")
    executor.run(program)
    say("is done")
    sys.exit(0)

trainer_program = transpiler.get_trainer_program()
executor.run(fluid.default_startup_program())
rng = np.random.default_rng(rank)
for step in range(int(flags.get("steps", "60"))):
    if rank == int(victim) and step == int(die_at) and life == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    xs = rng.standard_normal((16, 4)).astype("float32")
    ys = xs @ np.array([[1.0], [2.0], [3.0], [4.0]], "float32")
    (cost,) = executor.run(trainer_program, feed={"x": xs, "y": ys}, fetch_list=[loss])
    time.sleep(float(flags.get("pause", "0")))
    if step % 10 == 0:
        say(f"life {life} step {step} cost {cost.item():.6f}")
executor.close()
say(f"is done, cost {cost.item():.6f}")
