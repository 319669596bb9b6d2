# SPDX-License-Identifier: Apache-2.0
"""Fluid's Adamax: m = β₁m + (1 − β₁)g;  u = max(β₂u + ε, |g|);  w −= η/(1 − β₁^t) · m/u.

Unlike v2's it follows the schedule, and ε keeps u above 0.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step


class FluidAdamax(Rule):
    """Keeps a decayed average of gradients and a decayed maximum of their magnitudes."""

    follows_schedule: ClassVar[bool] = True
    handles_rows: ClassVar[bool] = False
    penalises_gradient: ClassVar[bool] = True

    def __init__(self, beta1: float, beta2: float, epsilon: float) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon

    def states(self, mu: float) -> tuple[str, ...]:
        """See `Rule.states`."""
        return ("m", "u")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """See `Rule.update`."""
        m, u = state["m"], state["u"]
        m *= self.beta1
        m += (1.0 - self.beta1) * g
        np.maximum(self.beta2 * u + self.epsilon, np.abs(g), out=u)
        w -= step.eta / (1.0 - self.beta1**step.t) * m / u
