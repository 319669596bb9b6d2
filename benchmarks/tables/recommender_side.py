# SPDX-License-Identifier: Apache-2.0
"""One side of `benchmarks.recommender`, a process: a PyTorch recommender with its rows in this process or on servers.

It answers each line on its standard input: "known N", "coming N" or "fill N" with the seconds of N steps with batches
seen before, with new ones, or with all IDs in order; "cost" with the mean cost of these steps; "auc" with that of the
test data.
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from benchmarks.tables import clicks
from benchmarks.tables.peers import FAILED

FIELDS, WIDTH, BATCH, POOL = 8, 16, 1024, 40
EXPONENT = 1.2
RATE = 0.05
SHIFTS = 64
_PACKAGES = {"fbgemm_gpu": "fbgemm-gpu-cpu"}
_SPREAD = 2654435761  # a prime: neighbours in frequency are not neighbours in memory


def batch_of(seed: tuple[int, ...], ids: int) -> tuple[Any, Any]:
    """Return Zipf IDs (BATCH, FIELDS) int64 below `ids`, separate for each field, and clicks (BATCH,) float32."""
    rng = np.random.default_rng(seed)
    of_field = ids // FIELDS
    ranks = rng.zipf(EXPONENT, (BATCH, FIELDS)) % of_field
    found = ranks * _SPREAD % of_field + np.arange(FIELDS) * of_field
    hit = rng.random(BATCH) < 1 / (1 + ranks[:, 0] % 5)
    return found, hit.astype(np.float32)


class Zipf:
    """The workload of generated IDs: `batch(kind, number)` returns numbers, IDs and clicks."""

    numbers, fields = 0, FIELDS

    def __init__(self, ids: int, rank: int) -> None:
        self.height, self._rank = ids, rank

    def batch(self, kind: str, number: int) -> tuple[Any, ...]:
        """Return a batch: one of a pool, or a new one, or the next IDs in order."""
        if kind == "fill":
            first = number * BATCH * FIELDS
            ids = np.arange(first, first + BATCH * FIELDS).reshape(BATCH, FIELDS) % self.height
            return np.zeros((BATCH, 0), np.float32), ids, np.zeros(BATCH, np.float32)
        seed = (0, number % POOL, self._rank) if kind == "known" else (1, number, self._rank)
        ids, hit = batch_of(seed, self.height)
        return np.zeros((BATCH, 0), np.float32), ids, hit


class Clicked:
    """The workload of a file of clicks."""

    def __init__(self, name: str, rank: int, world: int) -> None:
        self._train, self.test = clicks.read(name)
        self.numbers, self.fields = self._train.numbers.shape[1], self._train.codes.shape[1]
        self.height = self._train.height * SHIFTS
        self._rank, self._world = rank, world

    def batch(self, kind: str, number: int) -> tuple[Any, ...]:
        """Return the next batch of this trainer."""
        return self._train.batch(number * self._world + self._rank, BATCH, SHIFTS)


class Side(NamedTuple):
    """A training side: a model of numbers and IDs, optimizers that step one after the other, and a loader's wrapper."""

    model: Any
    optimizers: tuple[Any, ...]
    wrapped: Callable[[Iterable[Any]], Iterable[Any]] = iter


def model_of(rows: Any, load: Any) -> Any:
    """Return DLRM: products of all pairs of rows and the numbers' layer, with that layer; for Zipf IDs, a plain MLP."""
    import torch  # a heavy import, and not installed everywhere

    class Net(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.rows = rows
            self.bottom = torch.nn.Linear(load.numbers, WIDTH) if load.numbers else None
            vectors = load.fields + bool(load.numbers)
            self.pairs = torch.triu_indices(vectors, vectors, 1) if isinstance(load, Clicked) else None
            size = WIDTH * vectors if self.pairs is None else self.pairs.shape[1] + WIDTH * bool(load.numbers)
            self.top = torch.nn.Sequential(
                torch.nn.Linear(size, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1), torch.nn.Flatten(0)
            )

        def forward(self, numbers: Any, ids: Any) -> Any:
            vectors, beside = self.rows(ids), []
            if self.pairs is None:
                return self.top(vectors.flatten(1))
            if self.bottom is not None:
                beside = [self.bottom(numbers).relu()]
                vectors = torch.cat((vectors, beside[0].unsqueeze(1)), dim=1)
            products = vectors @ vectors.transpose(1, 2)
            return self.top(torch.cat((products[:, self.pairs[0], self.pairs[1]], *beside), dim=1))

    torch.manual_seed(1)
    return Net()


def in_process(given: argparse.Namespace, load: Any) -> Side:
    """Return a side with rows in `nn.Embedding(sparse=True)`; with several trainers, under DDP."""
    import torch

    table = torch.nn.Embedding(load.height, WIDTH, sparse=True)
    if isinstance(load, Clicked):
        with torch.no_grad():
            table.weight.copy_(torch.from_numpy(_start().rows(np.arange(load.height), WIDTH)))
    model = model_of(table, load)
    if given.world > 1:
        where = f"tcp://127.0.0.1:{given.port}"
        torch.distributed.init_process_group("gloo", where, rank=given.rank, world_size=given.world)
        model = torch.nn.parallel.DistributedDataParallel(model)
    return Side(model, (torch.optim.Adagrad(model.parameters(), lr=RATE),))


def servers(given: argparse.Namespace, load: Any) -> Side:
    """Return a side with rows in a growing table."""
    from paddle.pserver import Adagrad, Client
    from paddle.pserver.torch import Embedding, Prefetching, ServerOptimizer

    client = Client(
        given.endpoints.split(","),
        trainer_id=given.rank,
        num_trainers=given.world,
        job_key=given.key,
        within_node=not given.network,
    )
    budget = {"memory": given.memory, "disk": given.disk} if given.disk else {}
    model = model_of(Embedding("rows", WIDTH, initial=_start(), **budget), load)
    optimizer = ServerOptimizer(model, Adagrad(lr=RATE), client=client)
    return Side(
        model, (optimizer,), functools.partial(Prefetching, optimizer=optimizer, ids=lambda batch: batch[1])
    )


def fbgemm(given: argparse.Namespace, load: Any) -> Side:
    """Return a side with rows in FBGEMM's table for CPUs, which torchrec trains inside the backward pass."""
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import EmbeddingLocation
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    class Rows(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = SplitTableBatchedEmbeddingBagsCodegen(
                [(load.height, WIDTH, EmbeddingLocation.HOST, ComputeDevice.CPU)],
                optimizer=EmbOptimType.EXACT_ADAGRAD,
                learning_rate=RATE,
                eps=1e-10,
            )

        def forward(self, ids: Any) -> Any:
            flat = ids.reshape(-1)
            return self.table(flat, torch.arange(len(flat) + 1)).reshape(*ids.shape, WIDTH)

    model = model_of(Rows(), load)
    dense = [each for name, each in model.named_parameters() if not name.startswith("rows")]
    return Side(model, (torch.optim.Adagrad(dense, lr=RATE),))


SIDES: Mapping[str, Callable[[argparse.Namespace, Any], Side]] = {
    "in_process": in_process,
    "servers": servers,
    "fbgemm": fbgemm,
}


def main() -> None:
    """Execute the orders on standard input; if a package or a file is missing, print that instead."""
    try:
        _serve(_parse())
    except ModuleNotFoundError as error:
        package = _PACKAGES.get(error.name or "", error.name)
        print(f"{FAILED}{sys.executable} has no {package}; install it, or choose a different --peers_python")
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{FAILED}cannot read {error.filename}: {error.strerror}")


def _serve(given: argparse.Namespace) -> None:
    import torch

    torch.set_num_threads(1)
    load: Any = (
        Clicked(given.clicks, given.rank, given.world) if given.clicks else Zipf(given.ids, given.rank)
    )
    side = SIDES[given.kind](given, load)
    print(torch.__version__, flush=True)
    at, costs = dict.fromkeys(("known", "coming", "fill"), 0), [0.0]
    for line in sys.stdin:
        what, *count = line.split()
        if what == "cost":
            print(float(np.mean(costs)), flush=True)
        elif what == "auc":
            print(_auc(side.model, load.test), flush=True)
        else:
            numbers = range(at[what], at[what] + int(count[0]))
            at[what] = numbers.stop
            batches = [tuple(map(torch.from_numpy, load.batch(what, number))) for number in numbers]
            start = time.perf_counter()
            costs = _train(side, batches)
            print(time.perf_counter() - start, flush=True)


def _train(side: Side, batches: Iterable[tuple[Any, ...]]) -> list[float]:
    from torch.nn.functional import binary_cross_entropy_with_logits

    costs = []
    for numbers, ids, hit in side.wrapped(batches):
        for optimizer in side.optimizers:
            optimizer.zero_grad()
        cost = binary_cross_entropy_with_logits(side.model(numbers, ids), hit)
        cost.backward()
        for optimizer in side.optimizers:
            optimizer.step()
        costs.append(cost.item())
    return costs


def _auc(model: Any, test: clicks.Clicks) -> float:
    import torch

    with torch.no_grad():
        scores = model(torch.from_numpy(test.numbers), torch.from_numpy(test.codes))
    return clicks.auc(scores.numpy(), test.clicks)


def _start() -> Any:
    from paddle.pserver import Initial

    return Initial("normal", spread=0.1)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=SIDES)
    parser.add_argument("--ids", type=int, default=0)
    parser.add_argument("--memory", type=int, default=0)
    parser.add_argument("--disk", default="")
    parser.add_argument("--clicks", default="")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--endpoints", default="")
    parser.add_argument("--key")
    parser.add_argument("--network", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
