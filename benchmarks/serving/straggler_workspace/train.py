# SPDX-License-Identifier: Apache-2.0
"""A trainer of `benchmarks.asynchronous`: learns a model of given shapes towards known values, as fast as possible.

    train.py MODEL STEPS IS_ASYNC SLOWNESS

The last trainer rests `SLOWNESS` - 1 times as long as each of its steps took, and continues until the others finish.
"""

import json
import os
import sys
import time

import numpy as np

from paddle.pserver import Client, OptimizerSpec

RATE = 0.05


def resnet_50() -> list[tuple[int, ...]]:
    """Return the shapes of ResNet-50's 25.6 million parameters: convolutions, scales and shifts, one linear layer."""
    shapes: list[tuple[int, ...]] = [(64, 3, 7, 7), (64,), (64,)]
    before = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            for shape in ((width, before, 1, 1), (width, width, 3, 3), (4 * width, width, 1, 1)):
                shapes += [shape, shape[:1], shape[:1]]
            if not block:
                shapes += [(4 * width, before, 1, 1), (4 * width,), (4 * width,)]
            before = 4 * width
    return [*shapes, (1000, before), (1000,)]


MODELS: dict[str, list[tuple[int, ...]]] = {
    "resnet_50": resnet_50(),
    "200m": [(10_000, 1_000)] * 20,
    "small": [(400, 1_000)],
}


def main(model: str, steps: int, is_async: int, slowness: int) -> None:
    """Train, and record the durations."""
    place = os.environ["PADDLE_JOB_DIR"]
    shapes = {f"p{number}": shape for number, shape in enumerate(MODELS[model])}
    values = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    gradients = {name: np.empty(shape, np.float32) for name, shape in shapes.items()}
    taken, seconds = 0, list[float]()
    with Client() as client:
        client.create(values, OptimizerSpec("sgd", learning_rate=RATE, is_async=bool(is_async)))
        client.pull(values)
        is_slow = client.trainer_id == client.num_trainers - 1 and slowness > 1
        client.barrier()
        began = time.monotonic()
        # A slow trainer takes a step even if it starts when the others have ended.
        while taken < (1 if is_slow else steps) or (
            is_slow and not is_through(place, client.num_trainers - 1)
        ):
            start = time.monotonic()
            for name, gradient in gradients.items():
                np.subtract(values[name], 1.0, out=gradient)  # of half the squared distance to 1
                if not is_async:
                    gradient /= client.num_trainers
            client.push_pull(gradients, values)
            taken += 1
            seconds.append(time.monotonic() - start)
            if is_slow:
                time.sleep((slowness - 1) * seconds[-1])  # simulates this much computing time
        wall_s = time.monotonic() - began
        if not is_slow:
            with open(os.path.join(place, f"through-{client.trainer_id}"), "w"):
                pass
        distance = float(np.mean([np.mean(np.square(value - 1.0)) for value in values.values()]))
        told = {"trainer": client.trainer_id, "steps": taken, "wall_s": wall_s, "distance": distance}
        told["step_p50_s"], told["step_max_s"] = float(np.median(seconds)), max(seconds)
        with open(f"log/trainer-{client.trainer_id}.json", "w") as file:
            json.dump(told, file)


def is_through(place: str, others: int) -> bool:
    """Return whether the other trainers, which are nodes of this machine, have taken all their steps."""
    below = os.path.join(place, "..", "..")
    found = [name for _, _, names in os.walk(below) for name in names if name.startswith("through-")]
    return len(set(found)) >= others


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
