# SPDX-License-Identifier: Apache-2.0
"""PyTorch's sparse embedding and Adagrad, one thread, in a process of its own: it may have another Python.

It makes the same workload, then reads lines "lookup|update <distribution> <turn>" and answers each with seconds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.tables.workload import WIDTH, workload

RATE, EPSILON = 0.1, 1e-6
_ROOT = Path(__file__).resolve().parents[2]


class Torch:
    """The process, seen from outside."""

    def __init__(self, python: str, rows: int, turns: int) -> None:
        """Start it, and wait until its table is there.

        Raises:
            RuntimeError: that Python has no PyTorch.
        """
        argv = [python, "-m", "benchmarks.tables.torch_side", str(rows), str(turns)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            argv, cwd=_ROOT, env=os.environ | {"PYTHONPATH": ""}, stdin=pipe, stdout=pipe, text=True
        )
        self.version = self._answer()

    def seconds(self, what: str, distribution: str, turn: int) -> float:
        """Let it look up or update one batch.

        Raises:
            RuntimeError: it died.
        """
        assert self._process.stdin is not None
        print(what, distribution, turn, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=60)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended: is PyTorch there? See --peers_python")
        return line


def main(rows: int, turns: int) -> None:
    """Serve the lines on standard input."""
    import torch  # heavy, and not everywhere

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
