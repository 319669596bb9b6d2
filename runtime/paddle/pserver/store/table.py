# SPDX-License-Identifier: Apache-2.0
"""The rows of one sparse parameter on one server, with their updater.

Callers use row ids of the whole table; only this module and `placement` know a row's position on this server.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError, PserverError
from paddle.optim.sparse import SparseUpdater, check_rows
from paddle.optim.spec import OptimizerSpec, RowGradient
from paddle.pserver.store.observer import UNWATCHED, Watch
from paddle.pserver.wire.placement import RowShare

Rows = npt.NDArray[np.int64]
Values = npt.NDArray[np.float32]


class Table:
    """The rows of one sparse parameter on this server, with the update rule's state; zeros until values are set."""

    def __init__(self, share: RowShare, optimizer: OptimizerSpec) -> None:
        self.share = share
        self.watch: Watch = UNWATCHED
        self._values = np.zeros((share.height, share.width), np.float32)
        self._updater = SparseUpdater.of(optimizer, share.parameter, share.height, share.width)

    def set(self, start: int, values: Values) -> None:
        """Overwrite the rows at positions start .. start+len(values)-1 on this server.

        Raises:
            PserverError: the values are out of range, have a different width or dtype, or are not finite.
        """
        stop = start + (len(values) if values.ndim else 0)
        if values.ndim != 2 or values.shape[1] != self.share.width or stop > self.share.height:
            raise PserverError(
                f"values of parameter {self.share.parameter.name}: expected at most "
                f"{self._values.shape} on this server, got {values.shape} starting at row {start}"
            )
        if values.dtype != np.float32 or not np.isfinite(values).all():
            raise PserverError(
                f"values of parameter {self.share.parameter.name}: expected finite float32 values, got NaN, infinity "
                f"or dtype {values.dtype}"
            )
        self.watch.rows(self.share.parameter.name, np.arange(start, stop))
        self._values[start:stop] = values

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        """All per-row arrays (height, ...), by name, not copied; "value" is the rows themselves."""
        return {"value": self._values, **self._updater.columns}

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of the update rule's state that all rows share, by name."""
        return self._updater.numbers

    def resume(self, numbers: dict[str, float]) -> None:
        """Restore the rule's `numbers` that an earlier table returned; the caller fills `columns`."""
        self._updater.resume(numbers)

    def part(self, start: int, count: int) -> Values:
        """Return a copy of the rows at positions start .. start+count-1 on this server, fewer at the end."""
        return self._values[start : start + count].copy()

    def current(self, start: int, count: int, learning_rate: float) -> Values:
        """Return rows like `part`, with pending updates applied to the copies, and not to the table."""
        return self._updater.current(self._values, learning_rate, start, count)

    def rows(self, rows: Rows) -> Values:
        """Return the values (n, width) of row ids (n,), in their order; ids may repeat.

        Raises:
            PserverError: see `check_ids`.
        """
        self.check_ids(rows)
        return self.rows_here(rows)

    def rows_here(self, rows: Rows) -> Values:
        """Return rows like `rows`, for ids that have already been checked."""
        return self._values[self.share.local(rows)]

    @property
    def width(self) -> int:
        """The number of elements per row."""
        return self.share.width

    def check_ids(self, rows: Rows) -> None:
        """Check that row ids from the wire have the right shape and dtype, and are on this server.

        Raises:
            PserverError: the ids are not (n,) int64, or one is not on this server.
        """
        name = self.share.parameter.name
        if rows.ndim != 1 or rows.dtype != np.int64:
            raise PserverError(
                f"parameter {name}: expected row ids as (n,) int64, got {rows.shape} {rows.dtype}"
            )
        height = self.share.parameter.shape[0]
        wrong = (rows < 0) | (rows >= height) | ~self.share.holds(rows)
        if wrong.any():
            raise PserverError(
                f"parameter {name}: row {rows[wrong][0]} is not on this server, which holds rows {self.share.first}, "
                f"{self.share.first + self.share.stride}, ... below {height}"
            )

    def check(self, gradient: RowGradient) -> None:
        """Check that a gradient from the wire fits this table.

        Raises:
            PserverError: the gradient's rows or values do not fit this table.
        """
        rows, values = gradient
        what = f"parameter {self.share.parameter.name}"
        try:
            check_rows(rows, self.share.parameter.shape[0], what)
        except ConfigError as error:
            raise PserverError(str(error)) from None
        if not self.share.holds(rows).all():
            raise PserverError(
                f"{what}: row {rows[~self.share.holds(rows)][0]} belongs to a different server"
            )
        if values.shape != (len(rows), self.share.width) or values.dtype != np.float32:
            expected = (len(rows), self.share.width)
            raise PserverError(
                f"row gradient of {what}: expected {expected} float32, got {values.shape} {values.dtype}"
            )
        if not np.isfinite(values).all():
            row = rows[~np.isfinite(values).all(axis=1)][0]
            raise PserverError(f"gradient of {what}: row {row} contains NaN or infinity; nothing was changed")

    def update(self, gradients: Sequence[RowGradient], learning_rate: float) -> None:
        """Take one step with the sum of checked gradients, added in the given order."""
        gradient = add_rows(gradients, self.share.width)
        local = RowGradient(self.share.local(gradient.rows), gradient.values)
        self.watch.rows(self.share.parameter.name, self._all() if self._updater.folds else local.rows)
        self._updater.update(self._values, local, learning_rate)

    def catch_up(self, learning_rate: float) -> None:
        """Apply pending updates to rows that had no gradient in recent batches."""
        if self._updater.catches_up:
            self.watch.rows(self.share.parameter.name, self._all())
        self._updater.catch_up(self._values, learning_rate)

    def _all(self) -> Rows:
        return np.arange(self.share.height)


def add_rows(gradients: Sequence[RowGradient], width: int) -> RowGradient:
    """Return the sum of row gradients: the union of their rows, with values added in the given order."""
    if len(gradients) == 1:
        return gradients[0]
    if not gradients:
        return RowGradient(np.zeros(0, np.int64), np.zeros((0, width), np.float32))
    rows = np.unique(np.concatenate([gradient.rows for gradient in gradients]))
    values = np.zeros((len(rows), width), np.float32)
    for gradient in gradients:
        # Rows are unique within one gradient, so that plain indexing adds each of them.
        values[np.searchsorted(rows, gradient.rows)] += gradient.values
    return RowGradient(rows, values)
