# SPDX-License-Identifier: Apache-2.0
"""Updates the touched rows of a sparse parameter and decays the others lazily.

A touched row gets its rule without decay and then the decay of all k batches since it was last decayed:
w *= 1/(1 + ηλk), or a threshold of ηλ₁k. `catch_up` brings every row to the present. Momentum needs the
rule "sparse_momentum", since a row's momentum would have to act on batches that do not touch it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.row_step import RowStep, Since
from paddle.optim.rules.rule import Array
from paddle.optim.spec import OptimizerSpec, ParameterSpec, RowGradient

_ALPHA_LIMIT = 1e6
# Rows brought to the present at a time, so that a huge table needs little extra memory.
_ROWS = 1 << 14


class SparseMomentumRows:
    """Rows with momentum that are touched now and then, as if every row had been updated in every batch.

    Scalars move with every batch: τ += β/α;  α /= μ;  β /= 1 + λη. A touched row then takes u −= αηg;  v +=
    ταηg, and its value is w = (τ/β + 1/α)u + v/β. At the start α = β = 1, τ = −1, u = 0, v = w. α grows without
    bound, so that all rows are folded back (u /= α, v = w) once it passes 10⁶.
    """

    def __init__(self, parameter: ParameterSpec, height: int, width: int) -> None:
        """Prepare.

        Raises:
            ConfigError: the parameter has no momentum, or L1 decay.
        """
        if not 0 < parameter.momentum < 1:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: sparse momentum needs a momentum between 0 and 1, "
                f"got {parameter.momentum}; use Momentum(momentum=0) without sparse=True for plain steps"
            )
        if parameter.l1:
            raise ConfigError(
                f"parameter {parameter.name}: sparse momentum has no L1 decay, got l1={parameter.l1}"
            )
        self._parameter = parameter
        # w is a difference of numbers up to α times as large: float32 would leave it two digits.
        self._u = np.zeros((height, width), np.float64)
        self._v = np.zeros((height, width), np.float64)
        self._touched = np.zeros(height, np.bool_)
        self._restart()

    def update(self, table: Array, rows: npt.NDArray[np.int64], values: Array, learning_rate: float) -> None:
        """See `SparseUpdater.update`."""
        parameter = self._parameter
        eta = learning_rate * parameter.learning_rate
        self._tau += self._beta / self._alpha
        self._alpha /= parameter.momentum
        self._beta /= 1.0 + parameter.l2 * eta
        fresh = rows[~self._touched[rows]]
        self._v[fresh] = table[fresh]
        self._touched[fresh] = True
        g = np.clip(values, -parameter.clip, parameter.clip) if parameter.clip else values
        step = self._alpha * eta * g.astype(np.float64)
        self._u[rows] -= step
        self._v[rows] += self._tau * step
        table[rows] = self._value(rows)
        if self._alpha > _ALPHA_LIMIT:
            self._fold(table)

    @property
    def folds(self) -> bool:
        """Whether the next update folds all rows back."""
        return self._alpha / self._parameter.momentum > _ALPHA_LIMIT

    def catch_up(self, table: Array, learning_rate: float) -> None:
        """See `SparseUpdater.catch_up`."""
        for rows in self._slices():
            table[rows] = self._value(rows)

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """See `SparseUpdater.columns`."""
        return {"u": self._u, "v": self._v, "touched": self._touched}

    @property
    def numbers(self) -> dict[str, float]:
        """See `SparseUpdater.numbers`."""
        return {"alpha": self._alpha, "beta": self._beta, "tau": self._tau}

    def resume(self, numbers: Mapping[str, float]) -> None:
        """See `SparseUpdater.resume`."""
        self._alpha, self._beta, self._tau = (float(numbers[name]) for name in ("alpha", "beta", "tau"))

    def _value(self, rows: npt.NDArray[np.int64]) -> Array:
        # (rows, width)
        value = (self._tau / self._beta + 1.0 / self._alpha) * self._u[rows] + self._v[rows] / self._beta
        return value.astype(np.float32)

    def _fold(self, table: Array) -> None:
        for rows in self._slices():
            table[rows] = self._value(rows)
            self._u[rows] /= self._alpha
            self._v[rows] = table[rows]
        self._restart()

    def _restart(self) -> None:
        self._alpha, self._beta, self._tau = 1.0, 1.0, -1.0

    def _slices(self) -> list[npt.NDArray[np.int64]]:
        rows = np.flatnonzero(self._touched)
        return [rows[start : start + _ROWS] for start in range(0, len(rows), _ROWS)]


class _Rows(Protocol):
    def update(
        self, table: Array, rows: npt.NDArray[np.int64], values: Array, learning_rate: float
    ) -> None: ...
    def catch_up(self, table: Array, learning_rate: float) -> None: ...
    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]: ...
    @property
    def numbers(self) -> dict[str, float]: ...
    def resume(self, numbers: Mapping[str, float]) -> None: ...


class SparseUpdater:
    """An update rule with its state for a table of `height` rows. Not thread-safe."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec, height: int, width: int) -> None:
        """Prepare the state; its memory is committed as rows are touched.

        Raises:
            ConfigError: the rule cannot update single rows, or the parameter has momentum or is static.
        """
        if parameter.static:
            raise ConfigError(f"parameter {parameter.name} is static: it cannot be updated")
        self._parameter, self._shape = parameter, (height, width)
        self._rows: _Rows = (
            SparseMomentumRows(parameter, height, width)
            if optimizer.rule == "sparse_momentum"
            else _LazyRows(optimizer, parameter, height, width)
        )

    def update(self, table: Array, gradient: RowGradient, learning_rate: float) -> None:
        """Take one step of the whole table: one batch, whose gradient touches the rows given.

        Args:
            table: (height, width) float32, changed in place.
            gradient: rows strictly ascending within the table; not changed. May be empty: then the batch
                just counts.
            learning_rate: what `LearningRate.at` gave.

        Raises:
            ConfigError: a shape, dtype or row is not as above; the table is unchanged.
        """
        rows, values = gradient
        what = f"parameter {self._parameter.name}"
        if table.shape != self._shape or table.dtype != np.float32:
            raise ConfigError(
                f"{what}: expected a table of {self._shape} float32, got {table.shape} {table.dtype}"
            )
        if values.shape != (len(rows), self._shape[1]) or values.dtype != np.float32:
            expected = (len(rows), self._shape[1])
            raise ConfigError(
                f"row gradient of {what}: expected {expected} float32, got {values.shape} {values.dtype}"
            )
        check_rows(rows, self._shape[0], what)
        self._rows.update(table, rows, values, learning_rate)

    def catch_up(self, table: Array, learning_rate: float) -> None:
        """Bring rows not touched lately to the present, in place; doing it twice changes nothing."""
        self._rows.catch_up(table, learning_rate)

    @property
    def folds(self) -> bool:
        """Whether the next `update` changes rows beyond those given."""
        return isinstance(self._rows, SparseMomentumRows) and self._rows.folds

    @property
    def catches_up(self) -> bool:
        """Whether `catch_up` may change anything."""
        parameter = self._parameter
        return bool(parameter.l1 or parameter.l2 or parameter.momentum)

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """The arrays (height, ...) kept beside the table, by name: not copied; who changes them changes the state."""
        return self._rows.columns

    @property
    def numbers(self) -> dict[str, float]:
        """What is kept for all rows together."""
        return self._rows.numbers

    def resume(self, numbers: Mapping[str, float]) -> None:
        """Take over the `numbers` of another updater; `columns` are to be filled by the caller."""
        self._rows.resume(numbers)


def check_rows(rows: npt.NDArray[np.int64], height: int, what: str) -> None:
    """Check that `rows` is (n,) int64, strictly ascending, within 0 .. height-1.

    Raises:
        ConfigError: it is not; the message begins with `what`.
    """
    if rows.ndim != 1 or rows.dtype != np.int64:
        raise ConfigError(f"{what}: expected row ids as (n,) int64, got {rows.shape} {rows.dtype}")
    if not len(rows):
        return
    wrong_order = rows[1:] <= rows[:-1]
    if wrong_order.any():
        at = int(np.argmax(wrong_order))
        raise ConfigError(
            f"{what}: expected row ids strictly ascending, got {rows[at]} before {rows[at + 1]}"
        )
    if rows[0] < 0 or rows[-1] >= height:
        beyond = rows[0] if rows[0] < 0 else rows[-1]
        raise ConfigError(f"{what}: expected row ids from 0 to {height - 1}, got {beyond}")


class _LazyRows:
    """Any rule without momentum, on rows, with lazy decay."""

    def __init__(self, optimizer: OptimizerSpec, parameter: ParameterSpec, height: int, width: int) -> None:
        self._step = RowStep(optimizer, parameter)
        if not self._step.rule.handles_rows:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: {optimizer.rule} cannot update single rows; "
                "use another optimizer, or sparse_update=False"
            )
        if parameter.momentum:
            raise ConfigError(
                f"parameter {parameter.name} is sparse: momentum must be 0, got {parameter.momentum}; "
                "use Momentum(sparse=True), or sparse_update=False"
            )
        self._state = {name: np.zeros((height, width), np.float32) for name in self._step.states}
        self._touched = np.zeros(height, np.int64)  # batch of the last gradient, 0: never
        self._decayed = np.zeros(height, np.int64)  # batch up to which decay was applied
        self._batches = 0

    def update(self, table: Array, rows: npt.NDArray[np.int64], values: Array, learning_rate: float) -> None:
        self._batches += 1
        w = table[rows]
        state = {name: array[rows] for name, array in self._state.items()}
        touched = self._touched[rows][:, None]
        elapsed = (self._batches - touched).astype(np.float32)
        since = Since(elapsed, touched == 0, self._undecayed(rows))
        self._step.apply(w, values, state, since, self._batches, learning_rate)
        table[rows] = w
        for name, array in state.items():
            self._state[name][rows] = array
        self._touched[rows] = self._batches
        self._decayed[rows] = self._batches

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        return {**self._state, "touched": self._touched, "decayed": self._decayed}

    @property
    def numbers(self) -> dict[str, float]:
        return {"batches": self._batches}

    def resume(self, numbers: Mapping[str, float]) -> None:
        self._batches = int(numbers["batches"])

    def catch_up(self, table: Array, learning_rate: float) -> None:
        if not self._step.decays:
            return
        for start in range(0, len(table), _ROWS):
            rows = np.arange(start, min(start + _ROWS, len(table)))
            self._step.decay(table[start : start + _ROWS], self._undecayed(rows), learning_rate)
            self._decayed[rows] = self._batches

    def _undecayed(self, rows: npt.NDArray[np.int64]) -> Array:
        undecayed: Array = (self._batches - self._decayed[rows]).astype(np.float32)[:, None]
        return undecayed
