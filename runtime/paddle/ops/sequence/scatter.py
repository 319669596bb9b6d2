# SPDX-License-Identifier: Apache-2.0
"""sequence_scatter: adds numbers to row i of X at the columns that sequence i of Ids names."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, from_host
from paddle.ops.base.errors import InputError
from paddle.ops.base.lod import plain, sequences
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.segments import owners, scatter_sum


@operator("sequence_scatter", "X Ids+ Updates+ -> Out+", infer="X")
def sequence_scatter(x: Array, ids: Any, updates: Any) -> Array:
    """Out[i, Ids] = X[i, Ids] + Updates, for the ids and updates of sequence i; equal ids add up."""
    places = _places(x, ids)
    added = scatter_sum(plain(updates).reshape(-1), places, x.size)
    return x + added.reshape(x.shape)


@gradient("sequence_scatter", "X Ids+ Updates Out@GRAD -> X@GRAD Updates@GRAD")
def sequence_scatter_grad(x: Array, ids: Any, updates: Array, dout: Array) -> tuple[Array, Array]:
    """dX = dOut, dUpdates = what dOut has at the places."""
    return dout, dout.reshape(-1)[_places(x, ids)].reshape(updates.shape)


def _places(x: Array, ids: Any) -> Array:
    """Return the places in the raveled X.

    Raises:
        InputError: there are not as many sequences as rows, or an id is no column.
    """
    data, offsets = sequences(ids, "Ids")
    columns = data.reshape(-1)
    if len(offsets) - 1 != len(x):
        raise InputError(f"Ids have {len(offsets) - 1} sequences, X has {len(x)} rows")
    if len(columns) and (int(columns.min()) < 0 or int(columns.max()) >= x.shape[1]):
        raise InputError(
            f"ids from {int(columns.min())} to {int(columns.max())} are not in [0, {x.shape[1]})"
        )
    return from_host(owners(offsets) * x.shape[1], columns) + columns
