# SPDX-License-Identifier: Apache-2.0
"""add_scaled: X + scale Y, as decay adds a parameter to its gradient; compiled plans alone have it."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array
from paddle.ops.base.compiled import kernels_for, read_only
from paddle.ops.base.registry import NO_SLOTS, Spec, operator
from paddle.ops.base.selected_rows import SelectedRows


def _infer(x: Spec, y: Spec) -> Spec:
    return y


@operator("add_scaled", "X Y -> Out", attrs={"scale": float}, infer=_infer, fresh=True)
def add_scaled(x: Any, y: Array, *, scale: float, spent: frozenset[str] = NO_SLOTS) -> Array:
    """Return an array of Y's shape; X may be selected rows."""
    factor = y.dtype.type(scale)
    if isinstance(x, SelectedRows):
        merged, total = x.merged(), y * factor
        total[merged.rows] += merged.values
        return total
    kernels = kernels_for(x.size, x, y) if x.shape == y.shape else None
    if kernels is None:
        total = y * factor
        total += x
        return total
    out = x if "X" in spent else np.empty_like(x)
    kernels.add_scaled(read_only(x.reshape(-1)), read_only(y.reshape(-1)), factor, out.reshape(-1))
    return out
