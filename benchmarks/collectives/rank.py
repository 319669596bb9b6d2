# SPDX-License-Identifier: Apache-2.0
"""A rank of `benchmarks.collective`: reads orders from a named pipe, answers through another, sleeps in between.

    python -m benchmarks.collectives.rank WAY RANK FOLDER ENDPOINT,ENDPOINT

An order is {"sizes": [bytes], "steps": n}; the answer is {"took_s": [seconds of each step]}.

The ways to sum arrays over ranks are ours, gloo and MPI; each defines how to begin, to sum and to end.

A rank process imports only what its own way needs: other packages may not be installed.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Sequence[npt.NDArray[np.float32]]
_START_S = 60.0


def main() -> None:
    """Connect, check that sums are correct, and serve until the orders end."""
    name, number, folder, endpoints = sys.argv[1:]
    everyone = endpoints.split(",")
    way = WAYS[name](int(number), everyone)
    _check(way, len(everyone))
    with (Path(folder) / f"answers.{way.rank}").open("w", encoding="utf-8") as answers:
        print("ready", file=answers, flush=True)
        with (Path(folder) / f"orders.{way.rank}").open(encoding="utf-8") as orders:
            for line in orders:
                order = json.loads(line)
                took_s = _steps(way, order["sizes"], order["steps"])
                print(json.dumps({"took_s": took_s}), file=answers, flush=True)
    way.end()


def _steps(way: Way, sizes: list[int], steps: int) -> list[float]:
    arrays = [np.zeros(size // 4, np.float32) for size in sizes]
    for array in arrays:
        array.fill(0)  # the memory is allocated before the measurement starts
    way.sum(arrays)
    took = []
    for _ in range(steps):
        at = time.perf_counter()
        way.sum(arrays)
        took.append(time.perf_counter() - at)
    return took


def _check(way: Way, count: int) -> None:
    array = np.full(100_000, 1 + way.rank, np.float32)
    way.sum([array])
    if not (array == count * (count + 1) / 2).all():
        raise SystemExit(f"rank {way.rank}: the sum is wrong")


@dataclass(frozen=True)
class Way:
    """One rank of a side: how it sums arrays.

    Attributes:
        sum: replaces arrays by their sums, in one operation if the way supports it.
        end: leaves the group.
    """

    rank: int
    sum: Callable[[Arrays], None]
    end: Callable[[], None]


def _ours(rank: int, endpoints: Sequence[str], way: str = "auto", key: str | None = None) -> Way:
    collective: Any = importlib.import_module("paddle.collective")
    me = collective.Membership.of(rank, endpoints, job_key=key, timeout_s=_START_S, way=way)
    group = collective.connect(me)
    return Way(rank, group.all_reduce, group.close)


def _gloo(rank: int, endpoints: Sequence[str]) -> Way:
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"tcp://{endpoints[0]}", rank=rank, world_size=len(endpoints)
    )

    def sum_all(arrays: Arrays) -> None:
        if len(arrays) == 1:
            distributed.all_reduce(torch.from_numpy(arrays[0]))
            return
        for work in [distributed.all_reduce(torch.from_numpy(each), async_op=True) for each in arrays]:
            work.wait()

    return Way(rank, sum_all, distributed.destroy_process_group)


def _mpi(rank: int, endpoints: Sequence[str]) -> Way:
    mpi: Any = importlib.import_module("mpi4py.MPI")
    world = mpi.COMM_WORLD

    def sum_all(arrays: Arrays) -> None:
        for each in arrays:
            world.Allreduce(mpi.IN_PLACE, each)

    return Way(world.rank, sum_all, lambda: None)


WAYS: Mapping[str, Callable[[int, Sequence[str]], Way]] = {
    "node": _ours,
    "tcp": lambda rank, endpoints: _ours(rank, endpoints, "tcp"),
    "sealed": lambda rank, endpoints: _ours(rank, endpoints, "tcp", "6b" * 32),
    "gloo": _gloo,
    "mpi": _mpi,
}


if __name__ == "__main__":
    main()
