# SPDX-License-Identifier: Apache-2.0
"""L1 and L2: decay after the rule, towards 0 by a threshold and a factor (v2), or terms of the gradient (Fluid)."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.optim.rules.rule import Array


def decay(w: Array, l1: Any, l2: Any) -> None:
    """w = sign(w) max(|w| − l1, 0), then w *= 1/(1 + l2).

    Args:
        w: float32, changed in place.
        l1: η λ₁, times batches and element factors where they apply; a number, or broadcastable to w, or None
            to skip it.
        l2: the same with λ₂.
    """
    if l1 is not None:
        np.copysign(np.maximum(np.abs(w) - l1, 0.0), w, out=w)
    if l2 is not None:
        w *= 1.0 / (1.0 + l2)


def penalised(g: Array, w: Array, l1: float, l2: float) -> Array:
    """Return g + λ₁ sign(w) + λ₂w; g itself if both are 0. There is no factor ½."""
    if l1:
        signs: Any = np.sign(w)
        g = g + l1 * signs
    return g + l2 * w if l2 else g
