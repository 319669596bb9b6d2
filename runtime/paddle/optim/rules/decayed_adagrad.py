# SPDX-License-Identifier: Apache-2.0
"""AdaGrad that forgets: G = ρG + (1 − ρ)g²;  r = 1/√(G + ε);  m = μm − η r (g + λw);  w += m.

The first gradient enters G with weight 1. A row untouched for k batches has its G decayed by ρ^k at once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, decayed_average, descend, with_momentum


class DecayedAdagrad(Rule):
    """Keeps a decayed average of squared gradients."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True

    def __init__(self, rho: float, epsilon: float) -> None:
        self.rho, self.epsilon = rho, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum("G", mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        G = state["G"]
        decayed_average(G, g * g, self.rho, step)
        r: Array = 1.0 / np.sqrt(G + self.epsilon)
        descend(w, g, r, state, step)
        return r
