# SPDX-License-Identifier: Apache-2.0
"""Fluid's AdaGrad that forgets: G = ρG + (1 − ρ)g²;  w −= η g/(√G + ε); ρ is its `decay`.

v2's gives the first g² weight 1 and has ε inside the root.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step


class FluidDecayedAdagrad(Rule):
    """Keeps a decayed average of squared gradients."""

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
