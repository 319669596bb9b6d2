# SPDX-License-Identifier: Apache-2.0
"""Updaters, which apply gradients to weights: in this process (this module) or on servers (``update_remote``).

`Averager` substitutes averaged values for the newest ones, for saving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
from numpy.typing import NDArray

from paddle.optim import model_average
from paddle.optim.dense import DenseUpdater
from paddle.optim.learning_rate import LearningRate
from paddle.optim.sparse import SparseUpdater
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient
from paddle.v2.optimizer import ModelAverage
from paddle.v2.parameter_format import ParameterConfig
from paddle.v2.training.feeder import Feed
from paddle.v2.training.gradient_machine import Gradient, GradientMachine

Value = NDArray[np.float32]


class Updater:
    """Base class of updaters: hooks for passes and batches of a training run; hooks that only clusters need do nothing.

    Attributes:
        passes_over: the number of passes finished before this process started; the trainer counts it down.
        first_step: the number of batches before the following pass; the trainer resets it.
        looks_ahead: whether `update` uses the next batch.
        continues: whether an earlier process of this trainer may have trained batches.
    """

    passes_over = first_step = 0
    looks_ahead = continues = False

    def start_pass(self) -> None:
        """Begin a pass over the data."""

    def skip_batch(self) -> bool:
        """Skip the next batch, and return True, if it was trained before this process started."""
        return False

    def prepare(self, feed: Feed) -> None:
        """Ensure that the rows that a batch reads are in the scope."""

    def update(self, gradients: Mapping[str, Gradient], num_samples: int, ahead: Feed | None = None) -> None:
        """Apply the gradients of a batch, so that the scope contains the new weights.

        Args:
            ahead: the next batch, if it is known.
        """
        raise NotImplementedError

    def follow(self) -> bool:
        """Once this trainer has no more data, wait for a batch of the other trainers; return whether there was one."""
        return False

    def finish_pass(self) -> None:
        """End a pass over the data; all weights are up to date afterwards."""

    def catch_up(self) -> None:
        """Apply deferred decay to all rows of sparse parameters."""

    def caught_up(self) -> AbstractContextManager[None]:
        """Return a context in which rows include pending decay; servers always send whole tables with decay applied."""
        return nullcontext()

    def table(self, name: str) -> Value:
        """Return all rows of the sparse parameter with this name, as one array."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the updater's connections."""


class LocalUpdater(Updater):
    """An updater that updates the scope's arrays in one process, by the same rules as a parameter server."""

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

    def update(self, gradients: Mapping[str, Gradient], num_samples: int, ahead: Feed | None = None) -> None:
        """Apply the gradients of a batch, at the learning rate of the current sample count."""
        self._samples += num_samples
        rate = self._rate.at(self._samples, self._pass_id, self._updates)
        self._updates += 1
        for name, gradient in gradients.items():
            if isinstance(gradient, RowGradient):
                self._tables[name].update(self.table(name), gradient, rate)
            else:
                self._dense[name].update(self._machine.flat(name), gradient, rate)

    def finish_pass(self) -> None:
        """Apply the rows' pending decay."""
        self.catch_up()
        self._pass_id += 1

    def catch_up(self) -> None:
        """Apply the rows' pending decay."""
        rate = self._current_rate()
        for name, updater in self._tables.items():
            updater.catch_up(self.table(name), rate)

    @contextmanager
    def caught_up(self) -> Iterator[None]:
        """Return a context in which rows include pending decay; training afterwards is unaffected."""
        kept = {name: self.table(name).copy() for name in self._tables}
        try:
            for name, updater in self._tables.items():
                self.table(name)[...] = updater.current(kept[name], self._current_rate())
            yield
        finally:
            for name, value in kept.items():
                self.table(name)[...] = value

    def _current_rate(self) -> float:
        return self._rate.at(self._samples, self._pass_id, max(self._updates - 1, 0))

    def table(self, name: str) -> NDArray[np.float32]:
        """Return the array of a sparse parameter, without a copy."""
        return self._machine.flat(name).reshape(self._machine.network.parameters[name].shape)


def parameter_spec(config: ParameterConfig, *, sparse: bool) -> ParameterSpec:
    """Convert a parameter's configuration to the settings that update rules need."""
    return ParameterSpec(
        name=config.name,
        shape=config.shape,
        learning_rate=config.learning_rate,
        momentum=config.momentum,
        l1=config.decay_rate_l1,
        l2=config.decay_rate,
        clip=config.gradient_clipping_threshold,
        sparse=sparse,
        static=config.is_static,
    )


class Averager:
    """Averages of parameters over updates.

    ``value_of`` returns a parameter's array by name, and ``show`` replaces it.
    """

    def __init__(
        self,
        rule: ModelAverage,
        names: Sequence[str],
        value_of: Callable[[str], Value],
        show: Callable[[str, Value], None],
    ) -> None:
        self._average = model_average.ModelAverage(rule.average_window, rule.max_average_window)
        self._names = tuple(names)
        self._value_of, self._show = value_of, show

    def add(self) -> None:
        """Add the parameters' values after an update to the averages."""
        self._average.add({name: self._value_of(name) for name in self._names})

    def finish_pass(self) -> None:
        """Record the end of a pass."""
        self._average.finish_pass()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Return a context in which the values are replaced with their averages."""
        if not self._average.count:
            yield
            return
        kept = {name: self._value_of(name) for name in self._names}
        try:
            for name, value in kept.items():
                mean = np.empty_like(value)
                self._average.mean(name, mean)
                self._show(name, mean)
            yield
        finally:
            for name, value in kept.items():
                self._show(name, value)
