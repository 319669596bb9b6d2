# SPDX-License-Identifier: Apache-2.0
"""One side of `benchmarks.recommender`, a process: a small recommender by PyTorch, its rows here or on servers.

It answers each line "known N" or "coming N" on its standard input with the seconds that N steps took: with batches that
were seen before, or with new ones.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

FIELDS, WIDTH, BATCH, POOL = 8, 16, 1024, 40
EXPONENT = 1.2
RATE = 0.05
_SPREAD = 2654435761  # a prime: neighbours in frequency are no neighbours in memory


def batch_of(seed: tuple[int, ...], ids: int) -> tuple[Any, Any]:
    """Return Zipf ids (BATCH, FIELDS) int64 below `ids`, each field with its own, and clicks (BATCH,) float32."""
    rng = np.random.default_rng(seed)
    of_field = ids // FIELDS
    ranks = rng.zipf(EXPONENT, (BATCH, FIELDS)) % of_field
    found = ranks * _SPREAD % of_field + np.arange(FIELDS) * of_field
    clicks = rng.random(BATCH) < 1 / (1 + ranks[:, 0] % 5)
    return found, clicks.astype(np.float32)


def model_of(rows: Any) -> Any:
    """Return the network: rows of all fields side by side, then two layers."""
    import torch  # heavy, and not everywhere

    torch.manual_seed(1)
    layers = torch.nn.Linear(FIELDS * WIDTH, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
    return torch.nn.Sequential(rows, torch.nn.Flatten(), *layers, torch.nn.Flatten(0))


def main(kind: str, ids: int, *servers: str) -> None:
    """Serve the lines on standard input."""
    import torch

    torch.set_num_threads(1)
    optimizer: Any
    wrapped: Callable[[Any], Iterable[Any]]
    if kind == "in_process":
        model = model_of(torch.nn.Embedding(ids, WIDTH, sparse=True))
        optimizer, wrapped = torch.optim.Adagrad(model.parameters(), lr=RATE), list
    else:
        from paddle.pserver import Adagrad, Client
        from paddle.pserver.torch import Embedding, Prefetching, ServerOptimizer

        key, *endpoints = servers
        client = Client(endpoints, trainer_id=0, num_trainers=1, job_key=key)
        model = model_of(Embedding("rows", WIDTH, std=1.0))
        optimizer = ServerOptimizer(model, Adagrad(lr=RATE), client=client)
        wrapped = functools.partial(Prefetching, optimizer=optimizer, ids=operator.itemgetter(0))

    pool = [tuple(map(torch.from_numpy, batch_of((0, number), ids))) for number in range(POOL)]
    fresh = itertools.count()
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        what, count = line.split()
        steps = int(count)
        if what == "known":
            batches = [pool[number % POOL] for number in range(steps)]
        else:
            drawn = (batch_of((1, next(fresh)), ids) for _ in range(steps))
            batches = [tuple(map(torch.from_numpy, each)) for each in drawn]
        start = time.perf_counter()
        _train(model, optimizer, wrapped(batches))
        print(time.perf_counter() - start, flush=True)


def _train(model: Any, optimizer: Any, batches: Iterable[tuple[Any, Any]]) -> None:
    from torch.nn.functional import binary_cross_entropy_with_logits

    for ids, clicks in batches:
        optimizer.zero_grad()
        binary_cross_entropy_with_logits(model(ids), clicks).backward()
        optimizer.step()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
