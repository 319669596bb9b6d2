# SPDX-License-Identifier: Apache-2.0
"""modified_huber_loss: a loss for two-class classification, quadratic near the margin and linear far outside it."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.ops.base.registry import gradient, operator
from paddle.ops.base.shapes import same


@operator(
    "modified_huber_loss",
    "X Y -> IntermediateVal~ Out",
    infer="X(N, M), Y(N, M) -> X(N, M), X(N, M)",
    fresh=True,
)
def modified_huber_loss(x: Array, y: Array) -> tuple[Array, Array]:
    """Return z = (2 Y - 1) X for Y of 0 or 1, and the loss: -4 z for z < -1, (1 - z)² for z < 1, otherwise 0."""
    same(x.shape, y.shape, "X and Y")
    xp = array_module(x)
    z = (2 * y - 1) * x
    margin = xp.maximum(1 - z, 0)
    return z, xp.where(z < -1, -4 * z, margin * margin).astype(x.dtype, copy=False)


@gradient("modified_huber_loss", "Y IntermediateVal Out@GRAD -> X@GRAD", fresh=True)
def modified_huber_loss_grad(y: Array, z: Array, dout: Array) -> Array:
    """Return dX = (2 Y - 1) dOut, times -4 for z < -1, -2 (1 - z) for z < 1, otherwise 0."""
    xp = array_module(z)
    slope = xp.where(z < -1, -4, -2 * xp.maximum(1 - z, 0))
    return ((2 * y - 1) * slope * dout).astype(dout.dtype, copy=False)
