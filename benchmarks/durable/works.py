# SPDX-License-Identifier: Apache-2.0
"""The work of trainers during a measured checkpoint: a growing table, or dense parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paddle.pserver import Client, GrowingTable, Initial, OptimizerSpec

WIDTH, ROWS_A_PUSH = 64, 20_000
GB = 1e9


@dataclass(frozen=True)
class Work:
    """The work of a trainer.

    Attributes:
        ports: ports of the server.
        create: creates the tensors.
        fill: pushes until the state has its size, `fills` times; then training calls `push` repeatedly.
        quiet: number of pushes before the checkpoint.
        seen: returns some of the values after the last push, as bytes, at little cost for the server.
        asked: the same, always from the server.
    """

    name: str
    ports: int
    create: Callable[[Client], None]
    fill: Callable[[Client], None]
    fills: int
    push: Callable[[Client], None]
    quiet: int
    seen: Callable[[Client], bytes]
    asked: Callable[[Client], bytes]


def sparse(gigabytes: float) -> Work:
    """Return the work with a growing table and AdaGrad; each push has 20,000 of its ids."""
    rows = int(gigabytes * GB / (2 * 4 * WIDTH + 12))
    rng = np.random.default_rng(1)
    gradient = np.full((ROWS_A_PUSH, WIDTH), 1e-3, np.float32)

    def create(client: Client) -> None:
        table = GrowingTable(WIDTH, Initial("uniform", spread=0.1, seed=1), max_rows=2 * rows)
        client.create({"table": table}, OptimizerSpec("adagrad", learning_rate=0.1))

    def fill(client: Client) -> None:
        for start in range(0, rows, ROWS_A_PUSH):
            ids = np.arange(start, start + ROWS_A_PUSH)
            client.push_pull({"table": (ids, gradient)}, {})

    def push(client: Client) -> None:
        client.push_pull({"table": (rng.integers(0, rows, ROWS_A_PUSH), gradient)}, {})

    def sample(client: Client) -> bytes:
        ids = np.random.default_rng(2).integers(0, rows, 4 * ROWS_A_PUSH)
        return bytes(np.asarray(client.pull_rows("table", ids)).tobytes())

    return Work(
        "sparse", 1, create, fill, -(-rows // ROWS_A_PUSH), push, quiet=150, seen=sample, asked=sample
    )


def dense(gigabytes: float) -> Work:
    """Return the work with dense parameters of 100 MB and AdaGrad; each push contains all gradients."""
    count = max(int(gigabytes * GB / 2 / 1e8), 1)
    values: dict[str, Any] = {f"w{i}": np.zeros(int(1e8 / 4), np.float32) for i in range(count)}
    gradients = {name: np.full(value.shape, 1e-3, np.float32) for name, value in values.items()}

    def create(client: Client) -> None:
        client.create(values, OptimizerSpec("adagrad", learning_rate=0.1))

    def push(client: Client) -> None:
        client.push_pull(gradients, values)

    def seen(client: Client) -> bytes:
        return b"".join(value[::97].tobytes() for value in values.values())

    def asked(client: Client) -> bytes:
        client.pull(values)
        return seen(client)

    # the slab of a port is sent in one message of at most 1 GiB
    return Work("dense", -(-count // 9), create, push, 1, push, quiet=7, seen=seen, asked=asked)
