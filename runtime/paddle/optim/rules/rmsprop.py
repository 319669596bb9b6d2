# SPDX-License-Identifier: Apache-2.0
"""Centred RMSProp: G = ρG + (1 − ρ)g²;  F = ρF + (1 − ρ)g;  r = 1/√(G − F² + ε);  w −= η r (g + λw).

Graves, 2013. With momentum: m = μm − η r (g + λw);  w += m. The first g² enters G with weight 1. A row
untouched for k batches has G and F decayed by ρ^k at once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, decayed_average, descend, with_momentum


class RMSProp(Rule):
    """Keeps decayed averages of gradients and of their squares."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True

    def __init__(self, rho: float, epsilon: float) -> None:
        self.rho, self.epsilon = rho, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum("G", "F", mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        G, F = state["G"], state["F"]
        decayed_average(G, g * g, self.rho, step)
        decayed_average(F, g, self.rho, step._replace(first=False))
        # Rounding makes a variance near 0 negative once gradients are large.
        variance: Array = np.maximum(G - F * F, np.float32(0.0))
        r: Array = 1.0 / np.sqrt(variance + self.epsilon)
        descend(w, g, r, state, step)
        return r
