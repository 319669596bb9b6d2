# SPDX-License-Identifier: Apache-2.0
"""Follow the regularised leader (McMahan et al., 2013): n sums squared gradients, z is the leader's state."""

from __future__ import annotations

from typing import Any

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def ftrl(w: Array, g: Array, n: Array, z: Array, eta: Any, l1: float, l2: float, power: float) -> None:
    """z += g − (n'^−p − n^−p)/η w with n' = n + g²;  w = (l1 sign z − z)/(n'^−p/η + 2 l2) where |z| > l1, else 0."""
    xp = array_module(w)
    for wi, gi, ni, zi in pieces(w, g, n, z):
        after = ni + gi * gi
        root = after**-power
        zi += gi - (root - ni**-power) / eta * wi
        wi[...] = xp.where(xp.abs(zi) > l1, (l1 * xp.sign(zi) - zi) / (root / eta + 2.0 * l2), 0.0)
        ni[...] = after
