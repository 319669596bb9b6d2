# SPDX-License-Identifier: Apache-2.0
"""PyTorch's sparse embedding and Adagrad, one thread: a process of `peers`. It imports only numpy besides PyTorch."""

from __future__ import annotations

import sys
import time
from typing import Any

from benchmarks.tables.workload import WIDTH, workload

RATE, EPSILON = 0.1, 1e-6


def main(rows: int, turns: int) -> None:
    """Execute the orders on standard input."""
    import torch  # a heavy import, and not installed everywhere

    load = workload(rows, turns)
    torch.set_num_threads(1)
    embedding = torch.nn.Embedding(rows, WIDTH, sparse=True)
    optimizer = torch.optim.Adagrad(embedding.parameters(), lr=RATE, eps=EPSILON)
    gradient = torch.from_numpy(load.gradient)
    print(torch.__version__, flush=True)
    for line in sys.stdin:
        what, distribution, turn = line.split()
        batches = load.positions[distribution]
        positions: Any = torch.from_numpy(batches[int(turn) % len(batches)])
        start = time.perf_counter()
        if what == "lookup":
            with torch.no_grad():
                embedding(positions)
        else:
            shape = embedding.weight.shape
            embedding.weight.grad = torch.sparse_coo_tensor(positions[None], gradient, shape)
            optimizer.step()
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
