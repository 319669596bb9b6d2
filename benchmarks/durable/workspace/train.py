# SPDX-License-Identifier: Apache-2.0
"""A trainer of a job whose servers are killed: records the answers in log/trainer-<rank>.json.

--steps=N --pause=S     its number of steps and the pause of each
--is_async=1            counts pushes: see `history`; otherwise gradients depend on values, so that a wrong bit persists
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec, TensorOptions

flags = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
STEPS, PAUSE_S = int(flags["steps"]), float(flags["pause"])
VECTORS = 4  # more than servers, so that each server has some
PULL = np.float32(0.1)


def told(step: int) -> None:
    """Report the progress of the job to the process that kills servers, and take some time as a model would."""
    sys.stdout.write(f"step {step}\n")
    sys.stdout.flush()
    time.sleep(PAUSE_S)


def count_pushes(client: Client) -> dict[str, Any]:
    """Train asynchronously: each push adds one to this trainer's counter in each vector and in a table's row."""
    vectors = {f"count{i}": np.zeros(client.num_trainers, np.float32) for i in range(VECTORS)}
    optimizer = OptimizerSpec("sgd", learning_rate=1.0, is_async=True, discard_ratio=1e6)
    client.create({**vectors, "rows": GrowingTable(1)}, optimizer)
    one = np.zeros(client.num_trainers, np.float32)
    one[client.trainer_id] = -1.0
    row = (np.array([client.trainer_id]), np.array([[-1.0]], np.float32))
    seen: dict[str, list[list[float]]] = {name: [] for name in vectors}
    for step in range(STEPS):
        client.push_pull({**dict.fromkeys(vectors, one), "rows": row}, vectors)
        for name, vector in vectors.items():
            seen[name].append(vector.tolist())
        told(step)
    client.barrier()
    client.pull(vectors)
    rows = client.pull_rows("rows", np.arange(client.num_trainers))[:, 0]
    return {
        "seen": seen,
        "final": {name: v.tolist() for name, v in vectors.items()} | {"rows": rows.tolist()},
    }


def learn(client: Client) -> dict[str, Any]:
    """Train dense tensors, a table and a growing table synchronously; gradients depend on the servers' answers."""
    rng = np.random.default_rng(client.trainer_id)
    dense = {"w": np.ones((200, 60), np.float32), "b": np.zeros(7, np.float32)}
    table = np.ones((50, 4), np.float32)
    client.create(
        {**dense, "table": table, "users": GrowingTable(4, Initial("uniform", spread=1.0, seed=5))},
        OptimizerSpec("adagrad", learning_rate=0.05, hyper={"epsilon": 1e-6}),
        {"table": TensorOptions(sparse=True, l2=1e-3)},
    )
    client.pull(dense)
    for step in range(STEPS):
        gradients: dict[str, Any] = {
            name: PULL * value + rng.standard_normal(value.shape).astype(np.float32)
            for name, value in dense.items()
        }
        for name, ids in (("table", rng.integers(0, 50, 8)), ("users", rng.integers(-50, 50, 8))):
            noise = rng.standard_normal((len(ids), 4)).astype(np.float32)
            gradients[name] = (ids, PULL * client.pull_rows(name, ids) + noise)
        client.push_pull(gradients, dense)
        told(step)
        if step % 25 == 24:
            client.barrier()
    client.barrier()
    client.pull({**dense, "table": table})
    digest = hashlib.sha256()
    for array in (*dense.values(), table, client.pull_rows("users", np.arange(-50, 50))):
        digest.update(array.tobytes())
    return {"digest": digest.hexdigest()}


with Client() as client:
    found = count_pushes(client) if flags.get("is_async") == "1" else learn(client)
    path = Path("log") / f"trainer-{client.trainer_id}.json"
    path.write_text(json.dumps(found), encoding="utf-8")
