# SPDX-License-Identifier: Apache-2.0
"""MpiRanks: collective operations through mpi4py, for processes started by mpirun.

MPI does not report which rank is at fault. Therefore ranks compare their next operation before they run it, which also
finds ranks that are doing something different, and they wait with a deadline. After an error the whole MPI job is
aborted when this process ends, because MPI can no longer be finalised.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from paddle.collective.errors import CollectiveError, PeerDiffers, PeerLate
from paddle.collective.exchange.task import WORDS, Kind, Pieces, Task, dtype_code
from paddle.collective.membership import Membership
from paddle.collective.ranks import Arrays, Ranks
from paddle.errors import ConfigError

_STARTED_BY = (
    "PMIX_RANK",
    "PMI_RANK",
)  # OMPI_COMM_WORLD_RANK says nothing: a launcher may set it without MPI
_TESTS = 2000  # before it sleeps: MPI has no descriptor to wait for
_PAUSES_S = (50e-6, 1e-3)


def under_mpirun(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether mpirun started this process and mpi4py is installed."""
    env = os.environ if environ is None else environ
    return any(name in env for name in _STARTED_BY) and importlib.util.find_spec("mpi4py") is not None


class MpiRanks(Ranks):
    """The ranks of MPI's world as a group."""

    def __init__(self, timeout_s: float) -> None:
        """Initialise MPI unless it is already initialised. Raises ConfigError if mpi4py is not installed."""
        try:
            self._mpi: Any = importlib.import_module("mpi4py.MPI")
        except ImportError as error:
            raise ConfigError(f"way is 'mpi', but mpi4py cannot be imported: {error}") from error
        self._world = self._mpi.COMM_WORLD.Dup()
        self.rank, self.size, self.ways = self._world.rank, self._world.size, ("mpi",)
        self._timeout_s = timeout_s
        self._number = 0
        self._failed: CollectiveError | None = None

    def all_reduce(self, arrays: Arrays) -> None:
        """Replace values by their sums over all ranks; see `Ranks.all_reduce`."""
        listed = self._begin(Kind.SUM, arrays, 0)
        self._wait([self._world.Iallreduce(self._mpi.IN_PLACE, each) for each in listed])

    def broadcast(self, arrays: Arrays, root: int = 0) -> None:
        """Replace values by those of rank `root`; see `Ranks.broadcast`."""
        listed = self._begin(Kind.BROADCAST, arrays, root)
        self._wait([self._world.Ibcast(each, root) for each in listed])

    def fail(self, error: CollectiveError) -> CollectiveError:
        """End the group because this rank cannot continue; see `Ranks.fail`."""
        if self._failed is None:
            self._failed = error
            atexit.register(self._world.Abort, 1)
        return error

    def close(self) -> None:
        """Leave the group without error; MPI itself ends with the process."""

    def _begin(self, kind: Kind, arrays: Arrays, root: int) -> list[Any]:
        if self._failed is not None:
            raise self._failed
        listed = [arrays] if isinstance(arrays, np.ndarray) else list(arrays)
        pieces = Pieces(listed)
        task = Task(self._number, kind, dtype_code(pieces.dtype), pieces.nbytes, root)
        self._number += 1
        mine, everyone = np.array(task.words(), np.int64), np.empty((self.size, WORDS), np.int64)
        self._wait([self._world.Iallgather(mine, everyone)])
        for rank in range(self.size):
            try:
                task.check(tuple(everyone[rank].tolist()), rank)
            except PeerDiffers as error:
                raise self.fail(error) from None
        return [each for each in listed if each.size]

    def _wait(self, requests: list[Any]) -> None:
        deadline = time.monotonic() + self._timeout_s
        pause_s, tests = _PAUSES_S[0], 0
        while not self._mpi.Request.Testall(requests):
            tests += 1
            if tests < _TESTS:
                continue
            if time.monotonic() > deadline:
                raise self.fail(
                    PeerLate(
                        f"operation {self._number - 1}: waited {self._timeout_s:g} s for the other ranks of "
                        "the MPI world; check that all ranks run the same number of batches"
                    )
                )
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _PAUSES_S[1])


def mpi_ranks(me: Membership) -> MpiRanks:
    """Return MPI's world, which must consist of the job's ranks.

    Raises:
        ConfigError: the number or the order of ranks differs.
    """
    ranks = MpiRanks(me.timeout_s)
    if (ranks.rank, ranks.size) != (me.rank, me.size):
        raise ConfigError(
            f"this process is rank {ranks.rank} of {ranks.size} in MPI but rank {me.rank} of "
            f"{me.size} in the job; PADDLE_COLLECTIVE_WAY=tcp needs no MPI"
        )
    return ranks
