# SPDX-License-Identifier: Apache-2.0
"""AdaGrad that forgets: G = ρG + (1 − ρ)g²;  r = 1/√(G + ε);  m = μm − η r (g + λw);  w += m.

The first gradient enters G with weight 1. A row untouched for k batches has its G decayed by ρ^k at once.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import (
    Array,
    Hyper,
    Rule,
    State,
    Step,
    decayed_average,
    descend,
    hyper,
    with_momentum,
)


class DecayedAdagrad(Rule):
    """Keeps a decayed average of squared gradients."""

    defaults: ClassVar[Hyper] = hyper(rho=0.95, epsilon=1e-6)
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


class FluidDecayedAdagrad(Rule):
    """Fluid's AdaGrad that forgets: G = ρG + (1 − ρ)g²;  w −= η g/(√G + ε); ρ is its `decay`.

    v2's gives the first g² weight 1 and has ε inside the root.
    """

    defaults: ClassVar[Hyper] = hyper(decay=0.95, epsilon=1e-6)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, decay: float, epsilon: float) -> None:
        self.rho, self.epsilon = decay, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("G",)

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        G = state["G"]
        G *= self.rho
        G += (1.0 - self.rho) * (g * g)
        w -= step.eta * g / (np.sqrt(G) + self.epsilon)
