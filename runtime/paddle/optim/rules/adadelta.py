# SPDX-License-Identifier: Apache-2.0
"""AdaDelta: E = ρE + (1 − ρ)g²;  r = √((D + ε)/(E + ε));  D = ρD + (1 − ρ)(g r)²;  w −= η r (g + λw).

Zeiler, 2012. E averages squared gradients, D squared steps. With momentum: m = μm − η r (g + λw);  w += m.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Hyper, Rule, State, Step, descend, hyper, with_momentum


class Adadelta(Rule):
    """Keeps decayed averages of squared gradients and of squared steps."""

    defaults: ClassVar[Hyper] = hyper(rho=0.95, epsilon=1e-6)
    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = True

    def __init__(self, rho: float, epsilon: float) -> None:
        self.rho, self.epsilon = rho, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return with_momentum("E", "D", mu=mu)

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """See `Rule.update`."""
        E, D = state["E"], state["D"]
        E *= self.rho
        E += (1.0 - self.rho) * (g * g)
        r: Array = np.sqrt((D + self.epsilon) / (E + self.epsilon))
        D *= self.rho
        D += (1.0 - self.rho) * np.square(g * r)
        descend(w, g, r, state, step)
        return r


class FluidAdadelta(Rule):
    """Fluid's AdaDelta: E = ρE + (1 − ρ)g²;  u = √((D + ε)/(E + ε)) g;  D = ρD + (1 − ρ)u²;  w −= u.

    The learning rate does not enter at all; in v2 it does.
    """

    defaults: ClassVar[Hyper] = hyper(rho=0.95, epsilon=1e-6)
    follows_schedule: ClassVar[bool] = False
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, rho: float, epsilon: float) -> None:
        self.rho, self.epsilon = rho, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("E", "D")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        E, D = state["E"], state["D"]
        E *= self.rho
        E += (1.0 - self.rho) * (g * g)
        u = np.sqrt((D + self.epsilon) / (E + self.epsilon)) * g
        D *= self.rho
        D += (1.0 - self.rho) * (u * u)
        w -= u
