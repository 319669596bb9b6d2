# SPDX-License-Identifier: Apache-2.0
"""Who looks up and updates rows: our table, numpy on a dense array, PyTorch's sparse embedding."""

from __future__ import annotations

import importlib
from typing import Any, Protocol

import numpy as np

from benchmarks.tables.workload import WIDTH, Floats, Ids, Workload
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.pserver.sparse.initial import Initial
from paddle.pserver.sparse.serving import GrowingShare, ServedTable
from paddle.pserver.sparse.spec import TableSpec

RATE, EPSILON = 0.1, 1e-6


class Side(Protocol):
    """Somebody with a table whose rows are known by position."""

    def lookup(self, positions: Ids) -> None:
        """Fetch the rows into an array."""

    def update(self, positions: Ids, gradient: Floats) -> None:
        """Take one AdaGrad step; equal positions add up."""


class Ours:
    """The growing table; ids are arbitrary, and gradients are checked as those from the wire are."""

    def __init__(self, load: Workload) -> None:
        spec = TableSpec(ParameterSpec("emb", (1, WIDTH), sparse=True), Initial.uniform(-0.1, 0.1, 1))
        optimizer = OptimizerSpec("adagrad", {"epsilon": EPSILON}, learning_rate=RATE)
        self._served = ServedTable(GrowingShare(spec, 0, 1), optimizer)
        self.table = self._served.table
        self._ids, self._out = load.ids, np.empty(load.gradient.shape, np.float32)

    def lookup(self, positions: Ids) -> None:
        """See `Side`."""
        self.table.lookup(self._ids[positions], out=self._out)

    def update(self, positions: Ids, gradient: Floats) -> None:
        """See `Side`."""
        step = RowGradient(self._ids[positions], gradient)
        self._served.check(step)
        self._served.update([step], RATE)


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


class Torch:
    """torch.nn.Embedding(sparse=True) and torch.optim.Adagrad, one thread, for ids that are positions already."""

    def __init__(self, load: Workload) -> None:
        """Make the table.

        Raises:
            RuntimeError: there is no PyTorch.
        """
        try:
            self._torch: Any = importlib.import_module("torch")
        except ImportError as error:
            raise RuntimeError(f"PyTorch is not installed: {error}") from None
        self._torch.set_num_threads(1)
        self._embedding = self._torch.nn.Embedding(len(load.ids), WIDTH, sparse=True)
        self._optimizer = self._torch.optim.Adagrad(self._embedding.parameters(), lr=RATE)

    def lookup(self, positions: Ids) -> None:
        """See `Side`."""
        with self._torch.no_grad():
            self._embedding(self._torch.from_numpy(positions))

    def update(self, positions: Ids, gradient: Floats) -> None:
        """See `Side`."""
        torch, weight = self._torch, self._embedding.weight
        weight.grad = torch.sparse_coo_tensor(
            torch.from_numpy(positions)[None], torch.from_numpy(gradient), weight.shape
        )
        self._optimizer.step()
