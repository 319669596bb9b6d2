# SPDX-License-Identifier: Apache-2.0
"""Fluid's RMSProp: G = ρG + (1 − ρ)g²;  m = μm + η g/√(G + ε);  w −= m.

Centred: F = ρF + (1 − ρ)g, and G − F² in place of G. v2's is always centred and gives the first g² weight 1.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step


class FluidRMSProp(Rule):
    """Keeps the momentum and decayed averages of gradients, if centred, and of their squares."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, rho: float, epsilon: float, momentum: float, centered: float) -> None:
        self.rho, self.epsilon, self.mu, self.centered = rho, epsilon, momentum, bool(centered)

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("G", "m", "F") if self.centered else ("G", "m")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        G, m = state["G"], state["m"]
        G *= self.rho
        G += (1.0 - self.rho) * (g * g)
        variance = G
        if self.centered:
            F = state["F"]
            F *= self.rho
            F += (1.0 - self.rho) * g
            # Rounding makes a variance near 0 negative once gradients are large.
            variance = np.maximum(G - F * F, np.float32(0.0))
        m *= self.mu
        m += step.eta * g / np.sqrt(variance + self.epsilon)
        w -= m
