# SPDX-License-Identifier: Apache-2.0
"""A rank of `benchmarks.collective`: takes orders from a named pipe, answers through another, sleeps in between.

    python -m benchmarks.collectives.rank WAY RANK FOLDER ENDPOINT,ENDPOINT

An order is {"sizes": [bytes], "steps": n}; the answer {"took_s": [seconds of each step]}.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np

from benchmarks.collectives.ways import WAYS, Way


def main() -> None:
    """Begin, check that sums are right, and serve until the orders end."""
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
        array.fill(0)  # memory is there before the clock runs
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


if __name__ == "__main__":
    main()
