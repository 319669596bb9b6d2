# SPDX-License-Identifier: Apache-2.0
"""What update operators do with their gradient and their rate before the arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.errors import ShapeError
from paddle.ops.base.selected_rows import SelectedRows


def dense(grad: Any, param: Array) -> Array:
    """Return a gradient as an array; rows that selected rows lack are 0.

    Raises:
        ShapeError: it does not fit the parameter.
    """
    if grad.shape != param.shape:
        raise ShapeError(f"the gradient {grad.shape} does not fit the parameter {param.shape}")
    return grad.to_dense() if isinstance(grad, SelectedRows) else grad


def merged(grad: SelectedRows, param: Array) -> SelectedRows:
    """Return a sparse gradient with each row once.

    Raises:
        ShapeError: it does not fit the parameter.
    """
    if grad.shape != param.shape:
        raise ShapeError(f"the sparse gradient {grad.shape} does not fit the parameter {param.shape}")
    return grad.merged()


def scalar(value: Array) -> Any:
    """Return the number in an array of one; on a GPU the array itself, which needs no wait."""
    return value.item() if isinstance(value, np.ndarray) else value.reshape(())
