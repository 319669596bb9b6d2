# SPDX-License-Identifier: Apache-2.0
"""Updates weights in this process, with the same rules as a parameter server."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from paddle.optim.dense import DenseUpdater
from paddle.optim.learning_rate import LearningRate
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.v2.training.feeder import Feed
from paddle.v2.training.gradient_machine import Gradient, GradientMachine
from paddle.v2.training.updater import parameter_spec


class LocalUpdater:
    """One process: gradients go straight into the arrays of the scope."""

    def __init__(self, machine: GradientMachine, optimizer: OptimizerSpec) -> None:
        self._machine = machine
        self._rate = LearningRate(optimizer)
        self._samples = 0
        self._updates = 0
        self._pass_id = 0
        self._dense: dict[str, DenseUpdater] = {}
        self._tables: dict[str, SparseUpdater] = {}
        for name, config in machine.network.parameters.items():
            if config.is_static:
                continue
            spec = parameter_spec(config, sparse=config.sparse_update)
            if config.sparse_update:
                machine.lookups(name)
                self._tables[name] = SparseUpdater.of(optimizer, spec, *config.shape)
            else:
                self._dense[name] = DenseUpdater(optimizer, spec, config.size)

    def skips_pass(self) -> bool:
        """Never: weights that only this process has begin anew with it."""
        return False

    @property
    def first_step(self) -> int:
        """Local training begins at the first batch."""
        return 0

    def skips_batch(self) -> bool:
        """Local training leaves nothing out."""
        return False

    def start_pass(self, pass_id: int) -> None:
        """Begin a pass."""
        self._pass_id = pass_id

    def prepare(self, feed: Feed) -> None:
        """Nothing to fetch."""

    @property
    def looks_ahead(self) -> bool:
        """Of no use: all rows are here."""
        return False

    def update(self, gradients: Mapping[str, Gradient], num_samples: int, ahead: Feed | None = None) -> None:
        """Apply the gradients of a batch."""
        self._samples += num_samples
        rate = self._rate.at(self._samples, self._pass_id, self._updates)
        self._updates += 1
        for name, gradient in gradients.items():
            if isinstance(gradient, RowGradient):
                self._tables[name].update(self.table(name), gradient, rate)
            else:
                self._dense[name].update(self._machine.flat(name), gradient, rate)

    def finish_pass(self) -> None:
        """Apply the decay that rows still owe."""
        self.catch_up()

    def catch_up(self) -> None:
        """Apply the decay that rows still owe."""
        rate = self._rate.at(self._samples, self._pass_id, max(self._updates - 1, 0))
        for name, updater in self._tables.items():
            updater.catch_up(self.table(name), rate)

    def table(self, name: str) -> NDArray[np.float32]:
        """The array of a sparse parameter itself."""
        return self._machine.flat(name).reshape(self._machine.network.parameters[name].shape)

    def close(self) -> None:
        """Nothing to let go of."""
