# SPDX-License-Identifier: Apache-2.0
"""DenseUpdater: updates one dense parameter, or those blocks of it that one server stores.

Splitting a parameter into blocks does not change its values, unless its rule needs the whole parameter (LARS, LAMB).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from paddle.errors import ConfigError
from paddle.optim.clip import clip_by_value
from paddle.optim.rules.rule import Array, Step, decay, penalized
from paddle.optim.spec import OptimizerSpec, ParameterSpec, rate_of, rule_of

# Elements per slice, so few that a rule's intermediate results stay in the processor's cache.
_SLICE = 1 << 14
# Elements announced to observers at a time, so few that a copy leaves them in a cache.
_ANNOUNCED = 1 << 19


class DenseUpdater:
    """An update rule with the state for one parameter, or a part, of `size` elements. Not thread-safe.

    Attributes:
        batches: number of steps taken, including those that other code has taken for a rule without state.
    """

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec, size: int) -> None:
        """Prepare an updater; the first update creates the state, on the device of the value.

        Raises:
            ConfigError: the parameter is static, or has a momentum although the rule has its own.
        """
        if parameter.static:
            raise ConfigError(f"parameter {parameter.name} is static and cannot be updated")
        self._optimizer, self._parameter, self._size = optimizer, parameter, size
        self._rule = rule_of(optimizer)
        if self._rule.row_keeps:
            raise ConfigError(
                f"parameter {parameter.name}: {optimizer.rule} stores one number per row and needs a "
                "sparse parameter; use adagrad or fluid_adagrad"
            )
        if self._rule.penalizes_gradient and parameter.momentum:
            raise ConfigError(
                f"parameter {parameter.name}: {optimizer.rule} does not use a parameter's momentum, "
                f"got {parameter.momentum}; set the rule's hyperparameters instead"
            )
        self._state: dict[str, Array] = {}
        self.batches = 0

    def update(
        self,
        value: Array,
        grad: Array,
        learning_rate: float,
        changing: Callable[[int, int], None] | None = None,
    ) -> None:
        """Take one step: clip the gradient, apply the rule, decay.

        Args:
            value: (size,) float32, changed in place.
            grad: (size,) float32, summed over the batch and over trainers; not changed.
            learning_rate: the result of `LearningRate.at`.
            changing: called with (start, stop) before that range of the value and the state is changed.

        Raises:
            ConfigError: a shape or dtype is wrong.
        """
        for what, array in (("value", value), ("gradient", grad)):
            if array.shape != (self._size,) or array.dtype != np.float32:
                raise ConfigError(
                    f"{what} of parameter {self._parameter.name}: expected ({self._size},) float32, "
                    f"got {array.shape} {array.dtype}"
                )
        if not self.batches:
            self._state = {name: np.zeros_like(value) for name in self.kept}
        self.batches += 1
        by_slices = isinstance(value, np.ndarray) and not self._rule.needs_whole
        slice_size = _SLICE if by_slices else max(self._size, 1)
        step = self._step(learning_rate)
        announced = 0
        for start in range(0, self._size, slice_size):
            if changing is not None and start == announced:
                announced = min(start + max(slice_size, _ANNOUNCED), self._size)
                changing(start, announced)
            part = slice(start, start + slice_size)
            self._update(
                value[part], grad[part], {name: array[part] for name, array in self._state.items()}, step
            )

    @property
    def columns(self) -> dict[str, Array]:
        """The rule's state arrays (size,) by name, not copied; empty before the first step."""
        return self._state if self.batches else {}

    @property
    def kept(self) -> tuple[str, ...]:
        """The names of the state arrays that `columns` contains after the first step."""
        return self._rule.states(self._parameter.momentum)

    def resume(self, batches: int, columns: dict[str, Array]) -> None:
        """Continue from the state of another updater of the same parameter; its arrays are not copied.

        Raises:
            ConfigError: the arrays do not match this rule's state.
        """
        expected = set(self.kept) if batches else set()
        if set(columns) != expected or any(array.shape != (self._size,) for array in columns.values()):
            raise ConfigError(
                f"state of parameter {self._parameter.name}: expected {sorted(expected)} of ({self._size},), "
                f"got { {name: array.shape for name, array in columns.items()} }"
            )
        self.batches, self._state = batches, columns

    def _step(self, learning_rate: float) -> Step:
        parameter = self._parameter
        return Step(
            eta=rate_of(self._rule, self._optimizer, parameter, learning_rate),
            l2=0.0 if parameter.l1 or self._rule.penalizes_gradient else parameter.l2,
            mu=parameter.momentum,
            t=self.batches,
            first=self.batches == 1,
        )

    def _update(self, w: Array, g: Array, state: dict[str, Array], step: Step) -> None:
        parameter = self._parameter
        if parameter.clip:
            g = clip_by_value(g, -parameter.clip, parameter.clip)
        if self._rule.penalizes_gradient:
            self._rule.update(w, penalized(g, w, parameter.l1, parameter.l2), state, step)
            return
        r = self._rule.update(w, g, state, step)
        if parameter.l1:
            scale = step.eta if r is None else step.eta * r
            decay(w, scale * parameter.l1, scale * parameter.l2 if parameter.l2 else None)
