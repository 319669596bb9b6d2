# SPDX-License-Identifier: Apache-2.0
"""A trainer of `benchmarks.pserver`: pushes a gradient and pulls the values, as often as it is told.

python -m benchmarks.serving.ours_trainer '{"endpoints": [...], "trainer": 0, "trainers": 1, "sizes": [bytes], ...}'
"""

from __future__ import annotations

import json
import sys

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, Step, take_turns
from paddle.optim.spec import OptimizerSpec, ParameterSpec
from paddle.pserver.client.session import TrainerSession


def step_of(client: TrainerSession, sizes: list[int], in_place: bool) -> Step:
    """One parameter for each size, in bytes; `in_place`: arrays that are shared with the server, if there are such."""
    parameters = [ParameterSpec(f"w{number}", (size // 4,)) for number, size in enumerate(sizes)]
    values = {p.name: np.zeros(p.shape, np.float32) for p in parameters}
    client.configure(parameters, OptimizerSpec("momentum", learning_rate=LEARNING_RATE), values)
    gradients = {p.name: np.zeros(p.size, np.float32) for p in parameters}
    if in_place:
        gradients, values = {p.name: client.gradient_array(p.name) for p in parameters}, {}
    for gradient in gradients.values():
        gradient[...] = 1e-3
    client.start_pass()

    def step() -> None:
        client.push_pull(gradients, 1, values)

    step()
    if in_place and any(client.value_array(p.name) is None for p in parameters):
        raise SystemExit("the server does not share its memory")
    return step


def main() -> None:
    """Connect and take turns."""
    given = json.loads(sys.argv[1])
    with TrainerSession.connect(
        given["endpoints"],
        [],
        trainer_id=given["trainer"],
        num_trainers=given["trainers"],
        job_key=given["key"],
        wire="curve" if given["key"] else "plain",
        within_node=given.get("within_node", True),
    ) as client:
        take_turns(step_of(client, given["sizes"], given.get("in_place", False)))


if __name__ == "__main__":
    main()
