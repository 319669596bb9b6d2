# SPDX-License-Identifier: Apache-2.0
"""Centered RMSProp: G = ρG + (1 − ρ)g²;  F = ρF + (1 − ρ)g;  r = 1/√(G − F² + ε);  w −= η r (g + λw).

Source: Graves, 2013. With momentum: m = μm − η r (g + λw); w += m. The first g² enters G with weight 1. A row untouched
for k batches has G and F decayed by ρ^k in one step.
"""

from __future__ import annotations

import numpy as np

from paddle.optim.rules.rule import Array, Rule, State, Step, average, decayed_average, descend
from paddle.optim.rules.table import Fluid, StateArray, rule


@rule("rmsprop", v2="RMSProp(rho=0.95, epsilon=1e-6)")
class RMSProp(Rule):
    """Centered RMSProp (Graves, 2013); its state is decayed averages of gradients and of their squares."""

    rho: float = 0.95
    epsilon: float = 1e-6

    keeps = ("G", "F")
    has_momentum = True
    handles_rows = True

    def update(self, w: Array, g: Array, state: State, step: Step) -> Array:
        """Take one step of centered RMSProp in place; return r, the factor on each element's rate."""
        G, F = state["G"], state["F"]
        decayed_average(G, g * g, self.rho, step)
        decayed_average(F, g, self.rho, step._replace(first=False))
        # Rounding makes a variance near 0 negative once gradients are large.
        variance: Array = np.maximum(G - F * F, np.float32(0.0))
        r: Array = 1.0 / np.sqrt(variance + self.epsilon)
        descend(w, g, r, state, step)
        return r


@rule(
    "fluid_rmsprop",
    fluid=Fluid(
        "RMSProp(learning_rate, rho=0.95, epsilon=1.0e-6, momentum=0.0, centered=False, regularization=None, "
        "name=None)",
        "d = μd + ηg/√(s + ε);  w −= d.  s is the decayed mean of g², if centered minus the square of the decayed "
        "mean of g.",
        "rmsprop: Param MeanSquare MeanGrad? LearningRate Grad Moment "
        "-> ParamOut MomentOut MeanSquareOut MeanGradOut?",
        {"epsilon": 1e-10, "decay": 0.9, "momentum": 0.0, "centered": False},
        (
            StateArray("m", "Moment", "momentum"),
            StateArray("G", "MeanSquare", "mean_square"),
            StateArray("F", "MeanGrad", "mean_grad"),
        ),
        names={"decay": "rho"},
    ),
)
class FluidRMSProp(Rule):
    """Fluid's RMSProp: G = ρG + (1 − ρ)g²;  m = μm + η g/√(G + ε);  w −= m.

    With `centered`, G − F² is used in place of G, where F = ρF + (1 − ρ)g. v2's rule is always centered and gives the
    first g² the weight 1.
    """

    rho: float = 0.95
    epsilon: float = 1e-6
    momentum: float = 0.0
    centered: float = 0.0

    penalizes_gradient = True

    def states(self, mu: float) -> tuple[str, ...]:
        """Return the names of the state arrays: the mean of gradients is included only if `centered`."""
        return ("G", "m", "F") if self.centered else ("G", "m")

    def update(self, w: Array, g: Array, state: State, step: Step) -> None:
        """Take one step of Fluid's RMSProp, which changes `w` and `state` in place."""
        G, m = state["G"], state["m"]
        average(G, g * g, self.rho)
        variance = G
        if self.centered:
            F = state["F"]
            average(F, g, self.rho)
            # Rounding makes a variance near 0 negative once gradients are large.
            variance = np.maximum(G - F * F, np.float32(0.0))
        m *= self.momentum
        m += step.eta * g / np.sqrt(variance + self.epsilon)
        w -= m
