# SPDX-License-Identifier: Apache-2.0
"""Fluid's regularisers: L1 and L2 as terms of the gradient, after it was clipped."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.optim.rules.rule import Array


def penalised(g: Array, w: Array, l1: float, l2: float) -> Array:
    """Return g + λ₁ sign(w) + λ₂w; g itself if both are 0. There is no factor ½."""
    if l1:
        signs: Any = np.sign(w)
        g = g + l1 * signs
    return g + l2 * w if l2 else g
