# SPDX-License-Identifier: Apache-2.0
"""RMSProp: s = ρs + (1−ρ)g²;  d = μd + ηg/√(s + ε);  w −= d; centred: s − a² instead of s, a average of g."""

from __future__ import annotations

from typing import Any

import numpy as np

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def rmsprop(w: Array, g: Array, s: Array, d: Array, eta: Any, rho: float, epsilon: float, mu: float) -> None:
    """See above."""
    xp = array_module(w)
    for wi, gi, si, di in pieces(w, g, s, d):
        si *= rho
        si += (1.0 - rho) * (gi * gi)
        di *= mu
        di += eta * gi / xp.sqrt(si + epsilon)
        wi -= di


def centred_rmsprop(
    w: Array, g: Array, s: Array, a: Array, d: Array, eta: Any, rho: float, epsilon: float, mu: float
) -> None:
    """See above."""
    xp = array_module(w)
    for wi, gi, si, ai, di in pieces(w, g, s, a, d):
        si *= rho
        si += (1.0 - rho) * (gi * gi)
        ai *= rho
        ai += (1.0 - rho) * gi
        # Rounding makes a variance near 0 negative once gradients are large.
        variance = xp.maximum(si - ai * ai, np.float32(0.0))
        di *= mu
        di += eta * gi / xp.sqrt(variance + epsilon)
        wi -= di
