# SPDX-License-Identifier: Apache-2.0
"""AdaDelta, which has no learning rate: a = ρa + (1−ρ)g²;  u = −√((b+ε)/(a+ε)) g;  b = ρb + (1−ρ)u²;  w += u."""

from __future__ import annotations

from paddle.backend import Array, array_module
from paddle.optim.step.slices import pieces


def adadelta(w: Array, g: Array, a: Array, b: Array, rho: float, epsilon: float) -> None:
    """See above; a averages squared gradients, b squared steps."""
    xp = array_module(w)
    for wi, gi, ai, bi in pieces(w, g, a, b):
        ai *= rho
        ai += (1.0 - rho) * (gi * gi)
        u = -xp.sqrt((bi + epsilon) / (ai + epsilon)) * gi
        bi *= rho
        bi += (1.0 - rho) * (u * u)
        wi += u
