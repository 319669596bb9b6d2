# SPDX-License-Identifier: Apache-2.0
"""Sparse updates: rows with a gradient are updated, and the decay of other rows is deferred.

A touched row is updated by its rule without decay, then decayed for all k batches since its last decay: w *= 1/(1 +
ηλk), or soft thresholding by ηλ₁k. `catch_up` decays all rows up to the current batch, and `current` copies of rows.
Momentum needs the rule "sparse_momentum", since a row's momentum would have to act on batches that do not touch it.

`RowStep` takes this step on rows that the caller has gathered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.rules.rule import Array, State, Step, decay
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient, rate_of, rule_of
from paddle_node.contract.classes import NamedTuple


class Since(NamedTuple):
    """The history of n rows: the numbers of batches since each was last updated and decayed.

    Attributes:
        elapsed: (n, 1) float32, the batches since its last gradient, including this one.
        first: (n, 1) bool, whether this is its first gradient.
        undecayed: (n, 1) float32, the batches since it was last decayed, including this one.
    """

    elapsed: npt.NDArray[np.float32]
    first: npt.NDArray[np.bool_]
    undecayed: npt.NDArray[np.float32]


class RowStep:
    """An update rule for rows of one parameter that the caller gathers.

    It stores no rows and is thread-safe.
    """

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec) -> None:
        self._optimizer, self._parameter = optimizer, parameter
        self.rule = rule_of(optimizer)
        self.states = self.rule.states(parameter.momentum)
        self.row_states = self.rule.row_keeps
        self.decays = bool(parameter.l1 or parameter.l2)

    def apply(self, w: Array, g: Array, state: State, since: Since, batch: int, learning_rate: float) -> None:
        """Update rows `w` (n, width) and their `state` in place, given their summed gradient `g`."""
        parameter = self._parameter
        if parameter.clip:
            g = np.clip(g, -parameter.clip, parameter.clip)
        eta = rate_of(self.rule, self._optimizer, parameter, learning_rate)
        step = Step(eta, 0.0, parameter.momentum, batch, since.elapsed, since.first)
        self.rule.update(w, g, state, step)
        self.decay(w, since.undecayed, learning_rate)

    def decay(self, w: Array, undecayed: npt.NDArray[np.float32], learning_rate: float) -> None:
        """Apply deferred decay to rows `w` (n, width) in place, each for its number of batches (n, 1)."""
        l1, l2 = self._parameter.l1, self._parameter.l2
        if not self.decays:
            return
        eta = rate_of(self.rule, self._optimizer, self._parameter, learning_rate)
        decay(w, eta * l1 * undecayed if l1 else None, eta * l2 * undecayed if l2 else None)


Rows = npt.NDArray[np.int64]

_ALPHA_LIMIT = 1e6
# Rows whose decay is applied at a time, so that a huge table needs little extra memory.
_ROWS = 1 << 14


class SparseUpdater(ABC):
    """An update rule with its state for a table of `height` rows. Not thread-safe.

    Attributes:
        columns: the state arrays (height, ...) by name, not copied.
        numbers: the state that all rows share.
        catches_up: whether `catch_up` may change anything.
    """

    @staticmethod
    def of(optimizer: OptimizerSpec, parameter: ParameterSpec, height: int, width: int) -> SparseUpdater:
        """Create an updater for a table of `height` rows.

        Memory for its state is committed when rows are first updated.

        Raises:
            ConfigError: the rule cannot update single rows, or the parameter has momentum or is static.
        """
        if parameter.static:
            raise ConfigError(f"parameter {parameter.name} is static and cannot be updated")
        kind = _MomentumRows if optimizer.rule == "sparse_momentum" else _LazyRows
        return kind(optimizer, parameter, height, width)

    def __init__(self, parameter: ParameterSpec, height: int, width: int) -> None:
        self._parameter, self._shape = parameter, (height, width)
        self.columns: dict[str, npt.NDArray[Any]] = {}
        self.numbers: dict[str, float] = {}
        self.catches_up = bool(parameter.l1 or parameter.l2 or parameter.momentum)

    def update(self, table: Array, gradient: RowGradient, learning_rate: float) -> None:
        """Take one step of the whole table, for one batch; only the rows of the gradient are updated.

        Args:
            table: (height, width) float32, changed in place.
            gradient: rows of the table, strictly ascending; not changed. An empty gradient only counts the batch.
            learning_rate: the result of `LearningRate.at`.

        Raises:
            ConfigError: a shape, dtype or row is invalid; the table is unchanged.
        """
        rows, values = gradient
        what, expected = f"parameter {self._parameter.name}", (len(rows), self._shape[1])
        if table.shape != self._shape or table.dtype != np.float32:
            raise ConfigError(
                f"{what}: expected a table of {self._shape} float32, got {table.shape} {table.dtype}"
            )
        if values.shape != expected or values.dtype != np.float32:
            raise ConfigError(
                f"row gradient of {what}: expected {expected} float32, got {values.shape} {values.dtype}"
            )
        check_rows(rows, self._shape[0], what)
        self._update(table, rows, values, learning_rate)

    @abstractmethod
    def _update(self, table: Array, rows: Rows, values: Array, learning_rate: float) -> None: ...

    def catch_up(self, table: Array, learning_rate: float) -> None:
        """Apply all deferred decay and momentum in place; a second call changes nothing."""
        for start in range(0, len(table) if self.catches_up else 0, _ROWS):
            table[start : start + _ROWS] = self.current(table, learning_rate, start, _ROWS)

    @abstractmethod
    def current(self, table: Array, learning_rate: float, start: int = 0, count: int | None = None) -> Array:
        """Return a copy of `count` rows (fewer at the end; None means all) as `catch_up` would leave them."""

    @property
    def folds(self) -> bool:
        """Return whether the next `update` also changes rows without a gradient."""
        return False

    def resume(self, numbers: Mapping[str, float]) -> None:
        """Continue with the `numbers` of another updater; the caller fills `columns`."""
        self.numbers.update({name: type(own)(numbers[name]) for name, own in self.numbers.items()})


def check_rows(rows: npt.NDArray[np.int64], height: int, what: str) -> None:
    """Check that `rows` is (n,) int64, strictly ascending, within 0 .. height-1.

    Raises:
        ConfigError: `rows` does not meet these conditions; the message begins with `what`.
    """
    if rows.ndim != 1 or rows.dtype != np.int64:
        raise ConfigError(f"{what}: expected row ids as (n,) int64, got {rows.shape} {rows.dtype}")
    if not len(rows):
        return
    wrong_order = rows[1:] <= rows[:-1]
    if wrong_order.any():
        at = int(np.argmax(wrong_order))
        raise ConfigError(
            f"{what}: expected strictly ascending row ids, got {rows[at]} before {rows[at + 1]}"
        )
    if rows[0] < 0 or rows[-1] >= height:
        beyond = rows[0] if rows[0] < 0 else rows[-1]
        raise ConfigError(f"{what}: expected row ids from 0 to {height - 1}, got {beyond}")


class _LazyRows(SparseUpdater):
    """Applies a rule without momentum to rows, with lazy decay."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec, height: int, width: int) -> None:
        super().__init__(parameter, height, width)
        self._step = RowStep(optimizer, parameter)
        if not self._step.rule.handles_rows:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: {optimizer.rule} cannot update single rows; "
                "use a different optimizer, or sparse_update=False"
            )
        if parameter.momentum:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: momentum must be 0, got {parameter.momentum}; "
                "use Momentum(sparse=True), or sparse_update=False"
            )
        self._state = {name: np.zeros((height, width), np.float32) for name in self._step.states}
        self._state |= {name: np.zeros((height, 1), np.float32) for name in self._step.row_states}
        self._touched = np.zeros(height, np.int64)  # batch of the last gradient, 0: never
        self._decayed = np.zeros(height, np.int64)  # batch up to which decay was applied
        self.columns = {**self._state, "touched": self._touched, "decayed": self._decayed}
        self.numbers = {"batches": 0}

    def _update(self, table: Array, rows: Rows, values: Array, learning_rate: float) -> None:
        self.numbers["batches"] += 1
        batch = int(self.numbers["batches"])
        w = table[rows]
        state = {name: array[rows] for name, array in self._state.items()}
        touched = self._touched[rows][:, None]
        since = Since((batch - touched).astype(np.float32), touched == 0, self._undecayed(rows))
        self._step.apply(w, values, state, since, batch, learning_rate)
        table[rows] = w
        for name, array in state.items():
            self._state[name][rows] = array
        self._touched[rows] = self._decayed[rows] = batch

    def current(self, table: Array, learning_rate: float, start: int = 0, count: int | None = None) -> Array:
        """Return decayed copies of rows; see `SparseUpdater.current`."""
        rows = slice(start, None if count is None else start + count)
        w = table[rows].copy()
        self._step.decay(w, self._undecayed(rows), learning_rate)
        return w

    def catch_up(self, table: Array, learning_rate: float) -> None:
        """Apply all deferred decay in place; a second call changes nothing."""
        super().catch_up(table, learning_rate)
        if self.catches_up:
            self._decayed[...] = self.numbers["batches"]

    def _undecayed(self, rows: Rows | slice) -> Array:
        return (self.numbers["batches"] - self._decayed[rows]).astype(np.float32)[:, None]


class _MomentumRows(SparseUpdater):
    """Rows with momentum, updated as if every row had been updated in every batch.

    Scalars move with every batch: τ += β/α;  α /= μ;  β /= 1 + λη. A touched row then takes u −= αηg;  v +=
    ταηg, and its value is w = (τ/β + 1/α)u + v/β. At the start α = β = 1, τ = −1, u = 0, v = w. α grows without
    bound, so that all rows are folded back (u /= α, v = w) once it passes 10⁶.
    """

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec, height: int, width: int) -> None:
        super().__init__(parameter, height, width)
        if not 0 < parameter.momentum < 1:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: sparse momentum needs a momentum between 0 and 1, "
                f"got {parameter.momentum}; use Momentum(momentum=0) without sparse=True for plain steps"
            )
        if parameter.l1:
            raise ConfigError(
                f"parameter {parameter.name}: sparse momentum does not support L1 decay, got l1={parameter.l1}"
            )
        # w is a difference of numbers up to α times as large: float32 would leave it two digits.
        self._u, self._v = (np.zeros((height, width), np.float64) for _ in range(2))
        self._touched = np.zeros(height, np.bool_)
        self.columns = {"u": self._u, "v": self._v, "touched": self._touched}
        self._restart()

    @property
    def folds(self) -> bool:
        """Return whether the next `update` changes rows that have no gradient."""
        return self.numbers["alpha"] / self._parameter.momentum > _ALPHA_LIMIT

    def _update(self, table: Array, rows: Rows, values: Array, learning_rate: float) -> None:
        parameter, n = self._parameter, self.numbers
        eta = learning_rate * parameter.learning_rate
        n["tau"] += n["beta"] / n["alpha"]
        n["alpha"] /= parameter.momentum
        n["beta"] /= 1.0 + parameter.l2 * eta
        fresh = rows[~self._touched[rows]]
        self._v[fresh] = table[fresh]
        self._touched[fresh] = True
        g = np.clip(values, -parameter.clip, parameter.clip) if parameter.clip else values
        step = n["alpha"] * eta * g.astype(np.float64)
        self._u[rows] -= step
        self._v[rows] += n["tau"] * step
        table[rows] = self._value(rows)
        if n["alpha"] > _ALPHA_LIMIT:
            for some in self._slices():
                table[some] = self._value(some)
                self._u[some] /= n["alpha"]
                self._v[some] = table[some]
            self._restart()

    def current(self, table: Array, learning_rate: float, start: int = 0, count: int | None = None) -> Array:
        """Return copies of rows with deferred momentum and decay applied; see `SparseUpdater.current`."""
        rows = slice(start, None if count is None else start + count)
        w, touched = table[rows].copy(), np.flatnonzero(self._touched[rows])
        w[touched] = self._value(start + touched)
        return w

    def _value(self, rows: Rows) -> Array:
        alpha, beta, tau = self.numbers.values()
        value = (tau / beta + 1.0 / alpha) * self._u[rows] + self._v[rows] / beta  # (rows, width)
        return value.astype(np.float32)

    def _restart(self) -> None:
        self.numbers.update(alpha=1.0, beta=1.0, tau=-1.0)

    def _slices(self) -> list[Rows]:
        rows = np.flatnonzero(self._touched)
        return [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]
