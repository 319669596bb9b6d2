# SPDX-License-Identifier: Apache-2.0
"""sigmoid_focal_loss: cross entropy per class, with less weight for confident predictions (Lin et al., 2017)."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.ops.base.registry import gradient, operator

_LEAST = float(np.finfo("float32").tiny)


@operator(
    "sigmoid_focal_loss",
    "X Label FgNum -> Out",
    attrs={"gamma": 2.0, "alpha": 0.25},
    infer="X(N, C), Label(N, 1) -> X",
)
def sigmoid_focal_loss(x: Array, label: Array, count: Array, *, gamma: float, alpha: float) -> Array:
    """Return the focal loss (N, C), over FgNum: −α (1 − p)ᵞ ln p for a row's class, −(1 − α) pᵞ ln(1 − p) for others.

    Args:
        x: (N, C) scores before the sigmoid.
        label: (N, 1) int32 1 to C, 0 for background, −1 for a row to ignore.
        count: (1,) int32 FgNum, clipped to at least 1.
    """
    xp = array_module(x)
    right, wrong = _weights(x, label, count, alpha)
    p, rest = _chances(x)
    own = (1 - p) ** gamma * xp.log(xp.maximum(p, _LEAST))
    return (-right * own - wrong * p**gamma * rest).astype(x.dtype)


@gradient("sigmoid_focal_loss", "X Label FgNum Out@GRAD -> X@GRAD")
def sigmoid_focal_loss_grad(
    x: Array, label: Array, count: Array, dout: Array, *, gamma: float, alpha: float
) -> Array:
    """Return dX (N, C), the gradient of the focal loss times dOut.

    It follows from d/dx (1 − p)ᵞ ln p = (1 − p)ᵞ (1 − p − γ p ln p) with p = sigmoid(x), and likewise for the other
    term.
    """
    xp = array_module(x)
    right, wrong = _weights(x, label, count, alpha)
    p, rest = _chances(x)
    own = (1 - p) ** gamma * (1 - p - gamma * p * xp.log(xp.maximum(p, _LEAST)))
    other = p**gamma * (rest * (1 - p) * gamma - p)
    return ((-right * own - wrong * other) * dout).astype(x.dtype)


def _chances(x: Array) -> tuple[Any, Any]:
    """Return p = sigmoid(x) and ln(1 − p)."""
    xp = array_module(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1, small) / (1 + small), -xp.maximum(x, 0) - xp.log1p(small)


def _weights(x: Array, label: Array, count: Array, alpha: float) -> tuple[Any, Any]:
    xp = array_module(x)
    wanted = label.reshape(-1, 1)
    right = wanted == xp.arange(1, x.shape[1] + 1)
    total = xp.maximum(count.reshape(-1)[:1], 1).astype(x.dtype)
    return right * alpha / total, ((wanted != -1) & ~right) * (1 - alpha) / total
