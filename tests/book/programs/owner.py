# SPDX-License-Identifier: Apache-2.0
"""What the programs here share, as their owners wrote it again and again: train and save; load and infer.

`python PROGRAM.py train PATH` trains and writes the parameters to PATH, a .tar.gz; `python PROGRAM.py infer PATH` reads
them into a network that is declared anew. Both print what they reached as JSON. In a job each trainer learns from its
share of every batch; it says on standard error what each batch had and cost.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import paddle.v2 as paddle

IN_A_JOB = os.getenv("PADDLE_CLUSTER_TRAIN") == "True"
RANK = int(os.getenv("PADDLE_INIT_TRAINER_ID", "0"))
TRAINERS = int(os.getenv("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))


def train(
    path: str,
    cost: Any,
    optimizer: Any,
    samples: Sequence[Any] | Callable[[], Any],
    *,
    passes: int,
    batch_size: int = 16,
    feeding: Any = None,
    extra_layers: Any = None,
    parameters: Any = None,
    handler: Callable[[Any], object] | None = None,
) -> dict[str, Any]:
    """Train, save at the end of every pass, and return the costs of the first and the last pass and the metrics.

    `samples` may be a reader of finished batches.
    """
    parameters = parameters or paddle.parameters.create(cost)
    trainer = paddle.trainer.SGD(
        cost=cost,
        parameters=parameters,
        update_equation=optimizer,
        extra_layers=extra_layers,
        is_local=not IN_A_JOB,
    )
    costs: list[float] = []
    passed: list[float] = []
    metrics: dict[str, float] = {}

    def on_event(event: Any) -> None:
        if isinstance(event, paddle.event.EndIteration):
            costs.append(event.cost)
            sys.stderr.write(f"batch {event.batch_id} of pass {event.pass_id} cost {event.cost!r}\n")
        if isinstance(event, paddle.event.EndPass):
            passed.append(sum(costs) / len(costs))
            costs.clear()
            metrics.update(event.metrics)
            if RANK == 0:
                with gzip.open(path, "w") as file:
                    trainer.save_parameter_to_tar(file)
        if handler is not None:
            handler(event)

    random.seed(3)
    reader = samples if callable(samples) else shuffled(samples, batch_size)
    trainer.train(reader=shared(reader), num_passes=passes, event_handler=on_event, feeding=feeding)
    return {"first": passed[0], "last": passed[-1], **metrics}


def shuffled(samples: Sequence[Any], batch_size: int) -> Any:
    """A reader of batches of all samples, in another order at each pass."""
    return paddle.batch(paddle.reader.shuffle(lambda: iter(samples), buf_size=500), batch_size=batch_size)


def shared(batches: Callable[[], Any]) -> Any:
    """A reader of this trainer's part of each batch: every trainer draws the same order."""
    return lambda: (batch[RANK::TRAINERS] for batch in batches())


def load(path: str) -> Any:
    """The parameters of a file."""
    with gzip.open(path) as file:
        return paddle.parameters.Parameters.from_tar(file)


def results(ids: Any) -> list[list[int]]:
    """The sentences of a search with several results: each is its length, its words, and -1."""
    found: list[list[int]] = []
    at = 0
    while at < len(ids):
        end = at + 1 + int(ids[at])
        found.append([int(word) for word in ids[at + 1 : end]])
        at = end + 1
    return found


def main(train: Callable[[str], dict[str, Any]], infer: Callable[[str], dict[str, Any]]) -> None:
    """Do what the command line says."""
    what, path = sys.argv[1:]
    if IN_A_JOB:
        paddle.init(seed=5)
    else:
        paddle.init(use_gpu=False, trainer_count=1, seed=5)
    Path(path).parent.mkdir(exist_ok=True)  # the launcher makes trainer 0's output directory only
    found = train(path) if what == "train" else infer(path)
    sys.stdout.write(json.dumps({name: float(value) for name, value in found.items()}) + "\n")
