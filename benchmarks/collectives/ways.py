# SPDX-License-Identifier: Apache-2.0
"""The ways to sum arrays over ranks: ours, gloo and MPI; each says how to begin, to sum and to end.

A rank process imports only what its own way needs: others may not be installed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Arrays = Sequence[npt.NDArray[np.float32]]
_START_S = 60.0


@dataclass(frozen=True)
class Way:
    """One rank's side of it.

    Attributes:
        sum: replaces arrays by their sums, as one operation where the way has such.
        end: leaves.
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
