# SPDX-License-Identifier: Apache-2.0
"""Who looks up and updates rows in this process: our table, and numpy on a dense array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from benchmarks.tables.workload import WIDTH, Floats, Ids, Workload
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.hash_table import HashTable
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.slabs import Memory, map_memory
from paddle.pserver.sparse.spec import TableSpec

RATE, EPSILON = 0.1, 1e-6
_HUGE = 2 << 20


class Side(Protocol):
    """Somebody with a table whose rows are known by position."""

    def lookup(self, positions: Ids) -> None:
        """Fetch the rows into an array."""

    def update(self, positions: Ids, gradient: Floats) -> None:
        """Take one AdaGrad step; equal positions add up."""


class Ours:
    """The growing table; ids are arbitrary, and gradients are checked as those from the wire are."""

    def __init__(self, load: Workload, allocate: Callable[[int], Memory] = map_memory) -> None:
        """Make an empty table.

        Args:
            allocate: where it gets memory from.
        """
        spec = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.uniform(-0.1, 0.1, 1))
        optimizer = OptimizerSpec("adagrad", {"epsilon": EPSILON}, learning_rate=RATE)
        self._served = ServedTable(GrowingShare(spec, 0, 1), optimizer)
        self.table = self._served.table = HashTable(spec, optimizer, allocate)
        self._ids, self._out = load.ids, np.empty(load.gradient.shape, np.float32)

    def lookup(self, positions: Ids) -> None:
        """See `Side`."""
        self.table.lookup(self._ids[positions], out=self._out)

    def update(self, positions: Ids, gradient: Floats) -> None:
        """See `Side`."""
        step = RowGradient(self._ids[positions], gradient)
        self._served.check(step)
        self._served.update([step], RATE)


class Pool:
    """Memory that was touched before anybody asks for it."""

    def __init__(self, nbytes: int) -> None:
        self._memory = map_memory(nbytes)
        self._memory[:: _HUGE >> 9] = 0
        self._used = 0

    def allocate(self, nbytes: int) -> Memory:
        """Return the next bytes.

        Raises:
            MemoryError: there are not so many left.
        """
        start, self._used = self._used, self._used + (nbytes + _HUGE - 1 & -_HUGE)
        if self._used > len(self._memory):
            raise MemoryError(f"the pool has {len(self._memory)} bytes")
        return self._memory[start : start + nbytes]


class Numpy:
    """Dense arrays, for ids that are positions already."""

    def __init__(self, load: Workload) -> None:
        self._w = np.random.default_rng(1).random((len(load.ids), WIDTH), np.float32)
        self._s = np.full_like(self._w, 0.1)
        self._out = np.empty(load.gradient.shape, np.float32)

    def lookup(self, positions: Ids) -> None:
        """See `Side`."""
        np.take(self._w, positions, axis=0, out=self._out, mode="clip")

    def update(self, positions: Ids, gradient: Floats) -> None:
        """See `Side`."""
        order = np.argsort(positions, kind="stable")
        ordered = positions[order]
        starts = np.flatnonzero(np.diff(ordered, prepend=-1))
        g = np.add.reduceat(gradient[order], starts)
        rows = ordered[starts]
        s = self._s[rows] + g * g
        self._s[rows] = s
        self._w[rows] -= RATE * g / np.sqrt(s + EPSILON)
