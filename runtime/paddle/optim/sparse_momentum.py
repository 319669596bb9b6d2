# SPDX-License-Identifier: Apache-2.0
"""Momentum for rows that are touched now and then, as if every row had been updated in every batch.

Scalars move with every batch: τ += β/α;  α /= μ;  β /= 1 + λη. A touched row then takes u −= αηg;  v +=
ταηg, and its value is w = (τ/β + 1/α)u + v/β. At the start α = β = 1, τ = −1, u = 0, v = w. α grows without
bound, so that all rows are folded back (u /= α, v = w) once it passes 10⁶.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.rules.rule import Array
from paddle.optim.spec import ParameterSpec

_ALPHA_LIMIT = 1e6
_ROWS = 1 << 14


class SparseMomentumRows:
    """The rows of one table."""

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
