# SPDX-License-Identifier: Apache-2.0
"""SelectedRows: a sparse matrix that stores some rows, for the gradient of a table or a cache of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base import kernels
from paddle.ops.base.errors import InputError, ShapeError
from paddle.ops.base.lod import zeros_like
from paddle_node.contract.classes import dataclass


@dataclass(frozen=True, eq=False)
class SelectedRows:
    """A sparse tensor (height, ...), of which only some rows are stored.

    Attributes:
        rows: (n,) int64 row numbers. Values of repeated rows are added; `merged` returns unique, ascending rows.
        values: (n, ...), the values of the rows; the array is not copied.
        height: the number of rows of the full tensor.
        is_merged: whether the rows are known to be unique and ascending.
    """

    rows: Array
    values: Array
    height: int
    is_merged: bool = False

    def __post_init__(self) -> None:
        if self.rows.ndim != 1 or self.rows.dtype != np.int64 or len(self.rows) != len(self.values):
            raise ShapeError(
                f"SelectedRows: expected rows (n,) int64 and values (n, ...), got {self.rows.shape} "
                f"{self.rows.dtype} and {self.values.shape}"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the full tensor."""
        return (self.height, *self.values.shape[1:])

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        dtype: np.dtype[Any] = self.values.dtype
        return dtype

    def merged(self) -> SelectedRows:
        """Merge repeated rows: return the value with unique ascending rows, whose values are summed."""
        if self.is_merged:
            return self
        return SelectedRows(*merge_rows(self.rows, self.values), self.height, is_merged=True)

    def to_dense(self) -> Array:
        """Convert to a dense array (height, ...), with zeros in absent rows."""
        xp = array_module(self.values)
        dense: Array = xp.zeros(self.shape, self.dtype)
        merged = self.merged()
        dense[merged.rows] = merged.values
        return dense

    def gather(self, ids: Array) -> Array:
        """Return the values of the given rows, in the order of the (k,) ids; rows must be unique and ascending.

        Raises:
            InputError: a row is absent.
        """
        xp = array_module(self.rows)
        places = xp.searchsorted(self.rows, ids)
        places = places.clip(max=max(len(self.rows) - 1, 0))
        found = self.rows.take(places) == ids if len(self.rows) else xp.zeros(ids.shape, bool)
        if not found.all():
            missing = ids[~found]
            raise InputError(
                f"row {int(missing[0])} is not among the {len(self.rows)} rows of this SelectedRows "
                f"({len(missing)} of {len(ids)} requested rows are missing)"
            )
        return self.values.take(places, axis=0)


def merge_rows(rows: Array, values: Array) -> tuple[Array, Array]:
    """Sum values by row number; return the unique rows in ascending order, and their sums.

    The sum of a row depends only on its values and their order, so equal inputs give bit-equal sums.
    """
    xp = array_module(rows)
    if len(rows) < 2:
        return rows, values
    order, ordered = _sorted(rows)
    first = xp.empty(len(rows), bool)
    first[0] = True
    xp.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    starts = xp.flatnonzero(first)
    if len(starts) == len(rows):
        return ordered, values.take(order, axis=0)
    return ordered[starts], _sum_segments(values, order, starts)


def _sorted(rows: Array) -> tuple[Array, Array]:
    """Return (the source position of each row, the rows), ascending; the sort is stable."""
    xp = array_module(rows)
    bits = len(rows).bit_length()
    if xp is not np or int(rows.min()) < 0 or int(rows.max()) >> (62 - bits):
        order = rows.argsort(kind="stable")
        return order, rows[order]
    # Row and position packed into one number: these are distinct, and sorting them is faster than argsort.
    #     bits 63, 62: 0 | 61 to `bits`: row | below: position
    keys = rows << bits
    keys |= np.arange(len(rows))
    keys.sort()
    return keys & ((1 << bits) - 1), keys >> bits


def no_gradient(value: Any, is_sparse: bool) -> Any:
    """Return the gradient of a value on which nothing depends: zeros or, if is_sparse, no rows."""
    if not is_sparse:
        return zeros_like(value)
    rows = array_module(value).empty(0, np.int64)
    return SelectedRows(rows, value[:0], len(value), is_merged=True)


def concatenated(parts: Sequence[SelectedRows]) -> SelectedRows:
    """Concatenate the rows of several SelectedRows, without merging repeated rows."""
    xp = array_module(parts[0].rows)
    return SelectedRows(
        xp.concatenate([part.rows for part in parts]),
        xp.concatenate([part.values for part in parts]),
        parts[0].height,
    )


def _sum_segments(values: Array, order: Array, starts: Array) -> Array:
    if values.ndim == 2 and kernels.pay_off(values):
        summed: Array = np.empty((len(starts), values.shape[1]), values.dtype)
        kernels.add_segments(values, order, starts, summed)
        return summed
    return _sum_segments_plainly(values.take(order, axis=0), starts)


def _sum_segments_plainly(values: Array, starts: Array) -> Array:
    xp = array_module(values)
    if xp is np:
        return np.add.reduceat(values, starts, axis=0)
    # cupy has no reduceat; a segment is the difference of two running sums, computed in float64 for
    # precision.
    running = xp.concatenate([xp.zeros((1, *values.shape[1:])), xp.cumsum(values, axis=0, dtype=xp.float64)])
    ends = xp.concatenate([starts[1:], xp.array([len(values)])])
    return (running[ends] - running[starts]).astype(values.dtype)
