# SPDX-License-Identifier: Apache-2.0
"""A trainer that looks at its model in every way a script has, in the middle of a pass and after it left.

Arguments: update rule, folder, and "apart" if no memory is to be shared. Every trainer says each batch; all but the
first leave after one pass, and look again when the first is done. What it saw is in `<folder>/<rank>.npz`.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import logging
import sys
import warnings
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import paddle.v2 as paddle
from paddle.v2 import settings
from tests.cluster.deadline import wait_for
from tests.runtime.pserver.pserver_process import without_shared_memory

INPUTS, WIDTH, BATCHES, SIZE = 30, 600, 6, 4
RULES: dict[str, Callable[[Any], Any]] = {
    "plain": lambda average: paddle.optimizer.Momentum(
        momentum=0.0, learning_rate=0.0003, model_average=average
    ),
    "adam": lambda average: paddle.optimizer.Adam(learning_rate=0.001, model_average=average),
}


def main() -> None:
    warnings.simplefilter("error")
    rule, folder = sys.argv[1], Path(sys.argv[2])
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    paddle.init()
    rank = settings.current().trainer_id
    x = paddle.layer.data("x", paddle.data_type.dense_vector(INPUTS))
    y = paddle.layer.data("y", paddle.data_type.dense_vector(1))
    hidden = paddle.layer.fc(x, size=WIDTH, act=paddle.activation.Tanh())
    hidden = paddle.layer.fc(hidden, size=WIDTH, act=paddle.activation.Tanh())
    predicted = paddle.layer.fc(hidden, size=1, act=paddle.activation.Linear())
    cost = paddle.layer.square_error_cost(predicted, y)
    parameters = paddle.parameters.create(cost)
    average = paddle.optimizer.ModelAverage(average_window=0.5, max_average_window=100)
    trainer = paddle.trainer.SGD(cost, parameters, RULES[rule](average), is_local=False)
    inference = paddle.inference.Inference(parameters, predicted)
    draw = np.random.default_rng(rank)
    batches = [
        [(draw.random(INPUTS, np.float32), draw.random(1, np.float32)) for _ in range(SIZE)]
        for _ in range(BATCHES - rank)
    ]
    seen: defaultdict[str, list[Any]] = defaultdict(list)
    asked = [(np.linspace(0, 1, INPUTS, dtype=np.float32),)]
    largest = max(parameters, key=lambda name: parameters[name].size)

    def handler(event: object) -> None:
        if isinstance(event, paddle.event.EndForwardBackward):
            seen["gradient"].append(parameters.get_grad(largest))
        if isinstance(event, paddle.event.EndIteration | paddle.event.EndPass):
            seen["value"].append(parameters.get(largest))
            seen["inferred"].append(inference.infer(asked))
            seen["inferred anew"].append(paddle.infer(predicted, parameters, asked))
            seen["tested"].append(trainer.test(lambda: iter([batches[0]])).cost)
            tar = io.BytesIO()
            trainer.save_parameter_to_tar(tar)
            seen["saved"].append(hashlib.sha256(tar.getvalue()).hexdigest())
        if isinstance(event, paddle.event.EndIteration):
            sys.stdout.write(f"batch {event.pass_id} {event.batch_id}\n")
            sys.stdout.flush()

    passes = 1 if rank else 3
    trainer.train(lambda: iter(batches), num_passes=passes, event_handler=handler)
    trainer.close()
    last = parameters.get(largest)
    if rank:
        wait_for("the first trainer to be done", (folder / "0.npz").exists, 60)
    assert parameters.get(largest).tobytes() == last.tobytes()
    assert inference.infer(asked).tobytes() == seen["inferred"][-1].tobytes()
    parameters.set(largest, last + 1)
    assert parameters.get(largest).tobytes() == (last + 1).tobytes()
    found: dict[str, Any] = {name: np.array(values) for name, values in seen.items()}
    np.savez(folder / f"{rank}.part.npz", **found)
    (folder / f"{rank}.part.npz").rename(folder / f"{rank}.npz")


if __name__ == "__main__":
    with without_shared_memory() if "apart" in sys.argv else contextlib.nullcontext():
        main()
