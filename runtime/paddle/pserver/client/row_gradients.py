# SPDX-License-Identifier: Apache-2.0
"""Gradients of single rows as programs have them: ids of any shape, in any order, some more than once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paddle.errors import ConfigError
from paddle.optim.spec import RowGradient
from paddle.pserver.client.interop import host_array

_ID_TYPES = (np.dtype(np.int64), np.dtype(np.int32))


def read_ids(array: Any, what: str) -> npt.NDArray[np.int64]:
    """Return row ids, of any shape, as int64.

    Raises:
        ConfigError: they are not int64 or int32.
    """
    ids = host_array(array, what)
    if ids.dtype not in _ID_TYPES:
        raise ConfigError(f"{what}: expected int64 or int32, got {ids.dtype}")
    return ids.astype(np.int64, copy=False)


def row_gradient(ids: Any, values: Any, what: str) -> RowGradient:
    """Return the gradient of rows, each row once, with its values summed in the order given.

    Args:
        ids: (...) int64 or int32.
        values: (..., width) float32.
        what: how an error calls it.

    Raises:
        ConfigError: the shapes do not fit, or a dtype is wrong.
    """
    rows = read_ids(ids, f"row ids of {what}")
    found = host_array(values, what)
    if found.dtype != np.float32 or found.ndim != rows.ndim + 1 or found.shape[:-1] != rows.shape:
        expected = ", ".join(map(str, rows.shape))
        raise ConfigError(
            f"{what}: expected ({expected}, width) float32 for ids {rows.shape}, got {found.shape} {found.dtype}"
        )
    rows, found = rows.reshape(-1), found.reshape(-1, found.shape[-1])
    if (np.diff(rows) > 0).all():
        return RowGradient(rows, np.ascontiguousarray(found))
    order = np.argsort(rows, kind="stable")
    rows = rows[order]
    starts = np.flatnonzero(np.concatenate(([True], rows[1:] != rows[:-1])))
    return RowGradient(rows[starts], np.add.reduceat(found[order], starts, axis=0))
