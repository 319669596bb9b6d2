# SPDX-License-Identifier: Apache-2.0
"""A process that pushes a gradient and pulls values with another library: torch.distributed's gloo, ps-lite or ray.

    python -m benchmarks.serving.peer gloo <rank> <ranks> <port> <bytes>       rank 0 serves
    python -m benchmarks.serving.peer ps_lite <rank> <ranks> <port> <bytes>    rank 0 schedules, the last serves
    python -m benchmarks.serving.peer ray 1 2 <port> <bytes>                   the actor is a separate process

The sum and the update are the same everywhere, in the library's own arrays; results are not checked.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import numpy as np

from benchmarks.serving.contest import LEARNING_RATE, take_turns

_STEP, _END = 1.0, 0.0


def _gloo(rank: int, ranks: int, port: str, size: int) -> None:
    torch: Any = importlib.import_module("torch")
    distributed: Any = importlib.import_module("torch.distributed")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)
    order, w = torch.zeros(1), torch.zeros(size // 4)
    if rank == 0:
        gradients = [torch.zeros(size // 4) for _ in range(1, ranks)]
        while True:
            for other in range(1, ranks):
                distributed.recv(order, other)
            if order.item() == _END:
                return
            for other, gradient in enumerate(gradients, 1):
                distributed.recv(gradient, other)
            for gradient in gradients[1:]:
                gradients[0].add_(gradient)
            w.sub_(gradients[0], alpha=LEARNING_RATE)
            for work in [distributed.isend(w, other) for other in range(1, ranks)]:
                work.wait()
    mine = torch.full((size // 4,), 1e-3)

    def step() -> None:
        distributed.send(order.fill_(_STEP), 0)
        distributed.send(mine, 0)
        distributed.recv(w, 0)

    take_turns(step)
    distributed.send(order.fill_(_END), 0)


def _ps_lite(rank: int, ranks: int, port: str, size: int) -> None:
    """Take steps with MXNet's key-value store, which uses ps-lite; its server stores the sum of the gradients."""
    role = {0: "scheduler", ranks: "server"}.get(rank, "worker")
    os.environ |= {"DMLC_ROLE": role, "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": port}
    os.environ |= {"DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": str(ranks - 1), "DMLC_INTERFACE": "lo"}
    mxnet: Any = importlib.import_module("mxnet")  # unless it is a worker, the import serves and exits
    store = mxnet.kv.create("dist_sync")
    gradient, w = mxnet.nd.full((size // 4,), 1e-3), mxnet.nd.zeros((size // 4,))
    store.init("w", w)

    def step() -> None:
        store.push("w", gradient)
        store.pull("w", out=w)
        w.wait_to_read()

    take_turns(step)


class _Server:
    """The actor that serves the values."""

    def __init__(self, size: int) -> None:
        self._w = np.zeros(size // 4, np.float32)

    def push_pull(self, gradient: Any) -> Any:
        """Apply a gradient; return the values after it."""
        self._w -= np.float32(LEARNING_RATE) * gradient
        return self._w


def _ray(rank: int, ranks: int, port: str, size: int) -> None:
    ray: Any = importlib.import_module("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="error")
    actor = ray.remote(_Server).remote(size)
    gradient = np.full(size // 4, 1e-3, np.float32)

    def step() -> None:
        ray.get(actor.push_pull.remote(gradient))

    take_turns(step)
    ray.shutdown()


if __name__ == "__main__":
    {"gloo": _gloo, "ps_lite": _ps_lite, "ray": _ray}[sys.argv[1]](
        int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], int(sys.argv[5])
    )
