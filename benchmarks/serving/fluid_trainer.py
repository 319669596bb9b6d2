# SPDX-License-Identifier: Apache-2.0
"""A Fluid trainer of `benchmarks.pserver`, or the server, as users write them: the net of `v2_trainer`, transpiled.

python -m benchmarks.serving.fluid_trainer '{"endpoints": [...], "trainer": 0, "trainers": 1, "width": 2048, ...}'
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, take_turns, use_key
from benchmarks.serving.ours_trainer import stay_apart
from paddle import fluid
from paddle.fluid.remote import outbox

INPUTS, CLASSES = 784, 10


def main() -> None:
    """Serve, or connect and take turns; trainer None is the server."""
    given: dict[str, Any] = json.loads(sys.argv[1])
    use_key(given["key"])
    if given["apart"]:
        stay_apart()
    if not given.get("early", True):
        outbox.EARLY_BYTES = sys.maxsize
    image = fluid.layers.data("image", shape=[INPUTS])
    label = fluid.layers.data("label", shape=[1], dtype="int64")
    hidden = image
    for _ in range(3):
        hidden = fluid.layers.fc(hidden, given["width"], act="relu")
    predicted = fluid.layers.fc(hidden, CLASSES, act="softmax")
    cost = fluid.layers.mean(fluid.layers.cross_entropy(predicted, label))
    fluid.optimizer.SGD(LEARNING_RATE).minimize(cost)
    (endpoint,) = given["endpoints"]
    transpiler = fluid.DistributeTranspiler()
    transpiler.transpile(given["trainer"] or 0, pservers=endpoint, trainers=given["trainers"])
    executor = fluid.Executor(fluid.CPUPlace())
    if given["trainer"] is None:
        program = transpiler.get_pserver_program(endpoint)
        executor.run(transpiler.get_startup_program(endpoint, program))
        executor.run(program)
        return
    program = transpiler.get_trainer_program()
    executor.run(fluid.default_startup_program())
    draw = np.random.default_rng(given["trainer"])
    feed = {
        "image": draw.random((given["batch"], INPUTS), np.float32),
        "label": draw.integers(0, CLASSES, (given["batch"], 1)),
    }

    def step() -> None:
        executor.run(program, feed=feed, fetch_list=[cost])

    step()
    take_turns(step)
    executor.close()


if __name__ == "__main__":
    main()
