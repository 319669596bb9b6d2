# SPDX-License-Identifier: Apache-2.0
"""A trainer of `benchmarks.stragglers`: processes its batches at its own pace, and prints the seconds until all finish.

    python -m benchmarks.collectives.straggler PLAN

PLAN is a JSON object: {"config": settings of the transpiler, "pauses_s": seconds that each step takes besides its
work}. The ranks and endpoints are in the environment, as set by a launcher.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import numpy as np

import paddle.fluid as fluid

_BATCH, _WIDTH = 16, 512


def main() -> None:
    """Train."""
    plan = json.loads(sys.argv[1])
    rank, everyone = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    image, label = fluid.layers.data("image", [784]), fluid.layers.data("label", [1], dtype="int64")
    hidden = fluid.layers.fc(image, _WIDTH, act="relu")
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 10, act="softmax"), label))
    fluid.optimizer.SGD(0.01).minimize(loss)
    fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(mode="nccl2", **plan["config"])).transpile(
        rank, trainers=everyone, current_endpoint=everyone.split(",")[rank]
    )
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, num_trainers=len(everyone.split(",")), trainer_id=rank, places=fluid.cpu_places(1)
    )
    rng = np.random.default_rng(rank)
    feed: dict[str, Any] = {
        "image": rng.standard_normal((_BATCH, 784)).astype("f4"),
        "label": rng.integers(0, 10, (_BATCH, 1)),
    }
    exe.run(program, feed, [loss.name])
    program.average(exe)  # all ranks are present: the measurement starts here
    began = time.perf_counter()
    for pause_s in plan["pauses_s"]:
        exe.run(program, feed, [loss.name])
        time.sleep(pause_s)  # work of a device, which needs no core of this machine
    program.average(exe)
    print(time.perf_counter() - began)


if __name__ == "__main__":
    main()
