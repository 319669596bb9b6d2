# SPDX-License-Identifier: Apache-2.0
"""A trainer of `benchmarks.pserver`: pushes a gradient and pulls the values, as often as ordered.

python -m benchmarks.serving.ours_trainer '{"endpoints": [...], "trainer": 0, "trainers": 1, "sizes": [bytes], ...}'
"""

from __future__ import annotations

import json
import sys

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, Step, take_turns
from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec
from paddle.pserver.transports import table


def stay_apart() -> None:
    """Prevent this process from sharing memory with servers of its node, as if it were on another node."""
    table.TRANSPORTS = tuple(each for each in table.TRANSPORTS if not each.is_within_node)


def step_of(client: Client, sizes: list[int], in_place: bool, push_then_pull: bool) -> Step:
    """Return a step with one tensor per size, in bytes.

    Args:
        in_place: whether arrays are shared with the server, if available.
        push_then_pull: whether a step is two calls instead of `push_pull`.
    """
    values = {f"w{number}": np.zeros(size // 4, np.float32) for number, size in enumerate(sizes)}
    names = list(values)
    client.create(values, OptimizerSpec("momentum", learning_rate=LEARNING_RATE))
    gradients = {name: np.zeros_like(value) for name, value in values.items()}
    if in_place:
        gradients, values = {name: client.gradient_array(name) for name in names}, {}
    for gradient in gradients.values():
        gradient[...] = 1e-3

    def step() -> None:
        if push_then_pull:
            client.push(gradients)
            client.pull(values)
        else:
            client.push_pull(gradients, values)

    step()
    if in_place and any(client.value_array(name) is None for name in names):
        raise SystemExit("the server does not share its memory")
    return step


def growing_step_of(client: Client, rows: int, width: int) -> Step:
    """Return a step with a batch of new random rows of a growing table, which pulls them and pushes their gradients."""
    table = GrowingTable(width, Initial("uniform", spread=0.1, seed=1))
    client.create({"table": table}, OptimizerSpec("adagrad", learning_rate=LEARNING_RATE))
    rng, gradient = np.random.default_rng(1), np.full((rows, width), 1e-3, np.float32)

    def step() -> None:
        ids = rng.integers(0, 1 << 40, rows)
        client.pull_rows("table", ids)
        client.push_pull({"table": (ids, gradient)}, {})

    return step


def main() -> None:
    """Connect and take turns; with `sealed` false, as on a node without the package `cryptography`."""
    given = json.loads(sys.argv[1])
    if not given.get("sealed", True):
        sys.modules["cryptography.hazmat.primitives.ciphers.aead"] = None  # type: ignore[assignment]
    with Client(
        given["endpoints"],
        trainer_id=given["trainer"],
        num_trainers=given["trainers"],
        job_key=given["key"],
        wire="curve" if given["key"] else "plain",
        within_node=given.get("within_node", True),
    ) as client:
        if "table" in given:
            take_turns(growing_step_of(client, *given["table"]))
        else:
            in_place, push_then_pull = given.get("in_place", False), given.get("push_then_pull", False)
            take_turns(step_of(client, given["sizes"], in_place, push_then_pull))


if __name__ == "__main__":
    main()
