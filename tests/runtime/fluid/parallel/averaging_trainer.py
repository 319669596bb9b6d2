# SPDX-License-Identifier: Apache-2.0
"""A trainer whose parameters are averaged: `averaging_trainer.py PLAN`, where PLAN is a JSON object; see `Plan`."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import paddle.fluid as fluid

WORDS, BATCH = 60, 16
Feed = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What the trainers of a test do.

    Attributes:
        config: settings of the transpiler.
        batches: of each trainer, in each epoch.
        epochs: with an average behind each.
        pauses: trainers that wait for a line on stdin after so many steps.
        falls: what becomes of a trainer after so many steps: "killed" or "raises".
        averages: call `average`, or let the end of the process do it.
    """

    config: dict[str, Any] = field(default_factory=dict)
    batches: tuple[int, ...] = (20, 20, 20)
    epochs: int = 1
    pauses: dict[str, int] = field(default_factory=dict)
    falls: dict[str, tuple[int, str]] = field(default_factory=dict)
    averages: bool = True


def built() -> tuple[Any, Any]:
    """A sparse table, moving means, and a rate that decays."""
    ids, dense = fluid.layers.data("ids", [1], dtype="int64"), fluid.layers.data("dense", [6])
    label = fluid.layers.data("label", [1], dtype="int64")
    rows = fluid.layers.embedding(ids, [WORDS, 4], is_sparse=True, param_attr="table")
    joined = fluid.layers.concat([rows, dense], axis=1)
    hidden = fluid.layers.batch_norm(fluid.layers.fc(joined, 16, act="tanh"))
    loss = fluid.layers.mean(fluid.layers.cross_entropy(fluid.layers.fc(hidden, 2, act="softmax"), label))
    test = fluid.default_main_program().clone(for_test=True)
    fluid.optimizer.Momentum(fluid.layers.exponential_decay(0.1, 100, 0.9), 0.9).minimize(loss)
    return loss, test


def batch(rng: np.random.Generator, size: int = BATCH) -> Feed:
    """Samples of one truth: what `dense` adds up to decides, together with the words."""
    ids = rng.integers(0, WORDS, (size, 1))
    dense = rng.standard_normal((size, 6)).astype("f4")
    score = dense @ np.array([1, -1, 0.5, 0, 0, 2], "f4") + (ids % 3 - 1).sum(1)
    return {"ids": ids, "dense": dense, "label": (score > 0).astype("i8")[:, None]}


def say(line: str) -> None:
    """Tell the test."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Train, and say what came of it."""
    plan = Plan(**json.loads(sys.argv[1]))
    rank, everyone = int(os.environ["PADDLE_TRAINER_ID"]), os.environ["PADDLE_TRAINER_ENDPOINTS"]
    fluid.default_startup_program().random_seed = 7
    loss, test = built()
    transpiler = fluid.DistributeTranspiler(fluid.DistributeTranspilerConfig(mode="nccl2", **plan.config))
    transpiler.transpile(rank, trainers=everyone, current_endpoint=os.environ["PADDLE_CURRENT_ENDPOINT"])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    program = fluid.CompiledProgram(fluid.default_main_program()).with_data_parallel(
        loss.name, num_trainers=len(everyone.split(",")), trainer_id=rank, places=fluid.cpu_places(1)
    )
    rng = np.random.default_rng(rank)
    for _ in range(plan.epochs):
        for step in range(plan.batches[rank]):
            if step == plan.pauses.get(str(rank)):
                sys.stdin.readline()
            at, fall = plan.falls.get(str(rank), (-1, ""))
            if step == at and fall == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            if step == at and fall == "raises":
                raise ZeroDivisionError("a bad batch")
            exe.run(program, batch(rng), [loss.name])
        say("through")
        if plan.averages:
            program.average(exe)
    (value,) = exe.run(test, batch(np.random.default_rng(1000), 2000), [loss.name])
    kept = hashlib.sha256()
    for variable in sorted(fluid.default_main_program().list_vars(), key=lambda each: each.name):
        if (
            variable.persistable
            and np.asarray(held := fluid.global_scope().get(variable.name)).dtype.kind == "f"
        ):
            kept.update(np.asarray(held).tobytes())
    say(json.dumps({"loss": float(np.mean(value)), "bits": kept.hexdigest()}))


if __name__ == "__main__":
    main()
